"""From a checked submission to a stored run."""

from __future__ import annotations

import os

from msgspec.structs import replace

from evalfleet import config
from evalfleet.errors import InputError
from evalfleet.model import Distribution, Run
from evalfleet.store.base import Store
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
) -> Run:
    """Store the run, whole or not at all. What is given here goes before what the task file says."""
    policy = submission.policy
    usual = os.cpu_count() or 1
    if pool:
        from evalfleet.engine.machines import slots_of  # all backends with it, which `--detach` need not load

        usual = slots_of(store, pool)
    policy = replace(
        policy,
        workers=workers or policy.workers or usual,
        distribution=Distribution(distribution or policy.distribution),
        budget_usd=policy.budget_usd if budget_usd is None else budget_usd,
        pool=pool,
    )
    return store.submit(
        name or submission.name,
        policy,
        submission.tasks,
        folder=submission.folder,
        base_env=config.base_env(),
    )
