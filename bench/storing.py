"""What a store on a PostgreSQL server costs, and what several controllers of it gain. The server waits for the disk, as SQLite does."""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from measuring import EVALFLEET, TICKS, Measured, await_runner_gone, fleet, measure
from processes import write_tasks
from table import Line, expect
from tests.support.postgres import Server, running

TASKS = 1_000
WORKERS = 8
CONTROLLERS = 4
MOST_RATIO, LEAST_GAIN = 2.0, 1.3


@dataclass(frozen=True, slots=True)
class Together:
    """Several controllers at the same time."""

    wall_s: float
    cpu_s: float  # of the controllers
    server_cpu_s: float


def bench_store(root: Path, rounds: int) -> list[Line]:
    tasks = write_tasks(root / "store.jsonl", TASKS)
    file: list[float] = []
    server: list[float] = []
    one: list[Together] = []
    four: list[Together] = []
    with running(durable=True) as postgres:
        for number in range(rounds):
            home = root / f"store-file-{number}"
            done = fleet(home, "run", str(tasks), "--workers", str(WORKERS))
            expect(done, 0)
            file.append(done.wall_s)
            await_runner_gone(home)
            one.append(_together(root / f"store-one-{number}", postgres, 1))
            server.append(one[-1].wall_s)
            four.append(_together(root / f"store-four-{number}", postgres, CONTROLLERS))
    ratio = min(server) / min(file)
    gain = min(each.wall_s for each in one) / min(each.wall_s for each in four)
    best = min(four, key=lambda each: each.wall_s)
    alone = min(one, key=lambda each: each.wall_s)
    name = f"{TASKS:,} /bin/true"
    return [
        Line(f"{name}, SQLite", f"{min(file):.2f} s best, {statistics.median(file):.2f} s median"),
        Line(f"{name}, PostgreSQL", f"{min(server):.2f} s best, {statistics.median(server):.2f} s median"),
        Line("  ratio", f"{ratio:.2f}x", f"<= {MOST_RATIO:.0f}x", ratio <= MOST_RATIO),
        Line(f"{name}, {CONTROLLERS} controllers", f"{best.wall_s:.2f} s best"),
        Line("  faster than one controller", f"{gain:.2f}x", f">= {LEAST_GAIN}x", gain >= LEAST_GAIN),
        Line("  CPU of one: controller; server", f"{alone.cpu_s:.1f}; {alone.server_cpu_s:.1f} s"),
        Line(f"  CPU of {CONTROLLERS}: controllers; server", f"{best.cpu_s:.1f}; {best.server_cpu_s:.1f} s"),
    ]


def _together(folder: Path, postgres: Server, controllers: int) -> Together:
    """The tasks, shared out to controllers that each drive a run of their own in a folder of their own."""
    folder.mkdir()
    tasks = write_tasks(folder / "tasks.jsonl", TASKS // controllers)
    workers = str(max(2, WORKERS // controllers))
    homes = [folder / f"home-{number}" for number in range(controllers)]
    with postgres.schema() as schema:
        env = {"EVALFLEET_STORE_URL": postgres.url(schema)}
        done: list[Measured] = []

        def evalfleet(home: Path, *words: str) -> Measured:
            made = measure([EVALFLEET, *words, "--home", str(home)], env=env)
            expect(made, 0)
            return made

        for number, home in enumerate(homes):
            if number:
                evalfleet(home, "store", "join")
            else:
                evalfleet(home, "token", "new", "bench")  # a command that writes makes the home
        drives = [
            threading.Thread(
                target=lambda home=home: done.append(evalfleet(home, "run", str(tasks), "--workers", workers))
            )
            for home in homes
        ]
        before, begun = _cpu_s(postgres.pid), time.perf_counter()
        for drive in drives:
            drive.start()
        for drive in drives:
            drive.join()
        wall_s = time.perf_counter() - begun
        assert len(done) == controllers, "a run failed"
        for home in homes:
            await_runner_gone(home)
        return Together(wall_s, sum(one.cpu_s for one in done), _cpu_s(postgres.pid) - before)


def _cpu_s(pid: int) -> float:
    """Of a server and of the processes that it has had for connections that are closed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS
