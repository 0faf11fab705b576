"""What may be asked of a store about money."""

from __future__ import annotations

from typing import Any, Protocol


class MoneyReader(Protocol):
    """Reading."""

    def cost_usd(self, run_id: str) -> float:
        """Money of all attempts, with that of live ones so far."""
        ...

    def attempt_costs(self, run_id: str) -> list[dict[str, Any]]:
        """Task_number, number, outcome, kind and cost_usd of every ended attempt, in the order of their ends."""
        ...

    def stated_costs(self, run_id: str, timeout_s: float) -> tuple[float | None, bool, float | None]:
        """The smallest `max_cost_usd` that a task states, whether some state none, and the shortest time limit of those.

        Args:
            timeout_s: of tasks that have none of their own.
        """
        ...

    def waste_usd(self, run_id: str) -> float:
        """Money for attempts that did not decide their task by a verdict."""
        ...

    def idle_usd(self, run_id: str) -> float:
        """Money for the run's workers between their attempts, in no attempt's cost."""
        ...

    def waste_sums(self, run_id: str) -> dict[str, float]:
        """The same by what became of them: failed, lost, preempted, cancelled, unused (another verdict counts)."""
        ...
