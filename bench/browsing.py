"""MiniWoB++ through evalfleet against a bare loop over the same tasks: tasks a second, overhead, memory per worker."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from measuring import EVALFLEET, await_runner_gone, environment, fleet
from table import Line, expect

from evalfleet.benchmarks.base import Selection
from evalfleet.benchmarks.miniwob.benchmark import Miniwob
from evalfleet.config import Settings
from evalfleet.environments.browser.environment import find_chromium

ROOT = Path(__file__).parents[1]
PLAYWRIGHT = "playwright==1.65.0"
PLACE = ROOT / ".bench" / "playwright"  # never into .venv: it is no dependency of ours
LOOP = Path(__file__).with_name("bare_loop.py")
TASKS = 24
WORKERS = (1, 2, 4)
OVERHEAD = 1.10
SAMPLE_S = 0.25


def bench_miniwob(root: Path, rounds: int) -> list[Line]:
    """Rounds in turn, so that what disturbs the machine disturbs both sides; the ratio is the median of the rounds'."""
    benchmark = Miniwob(Settings(home=Path()))
    missing = [need for need in benchmark.requirements() if not need.present]
    if missing:
        return [Line("MiniWoB++", f"not measured: {missing[0].what} is missing; {missing[0].install}")]
    selection = Selection(agent="oracle", tasks=TASKS)
    names = [task["payload"]["task"] for task in benchmark.tasks(selection)]
    listed = root / "miniwob.txt"
    listed.write_text("\n".join(names) + "\n")
    problem = _install()
    driver = "cdp" if problem else "playwright"
    label = "bare loop with our own browser" if problem else "bare Playwright loop"
    lines = [Line("Playwright", f"not measured, {label} instead: {problem}")] if problem else []
    for workers in WORKERS:
        lines += _against(root, names, listed, driver, label, workers, rounds)
    return [*lines, *_memory(root, listed, WORKERS[-1])]


def _against(
    root: Path, names: list[str], listed: Path, driver: str, label: str, workers: int, rounds: int
) -> list[Line]:
    walls: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        place = root / f"miniwob-{workers}-{number}"
        walls["bare"].append(_bare(place / "bare", names, driver, workers))
        walls["own"].append(_bare(place / "own", names, "cdp", workers) if driver != "cdp" else walls["bare"][-1])
        done = fleet(place / "home", *_command(listed, workers))
        expect(done, 0)
        walls["ours"].append(done.wall_s)
        await_runner_gone(place / "home")
    ratios = [ours / bare for ours, bare in zip(walls["ours"], walls["bare"], strict=True)]
    floors = [ours / own for ours, own in zip(walls["ours"], walls["own"], strict=True)]
    rate = {name: TASKS / statistics.median(found) for name, found in walls.items()}
    ratio = statistics.median(ratios)
    spread = f"{(min(ratios) - 1) * 100:+.0f} to {(max(ratios) - 1) * 100:+.0f}%"
    name = f"{TASKS} MiniWoB++ tasks, {workers} worker{'s' if workers > 1 else ''}"
    lines = [
        Line(f"{label}: {name}", f"{rate['bare']:.2f} a second"),
        Line(f"evalfleet: {name}", f"{rate['ours']:.2f} a second"),
        Line("  overhead", f"{(ratio - 1) * 100:+.0f}% median, {spread}", "<= 10%", ratio <= OVERHEAD),
    ]
    if driver != "cdp":
        lines.append(
            Line("  overhead over a loop with our own browser", f"{(statistics.median(floors) - 1) * 100:+.0f}%")
        )
    return lines


def _command(listed: Path, workers: int) -> list[str]:
    return ["run", "miniwob", "--tasks-file", str(listed), "--agent", "oracle", "--workers", str(workers)]


def _bare(place: Path, names: list[str], driver: str, workers: int) -> float:
    """Wall time of as many loops as workers, each with its share of the tasks."""
    env = environment() | {"PYTHONPATH": str(PLACE)}
    chromium = find_chromium()
    begun = time.perf_counter()
    loops = [
        subprocess.Popen(
            [sys.executable, str(LOOP), driver, str(chromium), str(place / str(worker)), *names[worker::workers]],
            env=env,
        )
        for worker in range(workers)
    ]
    codes = [loop.wait() for loop in loops]
    wall_s = time.perf_counter() - begun
    if any(codes):
        raise SystemExit(f"bench: the bare loop ended with {codes}; the figures would mean nothing")
    return wall_s


def _install() -> str | None:
    """Bring Playwright to its own folder; returns what is wrong where that cannot be done."""
    if (PLACE / "playwright").is_dir():
        return None
    PLACE.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(PLACE)]
    done = subprocess.run([*command, PLAYWRIGHT], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return f"pip install {PLAYWRIGHT} failed: {said[-1] if said else f'exit status {done.returncode}'}"


def _memory(root: Path, listed: Path, workers: int) -> list[Line]:
    """Proportional memory of whole attempts (program, browser), sampled in a run of its own: looking costs time."""
    home = root / "miniwob-memory"
    command = [EVALFLEET, *_command(listed, workers), "--home", str(home)]
    found: dict[str, float] = {}
    with open(os.devnull, "wb") as null:
        process = subprocess.Popen(command, stdout=null, stderr=null, env=environment())
    while process.poll() is None:
        for attempt, size in _attempts_mb(home).items():
            found[attempt] = max(found.get(attempt, 0.0), size)
        time.sleep(SAMPLE_S)
    await_runner_gone(home)
    peaks = sorted(found.values())
    if not peaks:
        return []
    middle = statistics.median(peaks)
    return [Line(f"memory of a worker, {workers} at work (PSS)", f"{middle:.0f} MB median, {peaks[-1]:.0f} MB peak")]


def _attempts_mb(home: Path) -> dict[str, float]:
    sizes: dict[str, float] = defaultdict(float)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environ = (entry / "environ").read_bytes()
            if str(home).encode() not in environ or b"EVALFLEET_ATTEMPT=" not in environ:
                continue
            attempt = environ.partition(b"EVALFLEET_ATTEMPT=")[2].partition(b"\0")[0].decode()
            rollup = (entry / "smaps_rollup").read_text()
        except OSError:  # gone meanwhile
            continue
        sizes[attempt] += next(
            (int(line.split()[1]) / 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0.0
        )
    return sizes
