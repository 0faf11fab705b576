"""Whether a budget admits a single attempt, asked before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from evalfleet.core.budget import Budget
from evalfleet.core.cost import estimate_attempt, max_cost_usd
from evalfleet.duration import show
from evalfleet.errors import InputError
from evalfleet.model import Policy, TaskSpec
from evalfleet.store.store import Store


def require_budget(
    store: Store, policy: Policy, tasks: Iterable[TaskSpec] = (), *, local_usd_per_hour: float = 0.0
) -> None:
    """Raise InputError if the budget does not admit a single attempt, by the prices that are known before anything runs.

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
    """The smallest cost that a task states, and the shortest time limit of those that state none; None if there is none."""
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
    """Raise InputError if even the task with the smallest stated cost does not fit."""
    if not Budget(limit_usd=budget_usd).admits(0.0, 0.0, least_usd):
        raise InputError(
            f"the budget of ${budget_usd:.2f} does not allow a single attempt: the smallest `max_cost_usd` of the tasks is "
            f"${least_usd:.2f}; give a budget of that or more. Nothing was submitted."
        )


def _cheapest(store: Store, pool: str) -> float:
    """The hourly price of a worker on the cheapest host of the pool; 0 if it is not known."""
    from evalfleet.pools.kinds.registry import kind_of, with_members

    prices = [
        host.price_usd_per_hour / max(1, host.slots)
        for one in with_members(store, store.pools.get(pool))
        for host in kind_of(one).hosts(one, store.hosts.of_pool(one.name))
    ]
    return min(prices, default=0.0)
