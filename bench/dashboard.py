"""How late the readers of the dashboard hear of an event, and how to have a server and readers at all.

`serve` is a process of its own, its readers are another, and whoever writes the events is a third.
"""

from __future__ import annotations

import json
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

from measuring import EVALFLEET, TICKS, environment
from table import Line

from evalfleet.store.open import open_store

READERS = 200
EVENTS = 200  # a second
BATCHES = 20  # a second, as controllers write them
SECONDS = 6
DELAY_MS = 300.0
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


def bench_feed(home: Path) -> list[Line]:
    """Events that are committed at a steady pace, and when readers have them."""
    with closing(open_store(home)) as store, served(home) as server:
        after, count = store.events.last_number(), EVENTS * SECONDS
        with reading(server, after, count) as readers:
            begun, cpu_s = time.monotonic(), server.cpu_s
            for batch in range(SECONDS * BATCHES):
                with store.batch():
                    for number in range(EVENTS // BATCHES):
                        line = {"step": number, "note": "clicked"}
                        store.events.note("r1", "attempt.progressed", {"step": batch, "lines": [line]})
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
