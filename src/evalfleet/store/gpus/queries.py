"""GPUs: reading."""

from __future__ import annotations

from collections.abc import Iterable

from evalfleet.core.gpus.allocation import grant, in_turn
from evalfleet.core.gpus.cards import Card, Lease, Ticket
from evalfleet.store import rows
from evalfleet.store.database.base import Database, Row
from evalfleet.store.gpus import rows as gpu_rows
from evalfleet.store.gpus.records import PROGRAM_S, RENEW_S, TICKET_S
from evalfleet.store.home import process


class GpuQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def cards(self) -> list[Card]:
        """All GPUs that were seen, by host and index."""
        return sorted(map(gpu_rows.card, self._db.rows("select_gpus")), key=lambda card: (card.host, card.index))

    def leases(self, others: Iterable[str] = ()) -> list[Lease]:
        """Leases of live attempts and programs. An attempt whose own lease has expired counts as long as it is among
        `others`, which its host is known to run."""
        now = self._db.now()
        found = self._db.rows("select_gpu_leases", now=now, others=rows.to_json(sorted(others)))
        return [gpu_rows.lease(row) for row in found if row["run_id"] is not None or self._program_lives(row, now)]

    def tickets(self) -> list[Ticket]:
        """Tickets whose owners live and wait, in the order in which they are served."""
        now = self._db.now()
        waiting = self._db.rows("select_gpu_tickets")
        return in_turn(gpu_rows.ticket(row) for row in waiting if self._waits(row, now))

    def turn(self) -> int:
        """A number that changes whenever one that waits may go on. Cheap enough to poll."""
        return self._db.rows("select_gpu_turn")[0]["number"]

    def is_turn(self, owner: str) -> bool:
        """Whether a ticket of that run or program would be served now: only then it is worth a transaction to ask."""
        with self._db.snapshot():
            tickets = self.tickets()
            if not any(ticket.owner == owner for ticket in tickets):
                return True  # we were silent for too long: only asking tells
            decision = grant(tickets, self.cards(), self.leases(), self._db.now())
        return any(one.ticket.owner == owner for one in decision.grants)

    def _program_lives(self, row: Row, now: float) -> bool:
        """Whether the program of a lease lives."""
        alive = process.lives(row["pid"], row["born"], row["boot"])
        return now - row["seen_at"] <= PROGRAM_S if alive is None else alive

    def _waits(self, row: Row, now: float) -> bool:
        """Whether the owner of a ticket lives and has renewed it."""
        return now - row["seen_at"] <= TICKET_S and not self._is_dead(row, now)

    def _is_dead(self, row: Row, now: float) -> bool:
        """Whether the owner of a ticket is dead. A run that has just renewed its ticket is not checked."""
        if row["run_id"] is None:
            return process.lives(row["pid"], row["born"], row["boot"]) is False
        return now - row["seen_at"] > 1.5 * RENEW_S and self._db.lock_owner(row["run_id"]) is None
