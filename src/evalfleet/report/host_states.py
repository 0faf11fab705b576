"""The states of a run's hosts, folded from its events; the edges are `core.transitions.WORKER_EDGES`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from evalfleet.model import Event, WorkerState

_BEGINS = {
    "worker.suspected": WorkerState.SUSPECT,
    "worker.lost": WorkerState.LOST,
    "worker.draining": WorkerState.DRAINING,
    "worker.quarantined": WorkerState.QUARANTINED,
    "worker.canary_failed": WorkerState.QUARANTINED,
    "worker.left": WorkerState.GONE,
}
_SILENT = {WorkerState.SUSPECT, WorkerState.LOST}
# The gravest comes first.
_ORDER = (
    WorkerState.GONE,
    WorkerState.LOST,
    WorkerState.DRAINING,
    WorkerState.QUARANTINED,
    WorkerState.SUSPECT,
)


def awaited(events: Iterable[Event]) -> str | None:
    """Which runs hold the slots that the run waits for; None: it waits for none.

    Args:
        events: as for `standings`.
    """
    waits: str | None = None
    for event in events:
        if event.type == "worker.awaited":
            waits = str(event.data.get("reason"))
        elif event.type in ("worker.granted", "run.taken"):
            waits = None
    return waits


def standings(events: Iterable[Event]) -> dict[str, WorkerState]:
    """The hosts that are not just ready or busy, and what they are.

    Args:
        events: those of workers, and of controllers that took the run, in their order. A new controller sees for itself.
    """
    found: dict[str, set[WorkerState]] = {}
    for event in events:
        if event.type == "run.taken":
            found.clear()
            continue
        if "host" not in event.data:
            continue  # about one worker, by an operator
        states = found.setdefault(str(event.data["host"]), set())
        if event.type in _BEGINS:
            states.add(_BEGINS[event.type])
        elif event.type == "worker.joined":
            states.clear()
        elif event.type == "worker.returned":
            states -= {event.data["from"]} if "from" in event.data else _SILENT
    return {host: next(state for state in _ORDER if state in states) for host, states in found.items() if states}
