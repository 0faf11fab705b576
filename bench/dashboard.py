"""What the dashboard costs: how late its readers hear, what it takes from the engine, and how soon the page shows a large run.

`serve` is a process of its own, its readers are another, and the controller that is measured a third. Where what the engine loses is
measured, it has one processor to itself, and server and readers have the others: readers are elsewhere in real life, and what is left to be
lost is lost in the store that both use.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from measuring import EVALFLEET, TICKS, Measured, await_runner_gone, environment, fleet
from page_opening import bench_page
from processes import WORKERS, write_tasks
from table import Line, expect

from evalfleet.store.sqlite import open_store

READERS = 200
EVENTS = 200  # a second
BATCHES = 20  # a second, as controllers write them
SECONDS = 6
DELAY_MS = 300.0
TASKS = 400
LEAST_ROUNDS, ROUNDS = 5, 12
ENGINE_S = 40.0
REST_S = 5.0
MOST_LOSS = 0.05
MOST_MB = 150.0
READING = Path(__file__).with_name("sse_readers.py")


@dataclass(frozen=True, slots=True)
class Server:
    process: subprocess.Popen[str]
    port: int
    token: str

    @property
    def cpu_s(self) -> float:
        stat = Path(f"/proc/{self.process.pid}/stat").read_bytes()
        fields = stat[stat.rfind(b")") + 2 :].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def peak_mb(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


@contextmanager
def served(home: Path) -> Iterator[Server]:
    """A server that drives nothing."""
    command = [EVALFLEET, "serve", "--no-drive", "--port", "0", "--json", "--home", str(home)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment())
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        yield Server(process, urlsplit(told["url"]).port or 0, told["address"].partition("token=")[2])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


@contextmanager
def reading(server: Server, *more: int) -> Iterator[subprocess.Popen[str]]:
    """So many readers that all listen."""
    words = [sys.executable, str(READING), str(server.port), server.token, str(READERS), *map(str, more)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment())
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise SystemExit(
                "bench: the readers of the dashboard did not come to listen; the figures would mean nothing"
            )
        yield process
        if not more and process.poll() is not None:
            raise SystemExit("bench: readers were disconnected; the figures would mean nothing")
    finally:
        process.kill()
        process.wait()


def bench_web(root: Path) -> list[Line]:
    return [*_feed(root / "web-feed"), *_engine(root), *bench_page(root / "web-page", served)]


def _feed(home: Path) -> list[Line]:
    """Events that are committed at a steady pace, and when readers have them."""
    with closing(open_store(home)) as store, served(home) as server:
        after, count = store.last_number(), EVENTS * SECONDS
        with reading(server, after, count) as readers:
            begun, cpu_s = time.monotonic(), server.cpu_s
            for batch in range(SECONDS * BATCHES):
                with store.batch():
                    for number in range(EVENTS // BATCHES):
                        line = {"step": number, "note": "clicked"}
                        store.note("r1", "attempt.progressed", {"step": batch, "lines": [line]})
                time.sleep(max(0.0, begun + (batch + 1) / BATCHES - time.monotonic()))
            assert readers.stdout is not None
            delays = sorted(json.loads(readers.stdout.readline()))
            share = (server.cpu_s - cpu_s) / (time.monotonic() - begun)
        p95 = delays[int(len(delays) * 0.95)]
        name = f"{READERS} readers, {EVENTS} events a second"
        return [
            Line(
                f"serve, {name}: event to reader",
                f"{statistics.median(delays):.0f} ms median, {p95:.0f} p95",
                f"< {DELAY_MS:.0f} ms",
                p95 < DELAY_MS,
            ),
            Line("  CPU of the server", f"{share:.2f} of a core"),
            Line("  peak memory", f"{server.peak_mb:.0f} MB", f"< {MOST_MB:.0f} MB", server.peak_mb < MOST_MB),
        ]


@dataclass(frozen=True, slots=True)
class Drive:
    """One run: tasks a second from its first claim to its last end, and what it cost."""

    rate: float
    measured: Measured


def _engine(root: Path) -> list[Line]:
    """The same run with and without a server and its readers, in turn.

    Both are there all the time, and stopped by a signal while the run is alone: so each pair lies close together, on a machine
    that may have other things to do.
    """
    home, tasks = root / "web-engine", write_tasks(root / "web-tasks.jsonl", TASKS)
    ours, *others = sorted(os.sched_getaffinity(0))
    with _on({ours}):
        _drive(home, tasks)  # the runner is there, byte code is written
    alone: list[Drive] = []
    watched: list[Drive] = []
    shares: list[float] = []
    begun = time.monotonic()
    with _on(set(others) or {ours}), served(home) as server, reading(server) as readers, _on({ours}):
        while len(alone) < LEAST_ROUNDS or (len(alone) < ROUNDS and time.monotonic() - begun < ENGINE_S):
            with _stopped(server.process, readers):
                alone.append(_drive(home, tasks))
            _await_rest(server)
            before, since = server.cpu_s, time.monotonic()
            watched.append(_drive(home, tasks))
            shares.append((server.cpu_s - before) / (time.monotonic() - since))
        peak_mb = server.peak_mb
    await_runner_gone(home)
    return _judged(alone, watched, shares, peak_mb)


def _judged(alone: list[Drive], watched: list[Drive], shares: list[float], peak_mb: float) -> list[Line]:
    changes = [with_it.rate / without.rate - 1 for with_it, without in zip(watched, alone, strict=True)]
    change = statistics.median(changes)
    # How far the median may be off by chance alone.
    chance = 1.25 * 1.96 * statistics.stdev(changes) / len(changes) ** 0.5
    rates = [statistics.median(one.rate for one in found) for found in (alone, watched)]
    cpus = [statistics.median(one.measured.cpu_s for one in found) for found in (alone, watched)]
    return [
        Line(f"evalfleet: {TASKS} /bin/true, {WORKERS} workers", f"{rates[0]:.0f} a second"),
        Line(f"  beside serve with {READERS} readers", f"{rates[1]:.0f} a second"),
        Line(
            f"  throughput, {len(changes)} pairs",
            f"{change * 100:+.1f}% median, ± {chance * 100:.0f} by chance",
            f">= -{MOST_LOSS:.0%}",
            change >= -MOST_LOSS,
        ),
        Line("  CPU of the controller", f"{cpus[0]:.2f} s alone, {cpus[1]:.2f} s beside"),
        Line("  CPU of the server", f"{statistics.median(shares):.2f} of a core"),
        Line("  peak memory of the server", f"{peak_mb:.0f} MB", f"< {MOST_MB:.0f} MB", peak_mb < MOST_MB),
    ]


def _drive(home: Path, tasks: Path) -> Drive:
    done = fleet(home, "run", str(tasks), "--workers", str(WORKERS))
    expect(done, 0)
    with closing(open_store(home)) as store:
        attempts = store.attempts(store.runs()[0].id)
    took_s = max(one.ended_at or 0.0 for one in attempts) - min(one.claimed_at for one in attempts)
    return Drive(len(attempts) / took_s, done)


@contextmanager
def _on(processors: set[int]) -> Iterator[None]:
    """What is started in the block runs there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _stopped(*processes: subprocess.Popen[str]) -> Iterator[None]:
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


def _await_rest(server: Server) -> None:
    """Let the server tell its readers what happened meanwhile: they would be busy with it during the next run."""
    deadline = time.monotonic() + REST_S
    before = -1.0
    while server.cpu_s - before > 0.02 and time.monotonic() < deadline:
        before = server.cpu_s
        time.sleep(0.3)
