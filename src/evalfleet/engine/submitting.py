"""From a checked submission to a stored run."""

from __future__ import annotations

import os
from dataclasses import replace

from evalfleet import config
from evalfleet.errors import InputError
from evalfleet.model import Distribution, Run
from evalfleet.store.base import Store
from evalfleet.taskfile import Submission


def submit(
    store: Store,
    submission: Submission,
    *,
    name: str | None = None,
    workers: int | None = None,
    distribution: str | None = None,
    budget_usd: float | None = None,
) -> Run:
    """Store the run, whole or not at all. What is given here goes before what the task file says.

    Raises InputError where a secret that a task wants is not in the environment.
    """
    missing = [secret for secret in submission.secrets if secret not in config.environment()]
    if missing:
        raise InputError(
            f"the environment lacks the secret{'s' * (len(missing) > 1)} {', '.join(missing)}; "
            f"set it (export {missing[0]}=…) and submit again. Nothing was submitted."
        )
    policy = submission.policy
    policy = replace(
        policy,
        workers=workers or policy.workers or os.cpu_count() or 1,
        distribution=Distribution(distribution or policy.distribution),
        budget_usd=policy.budget_usd if budget_usd is None else budget_usd,
    )
    return store.submit(
        name or submission.name,
        policy,
        submission.tasks,
        folder=submission.folder,
        base_env=config.base_env(),
    )
