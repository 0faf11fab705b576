"""The reading half of what a store keeps of GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from evalfleet.core.gpus.allocation import grant, in_turn
from evalfleet.core.gpus.cards import Card, Lease, Ticket
from evalfleet.store.base.gpus import PROGRAM_S, RENEW_S, TICKET_S
from evalfleet.store.gpus import rows as gpu_rows
from evalfleet.store.runs import rows

if TYPE_CHECKING:
    from evalfleet.store.runs.queries import Database


class GpuReading:
    """The part of `StoreReader` that tells of GPUs."""

    _db: Database

    def gpus(self) -> list[Card]:
        return sorted(map(gpu_rows.card, self._db.rows("select_gpus")), key=lambda card: (card.host, card.index))

    def gpu_leases(self, others: Iterable[str] = ()) -> list[Lease]:
        now = self._db.now()
        found = self._db.rows("select_gpu_leases", now=now, others=rows.to_json(sorted(others)))
        return [gpu_rows.lease(row) for row in found if row["run_id"] is not None or self._runs(row, now)]

    def gpu_tickets(self) -> list[Ticket]:
        now = self._db.now()
        waiting = self._db.rows("select_gpu_tickets")
        return in_turn(gpu_rows.ticket(row) for row in waiting if self._looks(row, now))

    def gpu_turn(self) -> int:
        return self._db.rows("select_gpu_turn")[0]["number"]

    def is_gpu_turn(self, owner: str) -> bool:
        with self._db.snapshot():
            tickets = self.gpu_tickets()
            if not any(ticket.owner == owner for ticket in tickets):
                return True  # we were silent for too long: only asking tells
            decision = grant(tickets, self.gpus(), self.gpu_leases(), self._db.now())
        return any(one.ticket.owner == owner for one in decision.grants)

    def _runs(self, row: rows.Row, now: float) -> bool:
        """Whether the program of a lease lives."""
        alive = self._db.lives(row["pid"], row["born"], row["boot"])
        return now - row["seen_at"] <= PROGRAM_S if alive is None else alive

    def _looks(self, row: rows.Row, now: float) -> bool:
        """Whether somebody who lives waits with this ticket."""
        return now - row["seen_at"] <= TICKET_S and not self._is_dead(row, now)

    def _is_dead(self, row: rows.Row, now: float) -> bool:
        """Whether nobody can come for a ticket any more. Of a run that just looked this is not asked."""
        if row["run_id"] is None:
            return self._db.lives(row["pid"], row["born"], row["boot"]) is False
        return now - row["seen_at"] > 1.5 * RENEW_S and self._db.driver(row["run_id"]) is None
