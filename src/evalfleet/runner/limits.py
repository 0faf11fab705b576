"""The clocks of one attempt. Pure: the monotonic time is an argument."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .spec import Spec

NEVER = float("inf")


class Limits:
    """Wall, stall and start limit.

    Both clocks start with the process; with a start limit they start at ``ready``. Without one, ``ready`` starts them anew.
    """

    def __init__(self, spec: Spec, now: float) -> None:
        self._timeout_s = spec.timeout_s
        self._stall_s = spec.stall_s
        self._start_by = NEVER if spec.start_timeout_s is None else now + spec.start_timeout_s
        self._begun = now if spec.start_timeout_s is None else None
        self.progressed_at = now

    def progress(self, now: float) -> None:
        self.progressed_at = now

    def ready(self, now: float) -> None:
        self._begun = now
        self.progressed_at = now

    def idle_s(self, now: float) -> float:
        return max(0.0, now - self.progressed_at)

    def next_at(self) -> float:
        """When the next limit falls due if nothing happens until then."""
        if self._begun is None:
            return self._start_by
        wall = self._begun + self._timeout_s
        return wall if self._stall_s is None else min(wall, self.progressed_at + self._stall_s)

    def broken(self, now: float) -> str | None:
        """The cause for which the attempt must end now, if any."""
        if now < self.next_at():
            return None
        if self._begun is None:
            return "start_timeout"
        if now < self._begun + self._timeout_s:
            return "stall"
        half = self._timeout_s / 2
        quiet = half if self._stall_s is None else min(self._stall_s, half)
        return "stall" if self.idle_s(now) >= quiet else "timeout"
