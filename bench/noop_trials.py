"""One process of a study that Optuna keeps: makes trials that do nothing, until the study has enough of them.

    python bench/noop_trials.py STORAGE STUDY TRIALS

STORAGE is a URL, or `journal:FILE`. It says "ready" on standard output, and begins when it gets a line.
"""

from __future__ import annotations

import sys
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend
from optuna.study import MaxTrialsCallback


def storage_of(text: str) -> Any:
    if text.startswith("journal:"):
        return optuna.storages.JournalStorage(JournalFileBackend(text.removeprefix("journal:")))
    return text


def nothing(trial: optuna.Trial) -> float:
    trial.suggest_int("a", 1, 100_000)
    trial.suggest_float("b", 0.0, 1.0)
    trial.suggest_categorical("c", ["x", "y", "z"])
    return 1.0


def main() -> int:
    storage, name, trials = storage_of(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.RandomSampler()
    study = optuna.create_study(storage=storage, study_name=name, load_if_exists=True, sampler=sampler)
    print("ready", flush=True)
    sys.stdin.readline()
    study.optimize(nothing, callbacks=[MaxTrialsCallback(trials, states=None)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
