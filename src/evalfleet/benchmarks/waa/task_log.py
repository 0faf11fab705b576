"""What WAA's logs say of failures that its code swallows. Pure.

WAA writes an error line and goes on where Windows does not answer, so the agent acts blindly or is judged without its files. Such a
task ends with a score of 0 that is not the agent's.
"""

from __future__ import annotations

import re

from msgspec import Struct

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINE = re.compile(r"^\[[^\]]* (DEBUG|INFO|WARNING|ERROR|CRITICAL) ([\w.]+)/\d+-[^\]]*\] (.*)$")
_SET_UP = "Environment setup complete"
_NO_LINK = (
    r"(?:Connection aborted|Connection refused|Connection reset|RemoteDisconnected|Max retries exceeded|Connection broken"
    r"|No route to host|timed out)"
)
# What says that Windows failed, wherever it stands.
_FAILED = re.compile(
    r"Observation is None|Failed to get screenshot|Request timed out while trying to get accessibility tree"
    r"|Failed to (?!execute)[\w ]+\. Status code: 5\d\d"  # that of `execute` is what the agent's own code raised
    rf"|An (?:unexpected error occurred|error occurred while trying to send the request): .*{_NO_LINK}"
)
# An agent's own code may take longer than WAA waits for it; only a connection that breaks is not its fault.
_EXECUTE = re.compile(rf"An error occurred while trying to execute the command: (?!.*timed out).*{_NO_LINK}")
# Before the agent's first look at the screen everything that fails is the environment's.
_NOT_SET_UP = re.compile(r"Failed to (?:upload|open) file")
_NO_CAUSE = ("Not implemented!", "Exception in ", "Traceback ", "Observation is None")


class Line(Struct, frozen=True, kw_only=True):
    """One entry of a log, which may have several lines."""

    level: str
    message: str


def read_log(text: str) -> list[Line]:
    """Read a log; its colours are left out."""
    found: list[Line] = []
    for row in _COLOUR.sub("", text).splitlines():
        match = _LINE.match(row)
        if match is not None:
            found.append(Line(level=match[1], message=match[3]))
        elif found:
            found[-1] = Line(level=found[-1].level, message=f"{found[-1].message}\n{row}")
    return found


def guest_failure(text: str) -> str | None:
    """The first line of a task's log that says that Windows failed; None where there is none."""
    ready = False
    for line in read_log(text):
        ready = ready or line.message.startswith(_SET_UP)
        if line.level != "ERROR":
            continue
        said = line.message
        if _FAILED.search(said) or _EXECUTE.search(said) or (not ready and _NOT_SET_UP.search(said)):
            return said.splitlines()[0]
    return None


def last_error(text: str) -> str | None:
    """The last error that WAA's own code told of: the cause of an exception that says little itself."""
    errors = [line.message for line in read_log(text) if line.level == "ERROR"]
    said = [message.splitlines()[0] for message in errors if message and not message.startswith(_NO_CAUSE)]
    return said[-1] if said else None


def plain(text: str) -> str:
    """Without colours."""
    return _COLOUR.sub("", text)
