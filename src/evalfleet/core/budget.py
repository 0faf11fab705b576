"""The budget of a run: checked before money is spent."""

from __future__ import annotations

from msgspec import Struct

UNLIMITED = 1 << 30
_CENT_FRACTION = 1e-9  # sums of floats must not refuse an attempt that fits exactly


class Budget(Struct, frozen=True, kw_only=True):
    """The limit of a run; None means no limit.

    As long as no attempt costs more than its estimate, a run that asks before every attempt never passes the limit.
    """

    limit_usd: float | None

    def admits(self, spent_usd: float, committed_usd: float, estimate_usd: float) -> bool:
        """Whether one more attempt fits: spent and committed and its own estimate stay within the limit."""
        return self.room(spent_usd, committed_usd, estimate_usd) > 0

    def room(self, spent_usd: float, committed_usd: float, estimate_usd: float) -> int:
        """How many more attempts of that estimate fit now."""
        if self.limit_usd is None:
            return UNLIMITED
        left = self.limit_usd - spent_usd - committed_usd + _CENT_FRACTION
        if left < estimate_usd or left < 0:
            return 0
        return UNLIMITED if estimate_usd <= 0 else min(UNLIMITED, int(left / estimate_usd))

    def is_passed(self, spent_usd: float) -> bool:
        return self.limit_usd is not None and spent_usd > self.limit_usd + _CENT_FRACTION

    def message(self, spent_usd: float, committed_usd: float, estimate_usd: float) -> str:
        """Why the run starts no more attempts, and what to do."""
        return (
            f"the budget of ${self.limit_usd or 0.0:.2f} does not allow another attempt: ${spent_usd:.2f} spent, "
            f"${committed_usd:.2f} committed, about ${estimate_usd:.2f} each; resume with a larger budget"
        )


class Ramp(Struct, kw_only=True):
    """How many attempts of unknown cost a run with a budget may have in flight: 1, and one more for each end that confirms.

    So what is in flight doubles at most with every round of ends: 1, 2, 4, 8, … An end confirms the estimate if it brought a
    verdict and cost no more than the dearest before it. A crash says little about what an attempt costs.
    """

    window: int = 1
    largest_usd: float | None = None  # of any attempt so far, whatever became of it
    is_known: bool = False  # a verdict has told what an attempt costs

    def learn(self, cost_usd: float, *, verdict: bool) -> None:
        """Record the final cost of an attempt."""
        confirms = not self.is_known or cost_usd <= (self.largest_usd or 0.0) + _CENT_FRACTION
        self.largest_usd = max(self.largest_usd or 0.0, cost_usd)
        self.is_known |= verdict
        self.window += verdict and confirms

    def room(self, in_flight: int) -> int:
        return max(0, self.window - in_flight)
