"""Gives a study its next trials: reads its tasks from the store, asks the pure plan, and adds tasks.

All in the transaction of the dispatcher's step, so that a trial is either a task of the run or was never proposed. The state of
the search follows from the tasks alone, so the next controller of the study starts from them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from evalfleet import config
from evalfleet.engine.placement.least_budget import require_budget
from evalfleet.hosts.base import HostInfo
from evalfleet.model import Ownership, Policy, Run, TaskSpec
from evalfleet.store.store import Store
from evalfleet.tune.gpu_capacity import crowding
from evalfleet.tune.plan import next_step
from evalfleet.tune.study import Study, study_of
from evalfleet.tune.tasks import trial_spec, trials_of
from evalfleet.tune.trial import Progress, Trial

TROUBLED = "run.troubled"
CROWDED = "run.crowded"


def submit_study(
    store: Store,
    study: Study,
    *,
    folder: str,
    name: str | None = None,
    pool: str | None = None,
    budget_usd: float | None,
    gpus: tuple[int, ...] = (),
    local_usd_per_hour: float = 0.0,
    ownership: Ownership | None = None,
) -> Run:
    """Store a study as an open run without tasks: its trials come while it is driven.

    Raises InputError if its strategy cannot be used here, or its budget admits nothing; see `require_budget`.
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
        gpus=gpus,
        study=study.table,
    )
    require_budget(store, policy, local_usd_per_hour=local_usd_per_hour)
    return store.runs.submit(
        name or study.name,
        policy,
        (),
        folder=folder,
        base_env=config.base_env(),
        open=True,
        secrets=study.trial.secrets,
        ownership=ownership,
    )


class TrialFeed:
    """One per dispatcher of a study; no other process changes its tasks meanwhile."""

    def __init__(self, store: Store, run: Run) -> None:
        assert run.policy.study is not None
        self.trouble: str | None = None  # why a person must act before it goes on, and what to change
        self._store = store
        self._trials: list[Trial] | None = None  # as last read; ended ones no longer change
        told = store.events.last(run.id, TROUBLED)
        self._told: int = 0 if told is None else told.data["trials"]
        self.amend(run)

    def amend(self, run: Run) -> None:
        """The run was changed: it may have more trials now, or run more of them in parallel."""
        self._run = run
        study = study_of(run.policy.study or {})
        by_default = "confirm" not in study.table["study"]
        self._study = replace(study, confirm=True) if by_default and run.policy.workers > 1 else study
        self._searcher = self._study.searcher()
        said = self._store.events.last(run.id, CROWDED)
        self._looked = said is not None and said.data["workers"] == run.policy.workers
        self.forget()

    def forget(self) -> None:
        """Ended trials may have changed: they got new attempts."""
        self._trials = None

    def propose(self, free: int, hosts: Sequence[HostInfo]) -> Run | None:
        """Add the trials for which there is room now. Returns the run if something changed: tasks, or that it is closed.

        Args:
            free: how many more may run now.
            hosts: those that may get work.
        """
        if not self._run.open:
            return None
        due = len(self._store.tasks.candidates(self._run.id, self._run.policy.workers))
        trials = self._known()
        step = next_step(self._study, self._searcher, trials, free - due, self._told)
        if step.trouble is not None:
            self._tell(step.trouble, len(trials))
            return None
        if step.over is not None:
            if self._store.runs.set_open(self._run, False, step.over) is None:
                return None
            self._run = replace(self._run, open=False)
            return self._run
        specs = [trial_spec(self._study, one, len(trials) + place) for place, one in enumerate(step.wanted, start=1)]
        added = self._store.tasks.add(self._run, specs)
        if added and not self._looked:
            self._look(specs, hosts)
        trials += trials_of(added, self._study.objective)
        return self._run if added else None

    def _known(self) -> list[Trial]:
        """All trials. Only open ones are read again."""
        if self._trials is None:
            self._trials = trials_of(self._store.tasks.all(self._run.id), self._study.objective)
            return self._trials
        for place, trial in enumerate(self._trials):
            if trial.progress is Progress.OPEN:
                task = self._store.tasks.at(self._run.id, trial.number)
                (self._trials[place],) = trials_of([task], self._study.objective)
        return self._trials

    def _look(self, specs: Sequence[TaskSpec], hosts: Sequence[HostInfo]) -> None:
        """Report once per wanted number if the GPUs run fewer trials at a time than wanted."""
        self._looked = True
        policy = self._run.policy
        asked = [spec.requests for spec in specs]
        if said := crowding(policy.workers, asked, [host.devices for host in hosts], policy.gpus):
            self._store.events.note(self._run.id, CROWDED, {"message": said, "workers": policy.workers})

    def _tell(self, trouble: str, trials: int) -> None:
        run = self._run.id
        self.trouble = (
            f"{trouble}; then `evalfleet study resume {run}` goes on (`evalfleet study retry-failed {run}` before it tries "
            "the failed ones again)"
        )
        self._told = trials
        self._store.events.note(run, TROUBLED, {"message": trouble, "trials": trials})
