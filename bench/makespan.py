"""How long 154 tasks take on 10 and 40 workers: evalfleet's queue against fixed shards, in one table.

Nobody has published the duration of each of WAA's 154 tasks. There are 18 published durations of runs of its tasks
(`waa_durations.json`); the 154 are drawn from them with a fixed seed, each by itself. The order of the queue is asked of the
store, who goes where of `core.placement`, how many may start of `core.breaker`: nothing of it is written here again. One run
per order goes through the whole engine, in scaled time, and must take as long as the simulation says.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from measuring import await_runner_gone, fleet
from table import Line, expect
from tests.support.makespan import simulated

from evalfleet.store.open import open_reader

WORKERS = (10, 40)
SEED = 154
SCALE = 300  # seconds of a task per second of the real runs
APART = 0.05


def bench_makespan(root: Path) -> list[Line]:
    published = json.loads(Path(__file__).with_name("waa_durations.json").read_text())
    keys = [f"{domain}_{each}" for domain, count in published["domains"].items() for each in range(1, count + 1)]
    rng = random.Random(SEED)
    durations = {number: float(rng.choice(published["seconds"])) for number in range(1, len(keys) + 1)}
    tasks = _write_tasks(root / "makespan.jsonl", keys, durations)
    home = root / "makespan"
    unknown, unknown_s = _real(home, tasks)  # the second run of that name has the first as its history
    known, known_s = _real(home, tasks)
    await_runner_gone(home)
    bound = [max(*durations.values(), sum(durations.values()) / workers) for workers in WORKERS]
    queue = [simulated(known, durations, workers) for workers in WORKERS]
    shards = [_contiguous(list(durations.values()), workers) for workers in WORKERS]
    rows = {
        "  lower bound: the longest, or all by workers": bound,
        "  evalfleet: queue, durations known from history": queue,
        "  evalfleet: queue, durations unknown": [simulated(unknown, durations, workers) for workers in WORKERS],
        "  evalfleet: --distribution round-robin": [
            simulated(sorted(durations), durations, workers, fixed=True) for workers in WORKERS
        ],
        "  WAA: static contiguous shards": shards,
    }
    names = f"{len(keys)} tasks, minutes on {' and '.join(map(str, WORKERS))} workers"
    drawn = f"drawn from {len(published['seconds'])} published runs"
    return [
        Line(f"{names} (simulated)", drawn),
        *(Line(what, _row(found, bound)) for what, found in rows.items()),
        Line(
            "  shards to queue", _times(shards, queue), "> 1x", all(a > b for a, b in zip(shards, queue, strict=True))
        ),
        _compared("known", known_s, simulated(known, _scaled(durations), WORKERS[0])),
        _compared("unknown", unknown_s, simulated(unknown, _scaled(durations), WORKERS[0])),
    ]


def _contiguous(durations: list[float], workers: int) -> float:
    """As WAA's client divides them: slices in the order of its list, the first ones longer by one."""
    length, longer = divmod(len(durations), workers)
    ends, start = [], 0
    for worker in range(workers):
        stop = start + length + (worker < longer)
        ends.append(sum(durations[start:stop]))
        start = stop
    return max(ends)


def _real(home: Path, tasks: Path) -> tuple[list[int], float]:
    """Drive a run of sleeping tasks; in which order the store gave them out, and what its attempts took."""
    expect(fleet(home, "run", str(tasks), "--workers", str(WORKERS[0]), "--name", "makespan", "--detach"), 0)
    store = open_reader(home)
    assert store is not None
    try:
        run = store.runs.newest()[0]
        order = [task.number for task in store.tasks.candidates(run.id, len(tasks.read_text().splitlines()))]
        expect(fleet(home, "resume", run.id), 0)
        attempts = store.attempts.all(run.id)
        ended = [attempt.ended_at for attempt in attempts if attempt.ended_at is not None]
        return order, max(ended) - min(attempt.claimed_at for attempt in attempts)
    finally:
        store.close()


def _write_tasks(path: Path, keys: list[str], durations: dict[int, float]) -> Path:
    with path.open("w") as file:
        for key, seconds in zip(keys, _scaled(durations).values(), strict=True):
            row = {"key": key, "domain": key.rpartition("_")[0], "command": ["sleep", f"{seconds:.3f}"]}
            file.write(json.dumps(row) + "\n")
    return path


def _scaled(durations: dict[int, float]) -> dict[int, float]:
    return {number: seconds / SCALE for number, seconds in durations.items()}


def _compared(what: str, real_s: float, simulated_s: float) -> Line:
    apart = real_s / simulated_s - 1
    name = f"real run, 1 s is {SCALE} s, {WORKERS[0]} workers, {what}"
    return Line(f"  {name}", f"{real_s:.2f} s, {apart * 100:+.1f}% to simulated", "within 5%", abs(apart) <= APART)


def _row(found: Sequence[float], bound: Sequence[float]) -> str:
    return "   ".join(f"{each / 60:5.1f} {each / least:.2f}x" for each, least in zip(found, bound, strict=True))


def _times(more: Sequence[float], less: Sequence[float]) -> str:
    return "   ".join(f"      {a / b:.2f}x" for a, b in zip(more, less, strict=True))
