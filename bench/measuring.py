"""Wall time, CPU time and memory of one command, and of the runner that it starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # for what measurements share with the tests

EVALFLEET = str(Path(sys.executable).parent / "evalfleet")
SAMPLE_S = 0.02
TICKS = os.sysconf("SC_CLK_TCK")
_KEPT = ("HOME", "PATH", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "PYTHONPATH")


@dataclass(slots=True)
class Measured:
    """One command. `rss_mb` is its peak; the runner's figures are the last that were seen before it went."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    rss_mb: float = 0.0
    code: int = 0
    runner_cpu_s: float = 0.0
    runner_rss_mb: float = 0.0


def environment() -> dict[str, str]:
    # Byte code is wanted: PYTHONDONTWRITEBYTECODE of the caller would make every start compile everything.
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | {"EVALFLEET_RUNNER_IDLE": "2s"}


def measure(
    words: list[str],
    *,
    home: Path | None = None,
    stop_after_s: float | None = None,
    stdin: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Measured:
    """Run a command with its output thrown away.

    Args:
        home: its runner is measured as well.
        stop_after_s: it gets SIGTERM after this time.
        env: variables besides the usual ones.
    """
    done = Measured()
    with open(stdin or os.devnull, "rb") as given, open(os.devnull, "wb") as null:
        begun = time.perf_counter()
        process = subprocess.Popen(words, stdin=given, stdout=null, stderr=null, env=environment() | dict(env or {}))
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG if home or stop_after_s else 0)
        if pid:
            break
        if home:
            _sample(home, done)
            done.rss_mb = max(done.rss_mb, peak_mb(process.pid))
        if stop_after_s and time.perf_counter() - begun > stop_after_s:
            process.send_signal(signal.SIGTERM)
            stop_after_s = None
        time.sleep(SAMPLE_S)
    done.wall_s = time.perf_counter() - begun
    done.cpu_s = usage.ru_utime + usage.ru_stime
    done.rss_mb = max(done.rss_mb, usage.ru_maxrss / 1024)
    done.code = process.returncode = os.waitstatus_to_exitcode(status)
    return done


def fleet(home: Path, *words: str, stop_after_s: float | None = None, with_runner: bool = False) -> Measured:
    """One `evalfleet` command."""
    command = [EVALFLEET, *words, "--home", str(home)]
    return measure(command, home=home if with_runner else None, stop_after_s=stop_after_s)


def _sample(home: Path, done: Measured) -> None:
    try:
        pid = json.loads((home / "spool" / "runner.json").read_bytes())["pid"]
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (OSError, ValueError):
        return
    fields = stat[stat.rfind(b")") + 2 :].split()
    done.runner_cpu_s = max(done.runner_cpu_s, (int(fields[11]) + int(fields[12])) / TICKS)
    done.runner_rss_mb = max(done.runner_rss_mb, peak_mb(pid))


def peak_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def await_runner_gone(home: Path, limit_s: float = 15.0) -> None:
    """Let the runner of a home end, so that it does not disturb what is measured next."""
    deadline = time.monotonic() + limit_s
    while (home / "spool" / "runner.json").exists() and time.monotonic() < deadline:
        time.sleep(SAMPLE_S)
