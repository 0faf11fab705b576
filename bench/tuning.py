"""What a trial costs beside its own work, against Optuna's processes on a shared file; and what more GPUs are worth."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from measuring import EVALFLEET, environment, measure
from table import Line, expect

from evalfleet.store.open import open_reader

TRIALS, AT_A_TIME = 400, 8
OTHERS = 100  # of Optuna's: its rate does not depend on how many
NAPS, NAP_S = 40, 0.5
GPUS = (1, 2, 4, 8)
ROUNDS = 2
LEAST_SHARE = 0.9
_RESULT = """printf '{"success": true, "metrics": {"speed": 1}}' > "$EVALFLEET_RESULT\""""


def bench_tuning(root: Path) -> list[Line]:
    ours: list[float] = []
    sqlite: list[float] = []
    journal: list[float] = []
    for number in range(ROUNDS):
        home = root / f"tuning-{number}"
        ours.append(TRIALS / _study(home, _RESULT, TRIALS, AT_A_TIME))
        sqlite.append(_optuna(f"sqlite:///{root / f'optuna-{number}.db'}"))
        journal.append(_optuna(f"journal:{root / f'optuna-{number}.log'}"))
    ratio = max(ours) / max(sqlite)
    lines = [
        Line(f"Optuna, SQLite, {AT_A_TIME} processes: trials that do nothing", f"{max(sqlite):.0f} a second"),
        Line("Optuna, journal file, the same", f"{max(journal):.0f} a second"),
        Line(f"evalfleet tune, {AT_A_TIME} at a time: a process each", f"{max(ours):.0f} a second"),
        Line("  ratio to SQLite", f"{ratio:.1f}x", ">= 1x", ratio >= 1),
        Line("  ratio to the journal file", f"{max(ours) / max(journal):.1f}x"),
    ]
    for count in GPUS:
        taken = min(_leased(root, count, number) for number in range(ROUNDS if count > 2 else 1))
        share = NAPS * NAP_S / count / taken
        lines.append(
            Line(
                f"{NAPS} trials of {NAP_S} s on {count} GPUs",
                f"{taken:.2f} s, {share:.2f} of linear",
                f">= {LEAST_SHARE}",
                share >= LEAST_SHARE,
            )
        )
    return lines


def _leased(root: Path, count: int, number: int) -> float:
    """Seconds that the trials took on so many GPUs, which a file describes."""
    home = root / f"leased-{count}-{number}"
    (home / "spool").mkdir(parents=True)
    rows = [{"index": i, "uuid": f"GPU-{home.name}-{i}", "memory_mb": 80_000, "used_mb": 0} for i in range(count)]
    (home / "spool" / "gpus.json").write_text(json.dumps(rows))
    return _study(home, f"sleep {NAP_S}; {_RESULT}", NAPS, count, gpus=1)


def _study(home: Path, script: str, trials: int, parallel: int, gpus: int = 0) -> float:
    """Drive a study by the command that a person types; returns the seconds from its first trial to its last."""
    file = home.with_suffix(".toml")
    file.write_text(
        f'[study]\nname = "bench"\ntrials = {trials}\nmax_parallel_experiments = {parallel}\nconfirm = false\n'
        'objective = { maximize = "speed" }\n'
        '[parameters]\na = { type = "integer", low = 1, high = 100000 }\n'
        'b = { type = "continuous", low = 0.0, high = 1.0 }\nc = ["x", "y", "z"]\n'
        f'[trial]\ncommand = ["/bin/sh", "-c", {json.dumps(script)}]\ngpus = {gpus}\n'
    )
    # All at once from the start: how slowly a study begins is a setting, and not what is measured here.
    words = [EVALFLEET, "tune", str(file), "--json", "--home", str(home)]
    expect(measure(words, env={"EVALFLEET_BREAKER_SLOW_START": str(AT_A_TIME)}), 0)
    store = open_reader(home)
    assert store is not None
    try:
        run = store.runs.newest()[0]
        attempts = list(store.attempts.all_rows(run.id))
    finally:
        store.close()
    if len(attempts) != trials:
        raise SystemExit(f"bench: {len(attempts)} attempts for {trials} trials; the figures would mean nothing")
    return max(row["ended_at"] for row in attempts) - min(row["claimed_at"] for row in attempts)


def _optuna(storage: str) -> float:
    """Trials a second."""
    words = [sys.executable, str(Path(__file__).with_name("noop_trials.py")), storage, "bench", str(OTHERS)]

    def started() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment()
        )
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise SystemExit("bench: Optuna does not start; `make setup` installs it")
        return process

    processes = [started() for _ in range(AT_A_TIME)]
    begun = time.perf_counter()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.wait()
    return OTHERS / (time.perf_counter() - begun)
