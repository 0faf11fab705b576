"""The judge: turns an end record into a verdict or a failure.

The table of exits is a public contract. The judge is total: any end record, also one written by a runner of another
version, gives a verdict or a failure and never an exception.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from evalfleet.core.failures.kinds import exit_evidence, failure, one_line, signal_evidence, whole_text
from evalfleet.errors import ConfigError
from evalfleet.model import EndRecord, Failure, JsonObject, Kind, Policy, Verdict

_MOST_STEPS = 2**53  # what every JSON reader and database keeps exactly
_MOST_DEPTH = 32
_MOST_BITS = 4096  # Python refuses to print much larger integers
_LONGEST_LINE = 2000  # bounds the time of a user's pattern
_ABORTED = 6
_FULL = frozenset({28, 122})  # ENOSPC, EDQUOT
# What the command itself can be wrong by, in Linux' numbers, which every runner speaks: EPERM, ENOENT, E2BIG, ENOEXEC,
# EACCES, ENOTDIR, EISDIR, EINVAL, ENAMETOOLONG, ELOOP, ELIBBAD. Everything else is what its host lacks at that moment.
_THE_COMMANDS = frozenset({1, 2, 7, 8, 13, 20, 21, 22, 36, 40, 80})
_SHELL_WORDS = ("not found", "permission denied", "no such file", "cannot execute", "exec format error")
# What interpreters say of a script or module that is not there; a program's own traceback does not look so.
_NO_SCRIPT = re.compile(
    r"(?:\S*/)?python[\d.]*: (?:can't open file '.*': \[Errno 2\] No such file or directory|No module named \S+)"
    r"|Can't open perl script \".*\": No such file or directory"
    r"|(?:\S*/)?ruby[\d.]*: No such file or directory -- .* \(LoadError\)"
)
_MEMORY_ERROR = re.compile(r"(?:[\w.]+\.)?MemoryError(?::.*)?")
_FRAME = re.compile(r'\s+File "[^"]*", line \d+')
_CAUSES = {
    "cancelled": (Kind.CANCELLED, "cancelled"),
    "cost_limit": (Kind.COST_LIMIT, "cost more than its max_cost_usd"),
    "start_timeout": (Kind.START_TIMEOUT, "not ready within its start limit"),
    "gpu_taken": (Kind.GPU_TAKEN, "another process was using a GPU of its lease"),
    "runner_lost": (Kind.RUNNER_LOST, "the runner died under the attempt"),
    "worker_lost": (Kind.WORKER_LOST, "the host was given up"),
    "backend_error": (Kind.BACKEND_ERROR, "no runner could be started or reached"),
    "expired": (Kind.BACKEND_ERROR, "not started in time, and its controller was gone"),
    "preempted": (Kind.PREEMPTED, "the host was taken back"),
    "withdrawn": (Kind.ENVIRONMENT_FAILED, "it was stuck, and was taken from its worker"),
}
# What a program may say of itself in its result's "error_kind".
_REPORTED: dict[str, Kind] = {
    kind.value: kind
    for kind in (
        Kind.TASK_ERROR,
        Kind.ENVIRONMENT_FAILED,
        Kind.SERVICE_FAILED,
        Kind.SERVICE_REFUSED,
        Kind.HOST_FAILED,
        Kind.OUT_OF_MEMORY,
        Kind.DISK_FULL,
        Kind.LAUNCH_FAILED,
        Kind.BAD_FLAG,
        Kind.PORT_TAKEN,
        Kind.DOWNLOAD,
        Kind.STARTUP_TIMEOUT,
        Kind.CRASH,
    )
}


class Pattern(Struct, frozen=True, kw_only=True):
    """A user's rule: a failed attempt with a line that fits `regex` is of this kind."""

    regex: re.Pattern[str]
    kind: Kind

    @classmethod
    def of(cls, regex: str, kind: str) -> Pattern:
        """Raises: ConfigError, where either word is wrong."""
        try:
            return cls(regex=re.compile(regex), kind=Kind(kind))
        except re.error as error:
            raise ConfigError(f"pattern {regex!r} is not a regular expression: {error}") from None
        except ValueError:
            kinds = ", ".join(Kind)
            raise ConfigError(f"pattern {regex!r} names the unknown kind {kind!r}; use one of: {kinds}") from None


class Builtin(Struct, frozen=True):
    """All signatures of `core.signatures`, as one pattern. What the program itself said in `error_kind` stands."""


BUILTIN = Builtin()


def judge(end: EndRecord, policy: Policy, patterns: Sequence[Pattern | Builtin] = (BUILTIN,)) -> Verdict | Failure:
    """The verdict of the attempt, or the failure with its default blame.

    `patterns` are tried in order on the lines of a failed attempt; the first that fits decides the kind, and its line
    becomes the evidence. They never turn the verdict of a result into a failure, and never change what was cancelled. They come
    before `exit_is_verdict`: infrastructure is never a score of 0.
    """
    judged = _by_cause(end, policy)
    if isinstance(judged, Verdict) or judged.kind is Kind.CANCELLED:
        return judged
    judged = _by_pattern(judged, end, patterns)
    if judged.kind is Kind.BAD_EXIT and policy.exit_is_verdict:
        return Verdict(score=0.0, success=False, steps=end.steps)
    return judged


def _by_cause(end: EndRecord, policy: Policy) -> Verdict | Failure:
    match end.cause:
        case "exited":
            return _exited(end, policy)
        case "timeout" if policy.timeout_is_verdict:
            return Verdict(score=0.0, success=False, steps=end.steps, metrics={"reason": "timeout"})
        case "timeout":
            return failure(Kind.TIMEOUT, f"reached its time limit after {end.duration_s:.0f} s")
        case "stall":
            return failure(Kind.STALL, f"no progress for {end.idle_s:.0f} s")
        case "launch_failed":
            return failure(_unlaunched(end), end.message or "the command could not be executed")
        case "host_failed":
            full = end.disk_full or end.errno in _FULL
            return failure(Kind.DISK_FULL if full else Kind.HOST_FAILED, end.message or "the host refused the launch")
        case cause if cause in _CAUSES:
            kind, words = _CAUSES[cause]
            return failure(kind, end.message or words)
        case cause:
            return failure(Kind.BACKEND_ERROR, f"the runner reported an unknown end: {cause}")


def _unlaunched(end: EndRecord) -> Kind:
    """Whose fault it is that there never was a process: a missing program is not a host without processes."""
    if end.disk_full or end.errno in _FULL:
        return Kind.DISK_FULL
    return Kind.LAUNCH_FAILED if end.errno is None or end.errno in _THE_COMMANDS else Kind.HOST_FAILED


def _exited(end: EndRecord, policy: Policy) -> Verdict | Failure:
    if end.signal:
        words = signal_evidence(end.signal)
        # Not its last line: whoever is killed says nothing about why, and three such lines would look like one cause.
        return _flagged(end, words) or failure(Kind.SIGNALLED, words)
    if end.exit_code is None:
        return failure(Kind.BACKEND_ERROR, "the runner reported neither an exit status nor a signal")
    if end.exit_code == 0:
        return _exit_zero(end, policy)
    return _exit_other(end, end.exit_code)


def _exit_zero(end: EndRecord, policy: Policy) -> Verdict | Failure:
    if not end.has_result and end.result_error is None:
        if not policy.result_required:
            return Verdict(score=1.0, success=True, steps=end.steps)
        judged: Verdict | Failure = failure(Kind.RESULT_MISSING, "exited with status 0 and wrote no result")
    elif end.result_error is not None:
        judged = failure(Kind.RESULT_UNREADABLE, f"result: {end.result_error}")
    else:
        judged = read_result(end.result, steps=end.steps)
    if isinstance(judged, Failure) and judged.kind not in _REPORTED.values() and end.disk_full:
        return failure(Kind.DISK_FULL, last_line(end.tail) or "the disk was full; the result could not be written")
    return judged


def _exit_other(end: EndRecord, code: int) -> Failure:
    line = last_line(end.tail)
    words = f"{exit_evidence(code)}: {line}" if line else exit_evidence(code)
    flagged = _flagged(end, words)
    reported = _reported(end.result) if end.has_result else None
    if flagged:
        return reported if reported is not None and reported.kind is flagged.kind else flagged
    if code in (126, 127) and any(word in line.lower() for word in _SHELL_WORDS):
        return failure(Kind.LAUNCH_FAILED, line)
    if _NO_SCRIPT.fullmatch(line):
        return failure(Kind.LAUNCH_FAILED, line)
    if _MEMORY_ERROR.fullmatch(line):
        return failure(Kind.OUT_OF_MEMORY, line)
    return reported if reported is not None else failure(Kind.BAD_EXIT, words)


def _flagged(end: EndRecord, words: str) -> Failure | None:
    """The runner's measurements take precedence over how the program ended."""
    if end.disk_full:
        return failure(Kind.DISK_FULL, last_line(end.tail) or "the disk was full")
    if end.oom:
        return failure(Kind.OUT_OF_MEMORY, f"out of memory: {words}")
    return None


def read_result(result: Any, *, steps: int | None = None) -> Verdict | Failure:
    """The verdict that a result object holds, else the failure that it reports, or `result_unreadable`.

    `null` is the same as a missing member. `steps` is used where the object names none.
    """
    if not isinstance(result, dict):
        return _unreadable(f"must be a JSON object, not {_json_name(result)}")
    members = cast("JsonObject", result)
    reported = _reported(members)
    if reported is not None:
        return reported
    score, success = members.get("score"), members.get("success")
    if score is None and success is None:
        return _unreadable('has neither "score" nor "success"')
    if score is not None and not _is_score(score):
        return _unreadable(f'"score" must be a number from 0 to 1, not {_shown(score)}')
    if success is not None and not isinstance(success, bool):
        return _unreadable(f'"success" must be true or false, not {_shown(success)}')
    count = members.get("steps")
    if count is not None and not (_is_int(count) and 0 <= count <= _MOST_STEPS):
        return _unreadable(f'"steps" must be a whole number from 0, not {_shown(count)}')
    metrics = members.get("metrics")
    try:
        kept = _finite(metrics if metrics is not None else {}, _MOST_DEPTH)
    except ValueError as wrong:
        return _unreadable(f'"metrics" {wrong}')
    if not isinstance(kept, dict):
        return _unreadable(f'"metrics" must be an object, not {_json_name(metrics)}')
    value = float(score) + 0.0 if score is not None else float(bool(success))
    return Verdict(
        score=value,
        success=success if success is not None else value >= 1.0,
        steps=count if count is not None else steps,
        metrics=cast("JsonObject", kept),
    )


def _reported(result: Any) -> Failure | None:
    """The failure of `{"error": ..., "error_kind": ...}`; null, false and empty text are no error.

    A kind that we do not know is the task's own error: a program must not get out of a failure by a misspelt word.
    """
    if not isinstance(result, dict):
        return None
    members = cast("JsonObject", result)
    error = members.get("error")
    if error is None or error is False or error == "":
        return None
    named = members.get("error_kind")
    kind = _REPORTED.get(named, Kind.TASK_ERROR) if isinstance(named, str) else Kind.TASK_ERROR
    found = failure(kind, error if isinstance(error, str) else _shown(error))
    # Who says of itself that its memory does not suffice has the same memory in its next attempt.
    return replace(found, retryable=False) if kind is Kind.OUT_OF_MEMORY else found


def _unreadable(wrong: str) -> Failure:
    return failure(Kind.RESULT_UNREADABLE, f"result: {wrong}")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_score(value: Any) -> bool:
    # The comparison comes before any conversion: it is false for NaN, and safe for integers too large for a float.
    return (isinstance(value, float) or _is_int(value)) and 0 <= value <= 1


def _finite(value: Any, depth: int) -> Any:
    """A copy in which NaN and infinities are null: a diverged loss is a fact of the task, but it is not JSON.

    Raises: ValueError with the rest of a sentence, where a value cannot be kept.
    """
    if depth == 0:
        raise ValueError(f"are nested deeper than {_MOST_DEPTH}")
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {whole_text(str(name)): _finite(inner, depth - 1) for name, inner in items}
    if isinstance(value, list):
        return [_finite(inner, depth - 1) for inner in cast("list[Any]", value)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return whole_text(value)
    if value is None or (isinstance(value, int) and value.bit_length() <= _MOST_BITS):
        return value
    raise ValueError(f"hold {_json_name(value)}")


def _json_name(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return "a huge number"
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "null" if value is None else names.get(cast("type[Any]", type(value)), "something that is not JSON")


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return _json_name(cast("Any", value))
    if _is_int(value) and value.bit_length() > 128:
        return "a huge number"  # Python refuses to print integers of thousands of digits
    return one_line(repr(value), 60)


def _by_pattern(judged: Failure, end: EndRecord, patterns: Sequence[Pattern | Builtin]) -> Failure:
    lines = _lines(end, judged)
    for pattern in patterns:
        if isinstance(pattern, Builtin):
            found = _recognised(_said(judged, end))
            if found is not None:
                return found
            continue
        for line in lines:
            if pattern.regex.search(line[:_LONGEST_LINE]):
                return failure(pattern.kind, line)
    return judged


def _recognised(text: str) -> Failure | None:
    # Here, because compiling the signatures takes longer than a run of nothing but verdicts should wait.
    from evalfleet.core.failures.signatures import recognise

    found = recognise(text) if text else None
    return failure(found.kind, found.line) if found is not None else None


def _lines(end: EndRecord, judged: Failure) -> list[str]:
    """Where a user's pattern is searched: the last line first, and lines of source in a traceback after all others."""
    lines = [line for text in (end.message or "", end.tail) for line in text.splitlines()]
    source = {place + 1 for place, line in enumerate(lines) if _FRAME.match(line)}
    said = [line for place, line in enumerate(lines) if place not in source]
    return [*reversed(said), judged.evidence, *(lines[place] for place in sorted(source) if place < len(lines))]


def _said(judged: Failure, end: EndRecord) -> str:
    """The text in which built-in signatures are looked for; none where the end says enough by itself."""
    match judged.kind:
        case Kind.BAD_EXIT | Kind.RESULT_MISSING | Kind.RESULT_UNREADABLE:
            return end.tail
        case Kind.SIGNALLED if end.signal == _ABORTED:
            return end.tail
        case Kind.TASK_ERROR if isinstance(end.result, dict):
            members = cast("JsonObject", end.result)
            return str(members.get("error")) if members.get("error_kind") is None else ""
        case _:
            return ""


def last_line(text: str) -> str:
    """The last line that shows anything, made printable; empty where there is none."""
    for line in reversed(text.splitlines()):
        shown = one_line(line)
        if shown:
            return shown
    return ""
