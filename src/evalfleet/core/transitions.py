"""The allowed transitions of every state machine, and the verbs that cause them.

What the store keeps moves by guarded statements along these edges, and the contract of the store tries all others. What
lives in code moves through `allowed`. Tables are keyed by a pair of states of one enum; what is not in a table is forbidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from evalfleet.model import AlertState as L
from evalfleet.model import AttemptState as A
from evalfleet.model import BreakerState as B
from evalfleet.model import DesiredState as D
from evalfleet.model import GpuRequestState as G
from evalfleet.model import HostState as H
from evalfleet.model import PoolState as P
from evalfleet.model import RunState as R
from evalfleet.model import TaskState as T
from evalfleet.model import WorkerState as W

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

DESIRED_EDGES: Mapping[tuple[D, D], tuple[str, ...]] = {
    (D.RUNNING, D.STOPPED): ("stop",),
    (D.RUNNING, D.GONE): ("delete",),
    (D.STOPPED, D.RUNNING): ("start",),
    (D.STOPPED, D.GONE): ("delete",),
}
"""The desired state of a host. Every process may change it. Nothing leaves `gone`: a machine that is to go stays unwanted."""

HOST_EDGES: Mapping[tuple[H, H], tuple[str, ...]] = {
    (H.REQUESTED, H.CREATING): ("order",),
    (H.REQUESTED, H.GONE): ("give_up",),
    (H.CREATING, H.PREPARING): ("arrive",),
    (H.CREATING, H.DRAINING): ("drain",),
    (H.CREATING, H.STOPPED): ("stop",),
    (H.CREATING, H.LOST): ("lose",),
    (H.CREATING, H.GONE): ("give_up", "delete"),
    (H.PREPARING, H.READY): ("pass",),
    (H.PREPARING, H.QUARANTINED): ("fail",),
    (H.PREPARING, H.CREATING): ("replace",),  # a check failed that another machine may pass
    (H.PREPARING, H.DRAINING): ("drain",),
    (H.PREPARING, H.STOPPED): ("stop",),
    (H.PREPARING, H.LOST): ("lose",),
    (H.PREPARING, H.GONE): ("delete",),
    (H.READY, H.QUARANTINED): ("fail",),
    (H.READY, H.DRAINING): ("drain",),
    (H.READY, H.STOPPED): ("stop",),
    (H.READY, H.LOST): ("lose",),
    (H.READY, H.GONE): ("delete",),
    (H.QUARANTINED, H.PREPARING): ("retry",),
    (H.QUARANTINED, H.DRAINING): ("drain",),
    (H.QUARANTINED, H.STOPPED): ("stop",),
    (H.QUARANTINED, H.LOST): ("lose",),
    (H.QUARANTINED, H.GONE): ("delete",),
    (H.DRAINING, H.PREPARING): ("arrive",),  # it is wanted again before it was off
    (H.DRAINING, H.STOPPED): ("stop",),
    (H.DRAINING, H.LOST): ("lose",),
    (H.DRAINING, H.GONE): ("delete",),
    (H.STOPPED, H.PREPARING): ("arrive",),
    (H.STOPPED, H.DRAINING): ("drain",),
    (H.STOPPED, H.LOST): ("lose",),
    (H.STOPPED, H.GONE): ("delete",),
    (H.LOST, H.GONE): ("delete",),
}
"""How far a host is. Only the controller of its pool moves it. A machine that vanished while it was to go is `gone` at once,
unless its box may hold results that are not collected: then it is `lost` until they are."""

POOL_EDGES: Mapping[tuple[P, P], tuple[str, ...]] = {
    (P.ACTIVE, P.PAUSED): ("pause",),
    (P.ACTIVE, P.DELETING): ("delete",),
    (P.ACTIVE, P.DELETED): ("delete",),  # it has no machines
    (P.PAUSED, P.ACTIVE): ("resume",),
    (P.PAUSED, P.DELETING): ("delete",),
    (P.PAUSED, P.DELETED): ("delete",),
    (P.DELETING, P.DELETED): ("delete",),  # the last of its machines is gone
}

BREAKER_EDGES: Mapping[tuple[B, B], tuple[str, ...]] = {
    (B.CLOSED, B.OPEN): ("open",),
    (B.OPEN, B.HALF_OPEN): ("probe",),
    (B.HALF_OPEN, B.CLOSED): ("close",),
    (B.HALF_OPEN, B.OPEN): ("fail", "forget", "rearm"),
}
"""Nothing closes an open breaker but a probe."""

WORKER_EDGES: Mapping[tuple[W, W], tuple[str, ...]] = {
    (W.READY, W.BUSY): ("claim",),
    (W.READY, W.SUSPECT): ("suspect",),
    (W.READY, W.QUARANTINED): ("quarantine",),
    (W.READY, W.DRAINING): ("drain",),
    (W.READY, W.LOST): ("lose",),
    (W.READY, W.GONE): ("leave",),
    (W.BUSY, W.READY): ("finish",),
    (W.SUSPECT, W.READY): ("answer", "join", "take"),
    (W.SUSPECT, W.QUARANTINED): ("quarantine",),
    (W.SUSPECT, W.DRAINING): ("drain",),
    (W.SUSPECT, W.LOST): ("lose",),
    (W.SUSPECT, W.GONE): ("leave",),
    (W.QUARANTINED, W.READY): ("unquarantine", "join", "take"),
    (W.QUARANTINED, W.SUSPECT): ("unquarantine",),
    (W.QUARANTINED, W.DRAINING): ("drain",),
    (W.QUARANTINED, W.LOST): ("lose",),
    (W.QUARANTINED, W.GONE): ("leave",),
    (W.DRAINING, W.READY): ("stay", "join", "take"),
    (W.DRAINING, W.SUSPECT): ("stay",),
    (W.DRAINING, W.QUARANTINED): ("stay",),
    (W.DRAINING, W.LOST): ("lose",),
    (W.DRAINING, W.GONE): ("leave",),
    (W.LOST, W.READY): ("answer", "join", "take"),
    (W.LOST, W.QUARANTINED): ("answer",),
    (W.LOST, W.DRAINING): ("answer",),
    (W.LOST, W.GONE): ("leave",),
    (W.GONE, W.READY): ("join", "take"),
}
"""What views show of a worker, folded from events by `report.live`. Several things may hold of its host at once; the gravest
is shown. A busy worker stays busy whatever holds of its host, and views show both."""

GPU_EDGES: Mapping[tuple[G, G], tuple[str, ...]] = {
    (G.WAITING, G.LEASED): ("grant",),
    (G.WAITING, G.WITHDRAWN): ("withdraw",),
    (G.LEASED, G.RELEASED): ("release",),
}

ALERT_EDGES: Mapping[tuple[L, L], tuple[str, ...]] = {(L.FIRING, L.RESOLVED): ("resolve",)}
"""What fires again is another alert."""

_EDGES: tuple[Mapping[tuple[Any, Any], tuple[str, ...]], ...] = (
    *(RUN_EDGES, TASK_EDGES, ATTEMPT_EDGES, DESIRED_EDGES, HOST_EDGES, POOL_EDGES, BREAKER_EDGES),
    *(WORKER_EDGES, GPU_EDGES, ALERT_EDGES),
)
_TABLES: Mapping[type, Mapping[tuple[Any, Any], tuple[str, ...]]] = {
    type(next(iter(table))[0]): table for table in _EDGES
}


def verbs(before: StrEnum, after: StrEnum) -> tuple[str, ...]:
    """The verbs that move `before` to `after`; empty where the edge is forbidden or the two are of different kinds."""
    # States of different kinds are equal as text ("queued"), so the type must be part of the question.
    if type(before) is not type(after):
        return ()
    return _TABLES[type(before)].get((before, after), ())


def allowed(before: StrEnum, after: StrEnum) -> bool:
    """Whether any verb moves `before` to `after`. Staying in a state is no move."""
    return bool(verbs(before, after))
