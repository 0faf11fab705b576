"""GPUs: model, holders, queue, and why one that looks free is not leased."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from evalfleet.answers.gpus import Gpu, GpuHolder, GpuList, GpuProcess, GpuQuarantine, GpuTicket
from evalfleet.core.gpus.cards import SLACK_MB, Card, Lease, Ticket
from evalfleet.errors import NotFound
from evalfleet.store.reader import StoreReader


def gpus_facts(store: StoreReader | None, seen: Sequence[Card] = ()) -> GpuList:
    """All GPUs that are known, and the queue for them: `evalfleet gpus --json`.

    Args:
        store: None where the home has none yet.
        seen: what a look just showed, where that is newer than what the store has.
    """
    if store is None:
        return GpuList(gpus=[_card(card, [], set()) for card in seen], waiting=[])
    with store.snapshot():
        known = {(card.host, card.uuid): card for card in store.gpus.cards()}
        for card in seen:
            old = known.get((card.host, card.uuid))
            known[card.host, card.uuid] = card if old is None else _newer(card, old)
        names = _Names(store)
        on: dict[tuple[str, str], list[GpuHolder]] = {}
        pids: dict[tuple[str, str], set[int]] = {}
        for lease in store.gpus.leases():
            on.setdefault((lease.host, lease.uuid), []).append(names.holder(lease))
            if lease.pid is not None:
                pids.setdefault((lease.host, lease.uuid), set()).add(lease.pid)
        cards = sorted(known.values(), key=lambda card: (card.host, card.index))
        return GpuList(
            gpus=[
                _card(card, on.get((card.host, card.uuid), []), pids.get((card.host, card.uuid), set()))
                for card in cards
            ],
            waiting=[names.waiter(ticket, place) for place, ticket in enumerate(store.gpus.tickets(), 1)],
        )


def _newer(card: Card, old: Card) -> Card:
    return replace(
        card,
        base_mb=old.base_mb,
        quarantine=old.quarantine,
        quarantined_at=old.quarantined_at,
        avoid_until=old.avoid_until,
    )


def _card(card: Card, holders: list[GpuHolder], known: set[int]) -> Gpu:
    told = {process["pid"]: process for process in card.processes or ()}
    quarantine = GpuQuarantine(reason=card.quarantine, since_at=card.quarantined_at or 0.0) if card.quarantine else None
    return Gpu.copy_of(
        card,
        quarantine=quarantine,
        foreign=[
            GpuProcess(pid=pid, memory_mb=told.get(pid, {}).get("memory_mb"), name=told.get(pid, {}).get("name"))
            for pid in card.strangers(known)
        ],
        unexplained_mb=card.unexplained_mb if (card.unexplained_mb or 0) > SLACK_MB else None,
        held=card.held if not holders else None,
        holders=holders,
    )


class _Names:
    """The words for runs and tasks, each looked up once."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store
        self._runs: dict[str, str | None] = {}

    def holder(self, lease: Lease) -> GpuHolder:
        worker, attempt = None, None
        if lease.run_id is not None and lease.task_number is not None:
            attempt = lease.holder
            found = self._store.attempts.all(lease.run_id, lease.task_number)
            worker = next((one.worker for one in found if one.id == attempt), None)
        task = self._of(lease.run_id, lease.task_number)
        return GpuHolder.copy_of(lease, **task, attempt=attempt, worker=worker)

    def waiter(self, ticket: Ticket, position: int) -> GpuTicket:
        run_id = ticket.owner if ticket.task_number is not None else None
        task = self._of(run_id, ticket.task_number)
        memory_mb = ticket.memory_mb or None
        return GpuTicket.copy_of(ticket, **task, ticket=ticket.number, memory_mb=memory_mb, position=position)

    def _of(self, run_id: str | None, task_number: int | None) -> dict[str, Any]:
        if run_id is None or task_number is None:
            return {"run": None, "run_name": None, "task": None, "key": None}
        if run_id not in self._runs:
            self._runs[run_id] = self._store.runs.get(run_id).name
        try:
            key: str | None = self._store.tasks.at(run_id, task_number).key
        except NotFound:
            key = None
        return {"run": run_id, "run_name": self._runs[run_id], "task": task_number, "key": key}
