"""The limits of one attempt. Pure: the monotonic time is an argument."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .spec import AttemptSpec

NEVER = float("inf")
_CENT_FRACTION = 1e-9  # sums of floats must not end an attempt that costs exactly what it may


class AttemptLimits:
    """Wall, stall and start limit, and the cost limit: the attempt's time at the worker's price plus what it reports.

    Both clocks start with the process; with a start limit they start at ``ready``. Without one, ``ready`` restarts them.
    The cost limit includes the time that ending the attempt may take.
    """

    def __init__(self, spec: AttemptSpec, now: float) -> None:
        self._timeout_s = spec.timeout_s
        self._stall_s = spec.stall_s
        self._start_by = NEVER if spec.start_timeout_s is None else now + spec.start_timeout_s
        self._begun = now if spec.start_timeout_s is None else None
        self._launched = now
        self._usd_per_s = spec.price_usd_per_hour / 3600.0
        self._most_usd = NEVER if spec.max_cost_usd is None else spec.max_cost_usd - spec.grace_s * self._usd_per_s
        self._dear_at = NEVER
        self.reported(0.0)
        self.progressed_at = now

    def reported(self, usd: float) -> None:
        """The task has reported this total cost."""
        left = self._most_usd - usd
        if left < -_CENT_FRACTION:
            self._dear_at = self._launched
        elif self._usd_per_s > 0 and self._most_usd < NEVER:
            self._dear_at = self._launched + left / self._usd_per_s

    def progress(self, now: float) -> None:
        self.progressed_at = now

    def ready(self, now: float) -> None:
        self._begun = now
        self.progressed_at = now

    def idle_s(self, now: float) -> float:
        return max(0.0, now - self.progressed_at)

    def next_at(self) -> float:
        """The time of the next limit if nothing happens before."""
        if self._begun is None:
            return min(self._start_by, self._dear_at)
        wall = min(self._begun + self._timeout_s, self._dear_at)
        return wall if self._stall_s is None else min(wall, self.progressed_at + self._stall_s)

    def broken(self, now: float) -> str | None:
        """The cause if the attempt must end now."""
        if now < self.next_at():
            return None
        if now >= self._dear_at:
            return "cost_limit"
        if self._begun is None:
            return "start_timeout"
        if now < self._begun + self._timeout_s:
            return "stall"
        half = self._timeout_s / 2
        quiet = half if self._stall_s is None else min(self._stall_s, half)
        return "stall" if self.idle_s(now) >= quiet else "timeout"
