"""Why a watched server failed, from its exit and its output. Pure.

The patterns are data: each row has a kind, a pattern, and whether it counts only before the server was ready. The first kind with a
matching line decides. A dying server often prints the cause first and then, at greater length, its consequences; so the rows are
ordered from causes to consequences, and within a kind the last line counts.
"""

from __future__ import annotations

import re
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

OUT_OF_MEMORY, DISK_FULL, PORT_TAKEN, BAD_FLAG = "out_of_memory", "disk_full", "port_taken", "bad_flag"
DOWNLOAD, STARTUP_TIMEOUT, CRASH, LAUNCH_FAILED = "download", "startup_timeout", "crash", "launch_failed"

LONGEST_LINE = 170  # of the evidence: what to change must find its place behind it
USAGE_STATUS = (2, 64)  # what argparse and sysexits say of wrong arguments

ADVICE = {
    OUT_OF_MEMORY: "lower its memory use, or request more gpus or memory",
    DISK_FULL: "free disk space on the host",
    PORT_TAKEN: "use {port} as the port in server.command",
    BAD_FLAG: "correct it, or exclude this combination",
    DOWNLOAD: "check the name, the access rights and the network",
    STARTUP_TIMEOUT: "raise server.ready_timeout if it only loads slowly",
    CRASH: "see artifacts/server.log",
    LAUNCH_FAILED: "check server.command and PATH on the host",
}

_MEMORY = (
    "out of memory",  # CUDA, HIP, cudaMalloc
    "OutOfMemory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "CUBLAS_STATUS_ALLOC_FAILED",
    r"\bMemoryError\b",
    "std::bad_alloc",
    "Cannot allocate memory",
    "failed to allocate .{0,60}buffer",
    "Not enough memory",
    "No available memory for the cache blocks",
    "larger than the maximum number of tokens that can be stored",
    "larger than the available KV cache memory",
    "Free memory on device .{0,80} is less than desired",
    "KV cache .{0,60}(?:does not fit|too small|insufficient)",
)
_FULL = ("No space left on device", "Disk quota exceeded")
_PORT = (
    "address (?:is )?already in use",
    "EADDRINUSE",
    r"\[Errno 98\]",
    r"\bport \d+ is (?:already in use|in use|taken|occupied|not available|unavailable)",
)
_FLAG = (
    "unrecogni[sz]ed (?:arguments?|options?)",
    r"(?:unknown|unexpected|invalid|no such) (?:argument|option|flag)s?\b",
    "invalid choice",
    r"\berror: argument ",
    "the following arguments are required",
    "expected (?:one|at least one) argument",
    "flag provided but not defined",
    r"\d+ validation errors? for \w+",
    "must be divisible by",
    "must be a multiple of",
    "max_num_batched_tokens .{0,60}(?:smaller|less|greater|must)",
)
_FETCH = (
    r"\b(?:401|403|404|429|5\d\d) (?:Client|Server) Error",
    r"HTTP Error (?:401|403|404|429|5\d\d)",
    "Gated ?Repo",
    "(?:Repository|Revision|Entry)NotFound",
    "HfHubHTTPError",
    "OfflineModeIsEnabled",
    "Name or service not known",
    "Temporary failure in name resolution",
    "Could not resolve host",
    "(?:couldn't|could not|cannot|failed to) (?:connect to|reach|download|fetch)",
    "MaxRetryError",
    "NewConnectionError",
    "ConnectTimeout",
    "IncompleteRead",
    "Connection reset by peer",
    "Network is unreachable",
    "SSLCertVerificationError",
)


def _any(words: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(words), re.IGNORECASE)


# kind, what its lines look like, whether they count only before the server was ready: later they speak of its clients
_ROWS = (
    (OUT_OF_MEMORY, _any(_MEMORY), False),
    (DISK_FULL, _any(_FULL), False),
    (PORT_TAKEN, _any(_PORT), True),
    (BAD_FLAG, _any(_FLAG), True),
    (DOWNLOAD, _any(_FETCH), True),
)
_ERROR = re.compile(
    r"\b[\w.]*(?:Error|Exception|Interrupt)\b(?::|$)|\bpanic(?:ked)?\b|Segmentation fault|Fatal|terminate called"
)
# (EngineCore_0 pid=4711) ERROR 11-09 12:00:01 [core.py:700]
_LABEL = re.compile(r"^(?:\([^)]*pid=\d+\)\s*)?(?:[A-Z]+ [\d-]+ [\d:,.]+ \[[^\]]*\]\s*)?")
_HOLLOW = re.compile(r"root cause|Engine core|EngineCore|EngineDead|during handling|direct cause", re.IGNORECASE)
_KILLED = re.compile(r"signal 9\b|SIGKILL|exit ?code:? -9|\bKilled\b")
_DETAILS = re.compile(r"validation errors? for")


class ServerFailure:
    """Why a server failed: a kind, and one line with the evidence and what to change."""

    __slots__ = ("evidence", "kind")

    def __init__(self, kind: str, evidence: str) -> None:
        self.kind = kind
        self.evidence = evidence


def server_failure(kind: str, line: str, how: str) -> ServerFailure:
    shown = line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"
    said = "%s (%s)" % (shown, how) if shown else how
    return ServerFailure(kind, "%s; %s" % (said, ADVICE[kind]))


def ended(status: int, lines: Sequence[str], *, ready: bool, oom: bool) -> ServerFailure:
    """Why a server ended by itself.

    Args:
        status: as `Popen.returncode` has it: negative for a signal.
        lines: its last lines of output.
        ready: whether it had been ready.
        oom: whether there was an out-of-memory kill meanwhile.
    """
    how = "server: %s %s" % (shown_status(status), "while it was used" if ready else "before it was ready")
    for kind, pattern, only_before in _ROWS:
        if ready and only_before:
            continue
        place = _last(lines, pattern)
        if place is not None:
            return server_failure(kind, _line(lines, place, pattern), how)
    if oom and (status in (-signal.SIGKILL, 128 + signal.SIGKILL) or _last(lines, _KILLED) is not None):
        return server_failure(OUT_OF_MEMORY, "killed by the kernel: out of memory", how)
    if status in USAGE_STATUS and not ready:
        return server_failure(BAD_FLAG, _speaking(lines), how)
    if status == 127 and not ready:
        return server_failure(LAUNCH_FAILED, _speaking(lines), how)
    more = ", and it must stay in the foreground" if status == 0 else ""
    return server_failure(CRASH, _speaking(lines), how + more)


def late(seconds: float, last_answer: str, lines: Sequence[str]) -> ServerFailure:
    """The failure of a server that was not ready in time."""
    how = "server: not ready within %g s; %s" % (seconds, last_answer)
    return server_failure(STARTUP_TIMEOUT, _speaking(lines), how)


def shown_status(status: int) -> str:
    if status >= 0:
        return "exit status %d" % status
    try:
        return "signal %d (%s)" % (-status, signal.Signals(-status).name)
    except ValueError:
        return "signal %d" % -status


def _last(lines: Sequence[str], pattern: re.Pattern[str]) -> int | None:
    for place in range(len(lines) - 1, -1, -1):
        if pattern.search(lines[place]):
            return place
    return None


def _line(lines: Sequence[str], place: int, pattern: re.Pattern[str]) -> str:
    """The line, without its start if it is long, and with the lines that follow if they hold the details."""
    line = _LABEL.sub("", lines[place].strip())
    found = pattern.search(line)
    if found and len(line) > LONGEST_LINE and found.start() > LONGEST_LINE // 2:
        line = line[found.start() - 40 :]
    if _DETAILS.search(line):
        line = " ".join([line, *(more.strip() for more in lines[place + 1 : place + 3])])
    return line


def _speaking(lines: Sequence[str]) -> str:
    """The most useful line about an end without a known cause: the last error with a cause, else the last line."""
    for place in range(len(lines) - 1, -1, -1):
        found = _ERROR.search(lines[place])
        if found and not _HOLLOW.search(lines[place], found.start()):
            return _line(lines, place, _ERROR)
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
