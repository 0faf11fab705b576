"""From a checked submission to a stored run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from math import ceil

from msgspec.structs import replace

from evalfleet import config
from evalfleet.core.budget import Budget
from evalfleet.core.cost import estimate_attempt, max_cost_usd
from evalfleet.duration import show
from evalfleet.engine.programs import Programs
from evalfleet.errors import InputError
from evalfleet.model import Distribution, Policy, Run, TaskSpec
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


def require_budget(
    store: Store, policy: Policy, tasks: Iterable[TaskSpec] = (), *, local_usd_per_hour: float = 0.0
) -> None:
    """Raise InputError where the budget admits not even one attempt, as far as prices are known before anything runs.

    Args:
        local_usd_per_hour: the price of a worker of this machine, which a run without a pool uses.
    """
    if policy.budget_usd is None:
        return
    least_usd, longest_s = _least(policy, tasks)
    if least_usd is not None and (longest_s is None or least_usd <= policy.budget_usd):
        _require_least(policy.budget_usd, least_usd)
        return
    longest_s = policy.timeout_s if longest_s is None else longest_s
    price = local_usd_per_hour if policy.pool is None else _cheapest(store, policy.pool)
    estimate = estimate_attempt(largest_usd=None, price_per_hour=price, timeout_s=longest_s)
    if Budget(limit_usd=policy.budget_usd).admits(0.0, 0.0, estimate):
        return
    raise InputError(
        f"the budget of ${policy.budget_usd:.2f} does not allow a single attempt: at ${price:.2f} an hour one that takes its whole "
        f"time limit, {show(longest_s)}, costs ${estimate:.2f}; give a budget of ${ceil(estimate * 100) / 100:.2f} or more, or a "
        "shorter timeout. Nothing was submitted."
    )


def _least(policy: Policy, tasks: Iterable[TaskSpec]) -> tuple[float | None, float | None]:
    """The smallest cost that a task states, and the shortest time limit of those that state none; None where there is none."""
    least_usd: float | None = None
    longest_s: float | None = None
    for task in tasks:
        bound = max_cost_usd(policy, task)
        if bound is not None:
            least_usd = bound if least_usd is None else min(least_usd, bound)
        else:
            limit_s = task.timeout_s or policy.timeout_s
            longest_s = limit_s if longest_s is None else min(longest_s, limit_s)
    return least_usd, longest_s


def _require_least(budget_usd: float, least_usd: float) -> None:
    """Raise InputError where not even the task that states the smallest cost fits."""
    if not Budget(limit_usd=budget_usd).admits(0.0, 0.0, least_usd):
        raise InputError(
            f"the budget of ${budget_usd:.2f} does not allow a single attempt: the smallest `max_cost_usd` of the tasks is "
            f"${least_usd:.2f}; give a budget of that or more. Nothing was submitted."
        )


def _cheapest(store: Store, pool: str) -> float:
    """The price of a worker's hour, of the cheapest host that the pool has now; 0 where that is not known."""
    from evalfleet.backends.registry import kind_of

    found = store.pool(pool)
    prices = [host.price_usd_per_hour / max(1, host.slots) for host in kind_of(found).hosts(found, store.hosts(pool))]
    return min(prices, default=0.0)


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
        from evalfleet.engine.machines import slots_of  # all backends with it, which `--detach` need not load

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
