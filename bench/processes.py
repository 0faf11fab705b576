"""How fast the engine is on tasks that cost nothing: processes a second, memory, and what a person waits for."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path

from measuring import EVALFLEET, Measured, await_runner_gone, fleet, measure
from table import Line, expect

WORKERS = 8
FEW, SOME, MANY = 1_000, 10_000, 100_000
DRIVE_S = 10.0


def write_tasks(path: Path, count: int) -> Path:
    with path.open("w") as file:
        for number in range(count):
            file.write(json.dumps({"key": f"true_{number}", "domain": "true", "command": ["/bin/true"]}) + "\n")
    return path


def bench_few(root: Path, rounds: int) -> list[Line]:
    """1,000 processes, by xargs and by evalfleet, in turn."""
    numbers = root / "numbers"
    numbers.write_text("\n".join(map(str, range(FEW))) + "\n")
    tasks = write_tasks(root / "few.jsonl", FEW)
    floor: list[float] = []
    ours: list[Measured] = []
    for number in range(rounds):
        floor.append(measure(["xargs", "-P", str(WORKERS), "-n", "1", "/bin/true"], stdin=numbers).wall_s)
        home = root / f"few-{number}"
        ours.append(fleet(home, "run", str(tasks), "--workers", str(WORKERS), with_runner=True))
        expect(ours[-1], 0)
        await_runner_gone(home)
    walls = [one.wall_s for one in ours]
    best, median = min(walls), statistics.median(walls)
    ratio, middle = best / min(floor), median / statistics.median(floor)
    quickest = min(ours, key=lambda one: one.wall_s)
    rss = max(one.rss_mb for one in ours)
    name = f"{FEW:,} /bin/true, {WORKERS} workers"
    return [
        Line(f"xargs -P {WORKERS}: {name}", f"{min(floor):.2f} s best, {statistics.median(floor):.2f} s median"),
        Line(f"evalfleet: {name}", f"{best:.2f} s best, {median:.2f} s median", "<= 2.5 s", best <= 2.5),
        Line("  ratio to xargs", f"{ratio:.1f}x best, {middle:.1f}x median", "<= 6x", ratio <= 6),
        Line("  controller: CPU", f"{quickest.cpu_s:.2f} s, {quickest.cpu_s / FEW * 1000:.2f} ms a task"),
        Line("  runner: CPU", f"{quickest.runner_cpu_s:.2f} s, {quickest.runner_cpu_s / FEW * 1000:.2f} ms a task"),
        Line("  controller: peak memory", f"{rss:.0f} MB", "< 60 MB", rss < 60),
        Line("  runner: peak memory", f"{max(one.runner_rss_mb for one in ours):.0f} MB"),
    ]


def bench_many(root: Path) -> list[Line]:
    """100,000 tasks: the submission, and a controller that has them all before it."""
    tasks = write_tasks(root / "many.jsonl", MANY)
    home = root / "many"
    submitted = fleet(home, "run", str(tasks), "--workers", str(WORKERS), "--detach", with_runner=True)
    expect(submitted, 0)
    driven = fleet(home, "resume", stop_after_s=DRIVE_S, with_runner=True)
    expect(driven, 130)
    await_runner_gone(home)
    name = f"{MANY:,} tasks"
    return [
        Line(f"submit {name}", f"{submitted.wall_s:.2f} s", "< 5 s", submitted.wall_s < 5),
        Line("  peak memory", f"{submitted.rss_mb:.0f} MB", "< 150 MB", submitted.rss_mb < 150),
        Line(f"controller on {name}: peak memory", f"{driven.rss_mb:.0f} MB", "< 150 MB", driven.rss_mb < 150),
        Line("  CPU", f"{driven.cpu_s:.1f} s in {driven.wall_s:.1f} s"),
    ]


def bench_commands(root: Path) -> list[Line]:
    """What a person waits for: CPU, because wall time says more about the neighbours."""
    help_s = _least_cpu(lambda: measure([EVALFLEET, "--help"]))
    home = root / "some"
    tasks = write_tasks(root / "some.jsonl", SOME)
    finished = fleet(home, "run", str(tasks), "--workers", str(WORKERS), with_runner=True)
    expect(finished, 0)
    await_runner_gone(home)
    status_s = _least_cpu(lambda: fleet(home, "status"))
    one_s = _least_cpu(lambda: fleet(home, "status", "latest"))
    rate = SOME / finished.wall_s
    return [
        Line("evalfleet --help: CPU", f"{help_s * 1000:.0f} ms", "< 80 ms", help_s < 0.080),
        Line(f"evalfleet run of {SOME:,} /bin/true", f"{finished.wall_s:.1f} s, {rate:.0f} a second"),
        Line("  controller: peak memory", f"{finished.rss_mb:.0f} MB"),
        Line("  runner: peak memory", f"{finished.runner_rss_mb:.0f} MB"),
        Line(f"evalfleet status, {SOME:,} finished: CPU", f"{status_s * 1000:.0f} ms", "< 120 ms", status_s < 0.120),
        Line(f"evalfleet status RUN, {SOME:,} finished: CPU", f"{one_s * 1000:.0f} ms", "< 120 ms", one_s < 0.120),
    ]


def _least_cpu(command: Callable[[], Measured], times: int = 7) -> float:
    """Of several, the first of which only warms the byte code and the files."""
    found = [command() for _ in range(times + 1)]
    for one in found:
        expect(one, 0)
    return min(one.cpu_s for one in found[1:])
