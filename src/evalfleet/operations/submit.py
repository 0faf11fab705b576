"""From a checked submission to a stored run."""

from __future__ import annotations

import os

from msgspec.structs import replace

from evalfleet import config
from evalfleet.engine.least_budget import require_budget
from evalfleet.errors import InputError
from evalfleet.model import Distribution, Run
from evalfleet.operations.program_check import Programs
from evalfleet.store.base.store import Store
from evalfleet.taskfile import Submission, missing_secrets


def require_secrets(submission: Submission) -> None:
    """Raise InputError where a secret that a task wants is not in the environment. To be asked before anything is written."""
    missing = missing_secrets(submission.tasks, config.environment()) if submission.secrets else []
    if missing:
        wants = next(task.key for task in submission.tasks if missing[0] in task.secrets)
        raise InputError(
            f"task {wants!r} wants the secret {missing[0]}, and the environment lacks {', '.join(missing)}; set "
            f"{'them' if len(missing) > 1 else 'it'} (export {missing[0]}=…) and submit again. Nothing was submitted."
        )


def submit(
    store: Store,
    submission: Submission,
    *,
    name: str | None = None,
    workers: int | None = None,
    distribution: str | None = None,
    budget_usd: float | None = None,
    pool: str | None = None,
    local_usd_per_hour: float = 0.0,
) -> Run:
    """Store the run, whole or not at all. What is given here goes before what the task file says.

    Raises InputError where the budget admits nothing; see `require_budget`. And on a run for this machine, where a program of
    its tasks is not there; see `Programs`.
    """
    policy = submission.policy
    usual = os.cpu_count() or 1
    if pool:
        from evalfleet.engine.hosts.fleet import slots_of  # all backends with it, which `--detach` need not load

        usual = slots_of(store, pool)
    policy = replace(
        policy,
        workers=workers or policy.workers or usual,
        distribution=Distribution(distribution or policy.distribution),
        budget_usd=policy.budget_usd if budget_usd is None else budget_usd,
        pool=pool,
    )
    require_budget(store, policy, submission.tasks, local_usd_per_hour=local_usd_per_hour)
    base_env = config.base_env()
    tasks = submission.tasks if pool else Programs(submission.folder, base_env).checked(submission.tasks)
    return store.submit(name or submission.name, policy, tasks, folder=submission.folder, base_env=base_env)
