"""How often a box is asked. Pure."""

from __future__ import annotations

GROWTH = 1.5


class Pace:
    """Pauses between requests that found nothing: they grow from `quick_s` to `busy_s` while work is live, else to `idle_s`."""

    def __init__(self, quick_s: float, busy_s: float, idle_s: float) -> None:
        self.quick_s = quick_s
        self.busy_s = busy_s
        self.idle_s = idle_s

    def start(self) -> Pauses:
        return Pauses(self)

    def per_hour(self, *, busy: bool) -> float:
        """Requests of one poller in an hour without messages."""
        return 3600.0 / (self.busy_s if busy else self.idle_s)


class Pauses:
    """The pauses of one poller."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._s = pace.quick_s

    def found(self) -> None:
        """A message came or went: the next may follow soon."""
        self._s = self._pace.quick_s

    def next(self, *, busy: bool) -> float:
        most = self._pace.busy_s if busy else self._pace.idle_s
        pause, self._s = min(self._s, most), min(self._s * GROWTH, self._pace.idle_s)
        return pause


FOLDER = Pace(0.02, 0.5, 1.0)
BLOBS = Pace(0.2, 0.6, 1.0)  # orders reach an idle node within two seconds, too
