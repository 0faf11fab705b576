"""Operations on the runner of a spool from outside: inspect it, ask it to end, kill it, remove its spool.

No function starts a runner or changes a spool that is in use. Each returns the line of JSON that is printed.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import time

from .. import safe_files
from ..attempt import process_tree
from ..clock import steady
from ..daemon import running
from ..host.inventory import inventory
from ..jsontext import as_object
from ..spool.spool import Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

ANSWER_S = 10.0  # a runner answers in milliseconds
END_S = 10.0
PAUSE_S = 0.02
LARGEST = 1 << 20
PROGRAM = re.compile(r"runner-[0-9a-f]{12}\.pyz(\.[0-9]+\.partial)?|\.runner-[0-9a-f]{12}\.[0-9]+\.new")
OURS = re.compile(
    PROGRAM.pattern
    + r"|runner\.(lock|log|log\.1|json\.shut)|reapable|(runner|clock|epochs|homes)\.json(\.[0-9]+\.new)?"
)
STORED = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{64}\.[0-9]+")


def look(folder: str) -> dict[str, Any]:
    """``held``: a runner has the spool; ``answers``: it answers a ping; ``runner``: where it is; ``host``: its resources;
    ``reapable_for_s``: for how long this host has not been needed, if so."""
    spool = Spool(folder)
    held = is_held(spool)
    line = running(spool) if held else None
    answers = line is not None and _ask(line, {"do": "ping"}) is not None
    reapable_for_s = None if held else _reapable_for_s(spool)
    return {
        "held": held, "runner": line, "answers": answers, "host": inventory(folder), "reapable_for_s": reapable_for_s,
    }  # fmt: skip


def retire(folder: str) -> dict[str, Any]:
    """End the runner if it has neither live attempts nor another connection. ``ended`` says whether it did."""
    spool = Spool(folder)
    line = running(spool) if is_held(spool) else None
    answer = _ask(line, {"do": "shutdown", "if_idle": True}) if line is not None else None
    ended = answer is not None and answer.get("ended") is True
    return {"ended": ended and _wait_free(spool)}


def kill(folder: str) -> dict[str, Any]:
    """Kill the runner. The next runner ends its tasks and reports them as lost."""
    spool = Spool(folder)
    line = running(spool) if is_held(spool) else None
    if line is None:
        return {"ended": False}
    process_tree.kill(line["pid"], signal.SIGKILL)
    return {"ended": _wait_free(spool)}


def remove(folder: str, homes: Collection[str]) -> dict[str, Any]:
    """End the runner if it is idle, and remove what runners created in the folder, unless it may still be needed. The folder may also hold
    other files: these are not touched, and the folder is removed only if it is empty.

    Args:
        homes: the ids of the caller's home. Runs of other homes have their fences here, which protect them from old controllers.

    Returns:
        ``removed`` says whether the folder is gone, else ``why`` not.
    """
    spool = Spool(folder)
    if is_held(spool) and not retire(folder)["ended"]:
        return {"removed": False, "why": "a runner is at work there"}
    try:
        lock = os.open(spool.path("runner.lock"), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # no runner ever was here: only its program may have come, with us
        return _remove_ours(spool, PROGRAM)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until we end: no runner begins in what we remove
    except OSError:
        return {"removed": False, "why": "a runner is at work there"}
    left = os.listdir(spool.attempts) if os.path.isdir(spool.attempts) else []
    if left:
        return {"removed": False, "why": "%d attempts there have not been collected" % len(left)}
    if not _is_for(spool, homes):
        return {"removed": False, "why": "another home has runs there"}
    safe_files.remove(spool.path("trash"))
    for name in os.listdir(spool.files) if os.path.isdir(spool.files) else []:
        if STORED.fullmatch(name):
            os.unlink(os.path.join(spool.files, name))
    for path in (spool.attempts, spool.files):
        _try_rmdir(path)
    return _remove_ours(spool, OURS)


def _is_for(spool: Spool, homes: Collection[str]) -> bool:
    """Whether all runs with a recorded home belong to these homes."""
    try:
        with open(spool.path("homes.json"), "rb") as file:
            return all(home in homes for home in json.load(file).values())
    except FileNotFoundError:
        return True
    except (ValueError, AttributeError):
        return False


def _remove_ours(spool: Spool, ours: re.Pattern[str]) -> dict[str, Any]:
    for name in sorted(
        os.listdir(spool.folder), key=lambda each: each == "runner.lock"
    ):  # the sign of a spool goes last
        if ours.fullmatch(name) and not os.path.isdir(spool.path(name)):
            os.unlink(spool.path(name))
    if _try_rmdir(spool.folder):
        return {"removed": True}
    rest = sorted(os.listdir(spool.folder))
    shown = ", ".join(rest[:3]) + (", ..." if len(rest) > 3 else "")
    return {
        "removed": False,
        "why": "%s also holds other files (%s); only those of the runner were removed" % (spool.folder, shown),
    }


def _try_rmdir(path: str) -> bool:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


def _reapable_for_s(spool: Spool) -> float | None:
    """How long ago the last runner ended because it was idle; None if it died, or there was none."""
    try:
        with open(spool.path("reapable"), encoding="utf-8") as file:
            since = float(file.read())
    except (OSError, ValueError):
        return None
    return max(0.0, steady(spool, time.time, keeps=False)() - since)


def is_held(spool: Spool) -> bool:
    try:
        fd = os.open(spool.path("runner.lock"), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who look do not see each other
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _ask(line: dict[str, Any], message: dict[str, Any]) -> dict[str, Any] | None:
    """The runner's answer; None if it does not answer in time."""
    deadline = time.monotonic() + ANSWER_S
    data = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(ANSWER_S)
            peer.connect(line["socket"])
            peer.sendall(json.dumps(dict(message, id=1)).encode() + b"\n")
            while not data.endswith(b"\n") and len(data) < LARGEST and time.monotonic() < deadline:
                piece = peer.recv(1 << 16)
                if not piece:
                    return None
                data += piece
        return as_object(json.loads(data))
    except (OSError, ValueError):
        return None


def _wait_free(spool: Spool) -> bool:
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        if not is_held(spool):
            return True
        time.sleep(PAUSE_S)
    return False
