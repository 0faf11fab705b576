"""The closed set of failure kinds, and what each means by default.

`RULES` is total over `Kind`. The default blame is what one attempt alone can say; `core.attribution` may move it when
the history of the run says more. A change of the table or of `core.judge` raises `JUDGE_VERSION`, so that a finished
run can be judged again and a stored failure tells which set judged it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from evalfleet.model import Blame, Failure, Kind, Outcome

JUDGE_VERSION = 4
EVIDENCE_LIMIT = 300


class Systemic(StrEnum):
    """When the same cause on several tasks is the pool's and not theirs (see `core.attribution`)."""

    NEVER = "never"
    EVIDENCE = "evidence"  # the same specific evidence line, and the executable never had a verdict
    KIND = "kind"  # as before, but the kind alone is specific enough
    SINCE = "since"  # the kind alone, and no verdict in the pool since


class Rule(Struct, frozen=True, kw_only=True):
    """What a kind means when nothing else is known."""

    blame: Blame
    retryable: bool
    consumes: bool
    outcome: Outcome
    systemic: Systemic = Systemic.NEVER


def _own(outcome: Outcome = Outcome.TASK_ERROR, systemic: Systemic = Systemic.NEVER) -> Rule:
    return Rule(blame=Blame.TASK, retryable=True, consumes=True, outcome=outcome, systemic=systemic)


def _free(blame: Blame, outcome: Outcome, *, retryable: bool = True, systemic: Systemic = Systemic.NEVER) -> Rule:
    return Rule(blame=blame, retryable=retryable, consumes=False, outcome=outcome, systemic=systemic)


def _hang(outcome: Outcome, systemic: Systemic = Systemic.NEVER) -> Rule:
    # It consumes although the worker is blamed first: a task that always hangs must end after `attempts`.
    return Rule(blame=Blame.WORKER, retryable=True, consumes=True, outcome=outcome, systemic=systemic)


RULES: Mapping[Kind, Rule] = {
    Kind.TASK_ERROR: _own(systemic=Systemic.EVIDENCE),
    Kind.BAD_EXIT: _own(systemic=Systemic.EVIDENCE),
    Kind.SIGNALLED: _own(systemic=Systemic.EVIDENCE),
    Kind.OUT_OF_MEMORY: _own(),
    Kind.TIMEOUT: _own(Outcome.TIMEOUT),
    Kind.STALL: _hang(Outcome.STALLED),
    Kind.START_TIMEOUT: _hang(Outcome.INFRA_ERROR, Systemic.KIND),
    Kind.RESULT_MISSING: _own(systemic=Systemic.KIND),
    Kind.RESULT_UNREADABLE: _own(systemic=Systemic.EVIDENCE),
    Kind.LAUNCH_FAILED: _own(systemic=Systemic.KIND),
    Kind.DISK_FULL: _free(Blame.WORKER, Outcome.INFRA_ERROR, systemic=Systemic.SINCE),
    Kind.HOST_FAILED: _free(Blame.WORKER, Outcome.INFRA_ERROR, systemic=Systemic.SINCE),
    Kind.ENVIRONMENT_FAILED: _free(Blame.WORKER, Outcome.INFRA_ERROR, systemic=Systemic.KIND),
    Kind.GPU_TAKEN: _free(Blame.WORKER, Outcome.INFRA_ERROR),
    Kind.SERVICE_FAILED: _free(Blame.POOL, Outcome.INFRA_ERROR),
    # Tried again although a person must act: the breaker pauses the run before many are, and then nothing has to be released.
    Kind.SERVICE_REFUSED: _free(Blame.POOL, Outcome.INFRA_ERROR),
    # It follows from what the task asks for: another attempt would end in the same way.
    Kind.COST_LIMIT: Rule(blame=Blame.TASK, retryable=False, consumes=True, outcome=Outcome.TASK_ERROR),
    Kind.BAD_FLAG: Rule(blame=Blame.TASK, retryable=False, consumes=True, outcome=Outcome.TASK_ERROR),
    Kind.PORT_TAKEN: _hang(Outcome.INFRA_ERROR, Systemic.EVIDENCE),
    Kind.DOWNLOAD: _hang(Outcome.INFRA_ERROR, Systemic.EVIDENCE),
    Kind.STARTUP_TIMEOUT: _own(),
    Kind.CRASH: _own(),
    Kind.RUNNER_LOST: _free(Blame.WORKER, Outcome.LOST),
    Kind.WORKER_LOST: _free(Blame.WORKER, Outcome.LOST),
    Kind.PREEMPTED: _free(Blame.WORKER, Outcome.PREEMPTED),
    Kind.BACKEND_ERROR: _free(Blame.BACKEND, Outcome.INFRA_ERROR),
    Kind.CANCELLED: _free(Blame.RUN, Outcome.CANCELLED, retryable=False),
}


def failure(kind: Kind, evidence: str) -> Failure:
    """The failure of that kind with its default blame; the evidence is made one line."""
    rule = RULES[kind]
    return Failure(
        kind=kind, blame=rule.blame, retryable=rule.retryable, consumes=rule.consumes, evidence=one_line(evidence)
    )


def outcome_of(kind: Kind, blame: Blame | None = None) -> Outcome:
    """The outcome of an attempt that ended with a failure of this kind; a cause that is a host's or the pool's is `infra_error`."""
    outcome = RULES[kind].outcome
    moved = outcome is Outcome.TASK_ERROR and blame in (Blame.WORKER, Blame.POOL, Blame.BACKEND)
    return Outcome.INFRA_ERROR if moved else outcome


_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.?)", re.DOTALL)
_CONTROL = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def one_line(text: str, limit: int = EVIDENCE_LIMIT) -> str:
    """`text` as one printable line of at most `limit` characters that any database and terminal can take."""
    clean = _CONTROL.sub(" ", _ANSI.sub("", whole_text(text[: limit * 8]))).strip()
    return clean if len(clean) <= limit else clean[: limit - 1].rstrip() + "…"


def whole_text(text: str) -> str:
    """`text` with every half surrogate replaced: it passes Python's JSON reader, but no database takes it."""
    return text.encode("utf-8", "replace").decode("utf-8")


_PATH_PART = re.compile(r"(?<=/)[^\s/'\":,()]*\d[^\s/'\":,()]*")
_HEX = re.compile(r"\b0x[0-9a-fA-F]+|\b(?=[a-fA-F]*\d)[0-9a-fA-F]{8,}\b")
_DIGITS = re.compile(r"\d+")
_SIGNALS = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
            11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ"}  # fmt: skip
_GENERIC = re.compile(r"|exit status #|killed by signal # \(\w+\)|killed by signal #")


def same_cause(evidence: str, task: str | None = None) -> str:
    """The evidence without what differs between tasks that fail for one cause.

    The task's own key becomes ``<task>``; then path components with digits, hexadecimal words and numbers become ``#``.
    Nothing else is touched: two lines are the same cause only if the rest is the same, letter by letter.
    """
    line = evidence
    if task:
        line = re.sub(rf"(?<!\w){re.escape(task)}(?!\w)", "<task>", line)
    return _DIGITS.sub("#", _HEX.sub("#", _PATH_PART.sub("#", line))).strip()


def exit_evidence(code: int) -> str:
    """The evidence of a program that ended badly and said nothing. `is_specific` knows it, also in homes of long ago."""
    return f"exit status {code}"


def signal_evidence(number: int) -> str:
    """The evidence of a program that was killed and said nothing, for `is_specific` as well."""
    name = _SIGNALS.get(number)
    return f"killed by signal {number}" + (f" ({name})" if name else "")


def is_specific(evidence: str) -> bool:
    """Whether the line says more than that the program ended badly. A silent `exit 1` does not."""
    return _GENERIC.fullmatch(same_cause(evidence)) is None
