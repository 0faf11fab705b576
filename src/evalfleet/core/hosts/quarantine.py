"""The quarantine of a host: before it gets work (again), it must pass a canary, a short program that no score depends on.

A host that is blamed for failures pauses first, and twice as long after each canary that fails. A host that is new to a run
starts with its canary. After the last failed one it is barred, until a person acts.

A canary says little about the programs of the run. So a host on which one task after the other failed is on trial after it: it gets
one of the run's tasks at a time, whose failure is never held against the task, and serves as before after the first verdict.
A trial that fails counts like a canary that does.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace


class Terms(Struct, frozen=True, kw_only=True):
    pause_s: float = 60.0  # before the first canary of a blamed host; doubles
    canaries: int = 3  # that may fail


class Quarantine(Struct, frozen=True, kw_only=True):
    """The state of one host; every method that moves it returns the next one. Canaries are named by their ids."""

    reason: str  # why it got here; the latest failed canary's words, where there is one
    terms: Terms = Terms()
    is_new: bool = False  # it is blamed for nothing
    failed: int = 0
    pauses: int = 0
    due_at: float | None = None  # when it may start its next canary; None: one is on its way, or it is barred
    canary: str | None = None  # the one that is on its way
    ends_by: float = 0.0  # when that one must have ended
    needs_trial: bool = False
    tried_since: float | None = None  # it is on trial

    @classmethod
    def of_blamed(
        cls, reason: str, now: float, terms: Terms, *, at_once: bool = False, needs_trial: bool = False
    ) -> Quarantine:
        """A host that is blamed; `at_once`: a person acted in the meantime, so it need not pause."""
        made = cls(reason=reason, terms=terms, needs_trial=needs_trial)
        return replace(made, due_at=now) if at_once else made._paused(now)

    @classmethod
    def of_new(cls, now: float, terms: Terms) -> Quarantine:
        return cls(reason="it is new", terms=terms, is_new=True, due_at=now)

    @property
    def is_barred(self) -> bool:
        return self.failed >= self.terms.canaries

    def is_due(self, now: float) -> bool:
        return self.due_at is not None and now >= self.due_at

    def started(self, canary: str, ends_by: float) -> Quarantine:
        return replace(self, canary=canary, ends_by=ends_by, due_at=None)

    def on_trial(self, now: float) -> Quarantine:
        """Its canary passed, and now it must do the run's own work."""
        return replace(self, canary=None, due_at=None, tried_since=now)

    def refuted(self, why: str, now: float) -> Quarantine:
        """Its canary or its trial failed."""
        moved = replace(self, reason=why, failed=self.failed + 1, canary=None, due_at=None, tried_since=None)
        return moved if moved.is_barred else moved._paused(now)

    def forgotten(self, now: float) -> Quarantine:
        """Its canary ended without saying anything, such as by a broken connection: another one may start."""
        return replace(self, canary=None, due_at=now)

    def _paused(self, now: float) -> Quarantine:
        pause_s = self.terms.pause_s * 2.0 ** min(self.pauses, 60)
        return replace(self, pauses=self.pauses + 1, due_at=now + pause_s)
