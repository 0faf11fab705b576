"""What the engine loses while `serve` and its readers run beside it.

One long run, in which server and readers are stopped and let go on by a signal, again and again: a window without them and one with
them lie seconds apart, and many such pairs are taken, so that a machine with other things to do is told from a loss. The engine has one
processor to itself, and server and readers have the others: readers are elsewhere in real life, and what is left to be lost is lost in the
store that both use. What is lost where all of them share the processors is measured too, and told.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from dashboard import MOST_MB, READERS, Server, reading, served
from measuring import EVALFLEET, await_runner_gone, environment
from processes import WORKERS, write_tasks
from table import Line

from evalfleet.store.open import open_store

TASKS = 60_000  # more than are played
PAIRS = 24
WINDOW_S = 1.0
SETTLE_S = 0.7  # after a switch: the server tells its readers what happened while it was stopped
START_S = 3.0  # the runner comes up, and the first of everything is behind us
MOST_LOSS = 0.05


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a run, with or without the dashboard beside it."""

    beside: bool
    since: float
    until: float
    server_cpu_s: float


def bench_beside(root: Path) -> list[Line]:
    tasks = write_tasks(root / "beside.jsonl", TASKS)
    ours, *others = sorted(os.sched_getaffinity(0))
    apart = _measured(root / "apart", tasks, {ours}, set(others) or {ours})
    shared = _measured(root / "shared", tasks, {ours, *others}, {ours, *others})
    return [
        *_told("on processors of their own", apart, judged=True),
        *_told("on the same processors", shared, judged=False),
    ]


@dataclass(frozen=True, slots=True)
class Found:
    """Tasks a second, window by window, and the server's part."""

    alone: list[float]
    beside: list[float]
    server_share: float
    server_mb: float


def _measured(home: Path, tasks: Path, engine: set[int], dashboard: set[int]) -> Found:
    home.mkdir()
    with _on(dashboard), served(home) as server, reading(server) as readers:
        with _on(engine), _running(home, tasks):
            time.sleep(START_S)
            windows = list(_windows(server, readers))
        peak_mb = server.peak_mb
    await_runner_gone(home)
    with closing(open_store(home)) as store:
        ended = sorted(
            one.ended_at for one in store.attempts.all(store.runs.newest()[0].id) if one.ended_at is not None
        )
    rates = [
        (bisect_left(ended, one.until) - bisect_left(ended, one.since)) / (one.until - one.since) for one in windows
    ]
    both = list(zip(windows, rates, strict=True))
    return Found(
        alone=[rate for window, rate in both if not window.beside],
        beside=[rate for window, rate in both if window.beside],
        server_share=statistics.median(one.server_cpu_s / (one.until - one.since) for one in windows if one.beside),
        server_mb=peak_mb,
    )


def _windows(server: Server, readers: subprocess.Popen[str]) -> Iterator[Window]:
    """Pairs of windows; which of the two comes first changes from pair to pair, so that a drift of the run evens out."""
    for pair in range(PAIRS):
        for beside in (False, True) if pair % 2 else (True, False):
            for process in (server.process, readers):
                process.send_signal(signal.SIGCONT if beside else signal.SIGSTOP)
            time.sleep(SETTLE_S)
            since, cpu_s = time.time(), server.cpu_s
            time.sleep(WINDOW_S)
            yield Window(beside, since, time.time(), server.cpu_s - cpu_s)
    for process in (server.process, readers):
        process.send_signal(signal.SIGCONT)


def _told(where: str, found: Found, *, judged: bool) -> list[Line]:
    changes = [beside / alone - 1 for alone, beside in zip(found.alone, found.beside, strict=True)]
    change = statistics.mean(changes)
    # How far the mean may be off by chance alone.
    chance = 1.96 * statistics.stdev(changes) / len(changes) ** 0.5
    target = (f">= -{MOST_LOSS:.0%}", change >= -MOST_LOSS) if judged else ("", None)
    lines = [
        Line(f"/bin/true, {WORKERS} workers, {where}", f"{statistics.median(found.alone):.0f} a second"),
        Line(f"  beside serve with {READERS} readers", f"{statistics.median(found.beside):.0f} a second"),
        Line(f"  throughput, {len(changes)} pairs", f"{change * 100:+.1f}%, ± {chance * 100:.1f} by chance", *target),
        Line("  CPU of the server", f"{found.server_share:.2f} of a core"),
    ]
    if judged:
        lines.append(
            Line("  its peak memory", f"{found.server_mb:.0f} MB", f"< {MOST_MB:.0f} MB", found.server_mb < MOST_MB)
        )
    return lines


@contextmanager
def _running(home: Path, tasks: Path) -> Iterator[None]:
    """A run that is interrupted at the end of the block."""
    words = [EVALFLEET, "run", str(tasks), "--workers", str(WORKERS), "--home", str(home)]
    with open(os.devnull, "wb") as null:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=null, stderr=null, env=environment())
    try:
        yield
        if process.poll() is not None:
            raise SystemExit("bench: the run ended before it was measured; the figures would mean nothing")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


@contextmanager
def _on(processors: set[int]) -> Iterator[None]:
    """What is started in the block runs there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
