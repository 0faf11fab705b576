"""Which state may follow which, and the verbs that move it.

The tables are the contract of the store: every guarded statement moves along one of these edges, and its tests try all
others. They are keyed by a pair of states of one enum; what is not in a table is forbidden.
"""

from __future__ import annotations

from collections.abc import Mapping

from evalfleet.model import AttemptState as A
from evalfleet.model import RunState as R
from evalfleet.model import TaskState as T

RUN_EDGES: Mapping[tuple[R, R], tuple[str, ...]] = {
    (R.QUEUED, R.RUNNING): ("resume",),
    (R.QUEUED, R.CANCELLED): ("cancel",),
    (R.RUNNING, R.PAUSED): ("hold",),
    (R.RUNNING, R.COMPLETED): ("finish",),
    (R.RUNNING, R.CANCELLED): ("cancel",),
    (R.PAUSED, R.RUNNING): ("resume",),
    (R.PAUSED, R.CANCELLED): ("cancel",),
    (R.COMPLETED, R.RUNNING): ("retry", "release"),
    (R.CANCELLED, R.RUNNING): ("retry",),
}
"""A clean stop moves nothing: the run stays `running` without an owner, and the next controller takes it over."""

TASK_EDGES: Mapping[tuple[T, T], tuple[str, ...]] = {
    (T.QUEUED, T.RUNNING): ("claim",),
    (T.QUEUED, T.HELD): ("hold", "conclude"),
    (T.QUEUED, T.FAILED): ("conclude",),  # no other host shall try it any more
    (T.QUEUED, T.CANCELLED): ("cancel",),
    (T.QUEUED, T.DONE): ("finish",),  # late verdict of an attempt that was judged lost
    (T.RUNNING, T.DONE): ("finish",),
    (T.RUNNING, T.FAILED): ("finish",),
    (T.RUNNING, T.HELD): ("finish",),
    (T.RUNNING, T.QUEUED): ("retry", "release"),
    (T.RUNNING, T.CANCELLED): ("cancel",),
    (T.HELD, T.QUEUED): ("release", "retry"),
    (T.HELD, T.CANCELLED): ("cancel",),
    (T.HELD, T.FAILED): ("judge",),
    (T.HELD, T.DONE): ("finish",),
    (T.FAILED, T.QUEUED): ("retry",),
    (T.FAILED, T.HELD): ("judge",),
    (T.FAILED, T.DONE): ("finish",),
    (T.CANCELLED, T.QUEUED): ("retry",),
}
"""Nothing leaves `done`: a verdict is never taken back, and a finished task is never started again."""

ATTEMPT_EDGES: Mapping[tuple[A, A], tuple[str, ...]] = {
    (A.LEASED, A.STARTING): ("start",),
    (A.LEASED, A.RUNNING): ("start",),
    (A.LEASED, A.COLLECTING): ("finish",),
    (A.STARTING, A.RUNNING): ("start",),
    (A.STARTING, A.COLLECTING): ("finish",),
    (A.RUNNING, A.COLLECTING): ("finish",),
    (A.COLLECTING, A.ENDED): ("collect",),
    (A.ENDED, A.COLLECTING): ("finish",),  # a late verdict of an attempt that was given up as lost
}

_TABLES: Mapping[type, Mapping[tuple[str, str], tuple[str, ...]]] = {
    R: {(str(a), str(b)): verbs for (a, b), verbs in RUN_EDGES.items()},
    T: {(str(a), str(b)): verbs for (a, b), verbs in TASK_EDGES.items()},
    A: {(str(a), str(b)): verbs for (a, b), verbs in ATTEMPT_EDGES.items()},
}


def verbs(before: R | T | A, after: R | T | A) -> tuple[str, ...]:
    """The verbs that move `before` to `after`; empty where the edge is forbidden or the two are of different kinds."""
    # States of different kinds are equal as text ("queued"), so the type must be part of the question.
    if type(before) is not type(after):
        return ()
    return _TABLES[type(before)].get((str(before), str(after)), ())


def allowed(before: R | T | A, after: R | T | A) -> bool:
    """Whether any verb moves `before` to `after`. Staying in a state is no move."""
    return bool(verbs(before, after))
