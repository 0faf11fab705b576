"""Gives a study its next trials: reads what the store has of it, asks the pure plan, and adds tasks.

All in the transaction of the dispatcher's step, so that a trial is either a task of the run or was never proposed. Nothing of
the search is kept here: it is rebuilt from the tasks every time.
"""

from __future__ import annotations

from dataclasses import replace

from evalfleet import config
from evalfleet.model import Policy, Run
from evalfleet.store.base import Store
from evalfleet.tune.planning import next_step
from evalfleet.tune.study import Study, study_of
from evalfleet.tune.tasks import trial_spec, trials_of


def submit_study(
    store: Store,
    study: Study,
    *,
    folder: str,
    name: str | None = None,
    pool: str | None = None,
    budget_usd: float | None,
) -> Run:
    """Store a study as an open run without tasks: its trials come while it is driven.

    Raises InputError where its strategy cannot be used here.
    """
    study.searcher()
    policy = Policy(
        attempts=study.attempts,
        timeout_s=study.timeout_s,
        result_required=True,
        workers=study.parallel,
        budget_usd=budget_usd,
        files=study.files,
        pool=pool,
        study=study.table,
    )
    return store.submit(name or study.name, policy, (), folder=folder, base_env=config.base_env(), open=True)


class Studying:
    """One per dispatcher of a study."""

    def __init__(self, store: Store, run: Run) -> None:
        assert run.policy.study is not None
        self._store = store
        self.amend(run)

    def amend(self, run: Run) -> None:
        """The run was changed: it may have more trials now."""
        self._run = run
        self._study = study_of(run.policy.study or {})
        self._searcher = self._study.searcher()

    def propose(self, live: int) -> Run | None:
        """Add the trials for which there is room now. Returns the run if something changed: tasks, or that it is closed."""
        if not self._run.open:
            return None
        due = len(self._store.candidates(self._run.id, self._run.policy.workers))
        trials = trials_of(self._store.tasks(self._run.id), self._study.objective)
        step = next_step(self._study, self._searcher, trials, self._run.policy.workers - live - due)
        if step.over is not None:
            if self._store.set_open(self._run, False, step.over) is None:
                return None
            self._run = replace(self._run, open=False)
            return self._run
        specs = [trial_spec(self._study, one, len(trials) + place) for place, one in enumerate(step.wanted, start=1)]
        return self._run if self._store.add_tasks(self._run, specs) else None
