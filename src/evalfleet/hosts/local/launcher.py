"""Starts the runner of this machine, or finds the one that runs."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from msgspec import Struct

from evalfleet import config
from evalfleet.errors import RunnerUnavailable
from evalfleet.runner.attempt.process_tree import stat_of
from evalfleet.runner.build import build

START_S = 70.0  # a new runner first ends what its dead predecessor left
KEPT = frozenset(
    {
        *("HOME", "LANG", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER", "XDG_RUNTIME_DIR"),
        *("EVALFLEET_GPU_LOCKS", "EVALFLEET_SLOT_LOCKS"),
    }
)


class RunnerInfo(Struct, frozen=True, kw_only=True):
    """Process and socket of a running runner."""

    pid: int
    start_time: int
    boot_id: str
    socket: str
    version: str
    protocol: int


def runner_info(spool: Path) -> RunnerInfo | None:
    """The runner that holds the spool; None if there is none, or if it does not listen (yet, or any longer)."""
    if not is_held(spool / "runner.lock"):
        return None
    try:
        info = _info(json.loads((spool / "runner.json").read_bytes()))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    # The lock may be held while the file names a dead one: by its successor that is just starting, or by the last thread of
    # a killed one, which is still leaving.
    found = stat_of(info.pid)
    return info if found is not None and not found.dead and found.start_time == info.start_time else None


def write_runner(spool: Path) -> tuple[Path, str]:
    """Write the zipapp into the spool if it is missing; returns its path and version. Atomic: other processes may start it meanwhile."""
    data, version = build()
    path = spool / f"runner-{version}.pyz"
    if not path.exists():
        spool.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = spool / f".runner-{version}.{os.getpid()}.new"
        fresh.write_bytes(data)
        fresh.replace(path)
    return path, version


async def start_runner(
    spool: Path, python: str, idle_s: float, *, environment: dict[str, str] | None = None, timeout_s: float = START_S
) -> RunnerInfo:
    """Start the spool's runner unless one runs, and return where it is.

    Args:
        python: interpreter for the runner, a name or a path.
        environment: variables of the runner; None for a few basic variables of this process.

    Raises:
        RunnerUnavailable: it could not be started; the message says why.
    """
    running = _reachable(spool)
    if running is not None:
        return running
    try:
        program, _ = await anyio.to_thread.run_sync(write_runner, spool)
    except OSError as error:
        raise RunnerUnavailable(f"cannot write the runner to {spool}: {error.strerror}") from error
    command = [python, "-I", "-S", str(program), "serve", "--spool", str(spool), "--idle", f"{idle_s:g}"]
    env = plain_environment() if environment is None else environment
    try:
        with anyio.fail_after(timeout_s):
            done = await anyio.run_process(command, env=env, check=False)
    except TimeoutError as error:
        raise RunnerUnavailable(
            f"the runner did not start within {timeout_s:g} s; see {spool / 'runner.log'}"
        ) from error
    except OSError as error:
        raise RunnerUnavailable(f"cannot run the runner's Python {python}: {error.strerror}") from error
    return _runner_answer(python, done.returncode, done.stdout, done.stderr)


def _reachable(spool: Path) -> RunnerInfo | None:
    """The running runner; None if its socket file was deleted, because `serve` then makes it listen again."""
    running = runner_info(spool)
    return running if running is not None and Path(running.socket).exists() else None


def _runner_answer(python: str, status: int, stdout: bytes, stderr: bytes) -> RunnerInfo:
    try:
        line: dict[str, Any] = json.loads(stdout)
        if "error" in line:
            raise RunnerUnavailable(f"the runner could not start with {python}: {line.get('message')}")
        return _info(line)
    except (ValueError, KeyError, TypeError) as error:
        last = (stderr.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
        raise RunnerUnavailable(f"the runner could not start with {python}: exit status {status}: {last}") from error


def _info(line: dict[str, Any]) -> RunnerInfo:
    names = ("pid", "start_time", "boot_id", "socket", "version", "protocol")
    return RunnerInfo(**{name: line[name] for name in names})


def is_held(lock: Path) -> bool:
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # shared, so that two who look at the same moment do not see each other
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def plain_environment() -> dict[str, str]:
    return {name: value for name, value in config.environment().items() if name in KEPT}
