"""Pinned runs: nothing of them is removed by retention."""

from __future__ import annotations

from msgspec import Struct

from evalfleet.engine.supervisor import owner_name
from evalfleet.errors import WrongState
from evalfleet.model import Run
from evalfleet.store.store import Store


class PinnedRun(Struct, frozen=True, kw_only=True):
    run: str
    pinned: bool
    reason: str | None = None


def pin(store: Store, run: Run, *, reason: str | None = None, by: str | None = None) -> PinnedRun:
    """Let nothing of the run be removed. Pinning again changes the reason."""
    store.retention.pin(run.id, by or owner_name(), reason)
    return PinnedRun(run=run.id, pinned=True, reason=reason)


def unpin(store: Store, run: Run, *, by: str | None = None) -> PinnedRun:
    """Raises WrongState where it is not pinned."""
    if not store.retention.unpin(run.id, by or owner_name()):
        raise WrongState(f"run {run.id} is not pinned")
    return PinnedRun(run=run.id, pinned=False)
