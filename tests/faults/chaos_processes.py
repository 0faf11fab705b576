"""Finding and killing the processes of one home, by /proc. A process is killed through a descriptor, never by a number alone."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _start_time(pid: int) -> int | None:
    data = _read(f"/proc/{pid}/stat")
    fields = data[data.rfind(b")") + 2 :].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] not in b"ZX" else None


def variable(pid: int, name: str) -> str | None:
    """The value of a variable in the environment that a process was started with."""
    for item in _read(f"/proc/{pid}/environ").split(b"\0"):
        found, _, value = item.partition(b"=")
        if found == name.encode():
            return os.fsdecode(value)
    return None


def attempts_of(home: Path) -> list[tuple[int, str]]:
    """Every process, of whatever generation, that an attempt of this home started."""
    begin = f"{home}/"
    found: list[tuple[int, str]] = []
    for pid in _pids():
        task = variable(pid, "EVALFLEET_TASK")
        if task is not None and task.startswith(begin) and _start_time(pid) is not None:
            found.append((pid, variable(pid, "EVALFLEET_ATTEMPT") or "?"))
    return found


def runners_of(home: Path) -> list[int]:
    """Every process that serves this home's spool or is about to."""
    spool = os.fsencode(home / "spool")
    found: list[int] = []
    for pid in _pids():
        words = _read(f"/proc/{pid}/cmdline").split(b"\0")
        if b"serve" in words and spool in words and _start_time(pid) is not None:
            found.append(pid)
    return found


def left_of(home: Path) -> list[str]:
    found = [f"process {pid} of attempt {attempt}" for pid, attempt in attempts_of(home)]
    return found + [f"runner {pid}" for pid in runners_of(home)]


def kill(pid: int, is_meant: object) -> bool:
    """SIGKILL, if `is_meant()` says after the process was pinned that it is the right one. Returns when it is dead."""
    assert callable(is_meant)
    try:
        pinned = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_meant():
            return False
        signal.pidfd_send_signal(pinned, signal.SIGKILL)
        select.select([pinned], [], [], 10.0)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(pinned)


def kill_runner(home: Path) -> bool:
    """Kill the runner that `runner.json` names."""
    try:
        line = json.loads((home / "spool" / "runner.json").read_bytes())
        pid, start_time = int(line["pid"]), int(line["start_time"])
    except (OSError, ValueError, KeyError):
        return False
    return kill(pid, lambda: _start_time(pid) == start_time)


def kill_starting_runner(home: Path, deadline: float) -> bool:
    """Kill whichever process of a runner is seen first: also one that has not begun to listen."""
    while time.monotonic() < deadline:
        for pid in runners_of(home):
            if kill(pid, lambda pid=pid: pid in runners_of(home)):
                return True
        time.sleep(0.002)
    return False


def kill_task(attempt: str, pid: int) -> bool:
    """Kill the first process of an attempt."""
    return kill(pid, lambda: variable(pid, "EVALFLEET_ATTEMPT") == attempt)


def end_all(home: Path) -> None:
    """Clean up after a round that broke."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found = runners_of(home) + [pid for pid, _ in attempts_of(home)]
        if not found:
            return
        for pid in found:
            mine = {*runners_of(home), *(one for one, _ in attempts_of(home))}
            kill(pid, lambda pid=pid, mine=mine: pid in mine)


@dataclass(slots=True)
class SpoolLook:
    """The attempts in a spool at one moment, by their journals."""

    live: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)  # ended with exit status 0: a result that may not be lost


def look_at_spool(home: Path, since: float, until: float) -> SpoolLook:
    """Who was live and who was done when a process was killed, between these two moments."""
    look = SpoolLook()
    for name, lines in _journals(home):
        if not lines or lines[0]["at"] > until:
            continue
        last = lines[-1]
        if last["type"] != "ended":
            look.live.add(name)
        elif last["cause"] == "runner_lost":
            if last["at"] >= since:  # a new runner was quicker than this look
                look.live.add(name)
        elif last["cause"] == "exited" and last["exit_code"] == 0:
            look.done.add(name)
    return look


def _journals(home: Path) -> Iterator[tuple[str, list[dict]]]:
    try:
        names = os.listdir(home / "spool" / "attempts")
    except FileNotFoundError:
        return
    for name in names:
        data = _read(str(home / "spool" / "attempts" / name / "journal.jsonl"))
        yield name, [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
