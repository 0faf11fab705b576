"""Finds and ends what the local backend may have left on this machine: its runner, processes of attempts without a runner, and
runners whose spool was deleted.

Finding changes nothing. A process is killed by pid, start time and mark, verified again right before the kill, so that neither a
reused pid nor a process of another home is ever touched. None of it needs the home's database.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalfleet.hosts.local.launcher import RunnerInfo, is_held, runner_info
from evalfleet.hosts.protocol.link import PROTOCOL
from evalfleet.runner.attempt import process_tree
from evalfleet.runner.spool.spool import verify_private

ASK_S = 0.4  # a runner answers in milliseconds
END_S = 5.0
_PAUSE_S = 0.01
_HELD_S = 0.2  # a writer holds its lock for milliseconds
_MOST_ANSWER = 64 << 20
_ATTEMPT, _TASK = b"EVALFLEET_ATTEMPT", b"EVALFLEET_TASK"


class RunnerView(Struct, frozen=True, kw_only=True):
    """The state of a spool's runner, seen from outside."""

    info: RunnerInfo | None  # None: none runs, or one is just starting
    starting: bool = False  # one holds the spool and does not listen yet
    answers: bool = False
    attempts: dict[str, bool]  # attempt -> whether it is live; empty where it does not answer

    @property
    def live(self) -> frozenset[str]:
        return frozenset(name for name, live in self.attempts.items() if live)

    @property
    def lives(self) -> bool:
        return self.info is not None or self.starting


class StrayProcess(Struct, frozen=True, kw_only=True):
    """A process that should not be there. `start_time` distinguishes it from a later one with the same pid."""

    pid: int
    start_time: int
    attempt: str | None  # None: it belongs to none
    command: str


def runner_view(spool: Path) -> RunnerView:
    """Ask the spool's runner for its state."""
    info = runner_info(spool)
    if info is None:
        return RunnerView(info=None, starting=is_held(spool / "runner.lock"), attempts={})
    try:
        answer = _ask(info.socket, {"do": "hello", "protocol": info.protocol})
    except (OSError, ValueError):
        return RunnerView(info=info, attempts={})
    attempts = {one["attempt"]: one["state"] == "running" for one in answer.get("attempts", [])}
    return RunnerView(info=info, answers=True, attempts=attempts)


def speaks_ours(info: RunnerInfo) -> bool:
    """Whether the runner uses the protocol of this evalfleet."""
    return info.protocol == PROTOCOL


def end_idle_runner(spool: Path) -> RunnerInfo | None:
    """End the spool's runner if it has neither live attempts nor a controller; returns the runner that ended."""
    info = runner_info(spool)
    if info is None:
        return None
    try:
        if not _ask(info.socket, {"do": "shutdown", "if_idle": True}).get("ended"):
            return None
    except (OSError, ValueError):
        return None
    gone = _wait(lambda: not process_tree.is_same(info.pid, info.start_time, info.boot_id))
    return info if gone else None


def spooled(spool: Path) -> list[str]:
    """The attempts with a folder in the spool, live or waiting for collection."""
    try:
        return sorted(os.listdir(spool / "attempts"))
    except OSError:
        return []


def orphans(spool: Path) -> list[StrayProcess]:
    """Processes of this spool's attempts without a living runner.

    The processes are listed before the runner is asked. An attempt that it does not report as live has been left behind, or has
    just ended, which a second check shows. If the runner does not answer, no process counts as an orphan.
    """
    found = _marked(spool)
    if not found:
        return []
    view = runner_view(spool)
    if view.lives and not view.answers:
        return []
    live = view.live
    return [one for one in found if one.attempt not in live and _is_marked(one, spool)]


def lost_runners(spool: Path) -> list[StrayProcess]:
    """Runners of this spool that still run although the spool was deleted; they can no longer be reached."""
    lock = os.path.join(os.path.realpath(spool), "runner.lock") + " (deleted)"
    found = {stat.pid: stat for stat in process_tree.all_pids() if not stat.dead and _is_runner(stat.pid, lock)}
    # A forked child of such a runner looks the same, and ends with it.
    return [
        StrayProcess(pid=stat.pid, start_time=stat.start_time, attempt=None, command=_command(stat.pid))
        for stat in found.values()
        if stat.parent not in found
    ]


def end(stray: StrayProcess, spool: Path) -> bool:
    """Kill a stray process if it is still the same one, and wait for its end. Returns whether it was killed."""
    if not (_is_marked(stray, spool) if stray.attempt else _is_lost_runner(stray, spool)):
        return False
    try:
        os.kill(stray.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return _wait(lambda: not _is_same(stray))


def end_orphans(spool: Path) -> list[StrayProcess]:
    """Kill orphans until a scan of all processes finds none: one may have forked during the scan."""
    ended: list[StrayProcess] = []
    deadline = time.monotonic() + END_S
    while (found := orphans(spool)) and time.monotonic() < deadline:
        ended += [one for one in found if end(one, spool)]
    return ended


def lock_holder(path: Path) -> StrayProcess | None:
    """The process that holds a lock file for at least 0.2 s; None if there is none.

    Reads the kernel's list of locks instead of taking the lock, so that no other process has to wait.
    """
    first = _lock_pid(path)
    for _ in range(4):
        if first is None:
            return None
        time.sleep(_HELD_S / 4)
        first = first if _lock_pid(path) == first else None
    stat = None if first is None else process_tree.stat_of(first)
    return stat and StrayProcess(pid=stat.pid, start_time=stat.start_time, attempt=None, command=_command(stat.pid))


def socket_folder(runtime: str | None) -> tuple[Path, str | None]:
    """The folder of a runner's socket, and why it cannot be used, if so. `runtime` is XDG_RUNTIME_DIR. Creates nothing."""
    if runtime and Path(runtime).is_dir() and len(os.fsencode(runtime)) < 60:
        folder = Path(runtime) / "evalfleet"
    else:
        folder = Path(f"/tmp/evalfleet-{os.getuid()}")
    try:
        verify_private(str(folder))
    except FileNotFoundError:
        parent = folder.parent
        return folder, None if os.access(parent, os.W_OK | os.X_OK) else f"{parent} is not writable"
    except OSError as error:
        return folder, str(error)
    return folder, None if os.access(folder, os.W_OK | os.X_OK) else f"{folder} is not writable"


def _ask(path: str, message: dict[str, Any]) -> dict[str, Any]:
    """Send one command and return its answer. Raises OSError, ValueError."""
    deadline = time.monotonic() + ASK_S
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(ASK_S)
        peer.connect(path)
        peer.sendall(json.dumps({"id": 1, **message}).encode() + b"\n")
        data = b""
        while not data.endswith(b"\n"):
            peer.settimeout(max(0.001, deadline - time.monotonic()))
            piece = peer.recv(1 << 18)
            data += piece
            if not piece or len(data) > _MOST_ANSWER:
                raise ValueError("the runner's answer was incomplete")
    answer: Any = json.loads(data)
    if not isinstance(answer, dict) or not answer.get("ok"):  # pyright: ignore[reportUnknownMemberType]
        raise ValueError("the runner refused")
    return answer  # pyright: ignore[reportUnknownVariableType]


def _marked(spool: Path) -> list[StrayProcess]:
    prefix = os.fsencode(os.path.realpath(spool) + "/attempts/")
    found: list[StrayProcess] = []
    for stat in process_tree.all_pids():
        environment = {} if stat.dead else process_tree.environment(stat.pid)
        attempt = environment.get(_ATTEMPT)
        if attempt and environment.get(_TASK, b"").startswith(prefix) and _shares_files(stat.pid, spool):
            name = attempt.decode(errors="replace")
            found.append(
                StrayProcess(pid=stat.pid, start_time=stat.start_time, attempt=name, command=_command(stat.pid))
            )
    return found


def _shares_files(pid: int, spool: Path) -> bool:
    """Whether the spool's path leads that process to the same folder: in a container it may be another home's."""
    if _link(f"/proc/{pid}/ns/mnt") == _link("/proc/self/ns/mnt"):
        return True
    try:
        return os.path.samefile(f"/proc/{pid}/root{os.path.realpath(spool)}", spool)
    except OSError:
        return False


def _is_same(stray: StrayProcess) -> bool:
    return process_tree.is_same(stray.pid, stray.start_time, process_tree.boot_id())


def _is_marked(stray: StrayProcess, spool: Path) -> bool:
    folder = f"{os.path.realpath(spool)}/attempts/{stray.attempt}"
    return _is_same(stray) and process_tree.marks(stray.pid, stray.attempt or "", folder)


def _is_lost_runner(stray: StrayProcess, spool: Path) -> bool:
    lock = os.path.join(os.path.realpath(spool), "runner.lock") + " (deleted)"
    return _is_same(stray) and _is_runner(stray.pid, lock)


def _is_runner(pid: int, lock: str) -> bool:
    """Whether the process runs the runner's program and has that lock open. Cheap for all other processes."""
    words = process_tree.read(f"/proc/{pid}/cmdline", 1 << 16).split(b"\0")
    if b"serve" not in words or b"--spool" not in words or _link(f"/proc/{pid}/ns/mnt") != _link("/proc/self/ns/mnt"):
        return False
    return _has_open(pid, lock)


def _lock_pid(path: Path) -> int | None:
    try:
        inode, shown = os.stat(path).st_ino, os.path.realpath(path)
    except OSError:
        return None
    for line in process_tree.read("/proc/locks").decode(errors="replace").splitlines():
        words = line.split()
        # "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF"; one who waits has an arrow before FLOCK
        if len(words) > 5 and words[1] == "FLOCK" and words[5].endswith(f":{inode}") and words[4].isdigit():
            pid = int(words[4])
            if _has_open(pid, shown):
                return pid
    return None


def _has_open(pid: int, path: str) -> bool:
    try:
        return any(_link(f"/proc/{pid}/fd/{name}") == path for name in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return False


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _command(pid: int) -> str:
    words = process_tree.read(f"/proc/{pid}/cmdline", 4096).rstrip(b"\0").split(b"\0")
    return b" ".join(words).decode(errors="replace")


def _wait(done: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + END_S
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True
