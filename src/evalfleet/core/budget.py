"""Money is capped before it is spent."""

from __future__ import annotations

from msgspec import Struct

UNLIMITED = 1 << 30
_CENT_FRACTION = 1e-9  # sums of floats must not refuse an attempt that fits exactly


class Budget(Struct, frozen=True, kw_only=True):
    """The limit of a run; None is none.

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

    def message(self, spent_usd: float, committed_usd: float, estimate_usd: float) -> str:
        """Why the run admits no more work, and what to do."""
        return (
            f"the budget of ${self.limit_usd or 0.0:.2f} does not allow another attempt: ${spent_usd:.2f} spent, "
            f"${committed_usd:.2f} committed, about ${estimate_usd:.2f} each; resume with a larger budget"
        )
