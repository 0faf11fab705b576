"""GPUs: what their hosts show, who has them, and who waits.

A GPU is never leased beyond what it has, however many ask at once. Those who wait are served by `core.gpus.allocation.grant`. A lease
or ticket whose owner is gone holds up nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from evalfleet.core.gpus.allocation import Decision, Grant, grant
from evalfleet.core.gpus.cards import SLACK_MB, Card, Lease, Reserved, Ticket, has_room
from evalfleet.errors import NotFound, WrongState
from evalfleet.model import Attempt, Device, Run
from evalfleet.store import rows
from evalfleet.store.attempts.records import Claim
from evalfleet.store.database.base import Database, Row
from evalfleet.store.events import Events
from evalfleet.store.gpus import rows as gpu_rows
from evalfleet.store.gpus.queries import GpuQueries
from evalfleet.store.gpus.records import AVOID_S, CLEAN_S, RENEW_S, Ask, Program, Turn
from evalfleet.store.runs.queries import RunQueries

_SETTLE_S = 2.0  # a report this soon after a card was found taken may have missed it too
_NO_OWNER: dict[str, Any] = dict.fromkeys(("run_id", "task_number", "number", "program", "pid", "born", "boot"))


class Gpus(GpuQueries):
    def __init__(self, database: Database, events: Events) -> None:
        super().__init__(database)
        self._events = events
        self._runs = RunQueries(database)

    # What hosts show

    def see(self, host: str, cards: Sequence[Card], seen_at: float) -> None:
        """Keep what a host shows. A report older than the one that is kept, or than the last release of a card, changes
        nothing. A card in quarantine that looks well for `CLEAN_S` leaves it: event `gpu.unquarantined`."""
        with self._db.transaction():
            before = {row["uuid"]: row for row in self._db.rows("select_gpus_of", host=host)}
            if not before and not cards:
                return
            leased = {one.uuid for one in self.leases() if one.host == host}
            changed = bool(self._db.rows("forget_gpus", host=host, uuids=rows.to_json([card.uuid for card in cards])))
            for card in cards:
                changed |= self._see_card(card, before.get(card.uuid), seen_at, is_leased=card.uuid in leased)
            if changed:
                self._next_turn()

    def _see_card(self, card: Card, before: Row | None, seen_at: float, *, is_leased: bool) -> bool:
        """Whether something may be possible that was not."""
        known = None if before is None else gpu_rows.card(before)
        base = None if known is None else known.base_mb
        alone = not (is_leased or card.foreign or card.held or (card.unexplained_mb or 0) > SLACK_MB)
        if alone and (known is None or known.quarantine is None):
            base = card.used_mb
        facts = gpu_rows.facts(card)
        kept = self._db.rows(
            "see_gpu",
            host=card.host,
            uuid=card.uuid,
            facts=facts,
            seen_at=seen_at,
            base_mb=base,
            is_clean=replace(card, base_mb=base).is_clean(),
            settled_s=AVOID_S - _SETTLE_S,
        )
        if not kept:
            return False
        row = kept[0]
        if row["clean_since"] is not None and seen_at - row["clean_since"] >= CLEAN_S:
            self._end_quarantine(row, f"evalfleet: it has looked well for {CLEAN_S:.0f} s")
            return True
        return before is None or before["facts"] != facts or before["avoid_until"] != row["avoid_until"]

    def avoid(self, host: str, uuids: Collection[str]) -> None:
        """Another process was found on these cards: they are not given out for `AVOID_S`, or until they look well."""
        with self._db.transaction():
            for uuid in uuids:
                self._db.rows("avoid_gpu", host=host, uuid=uuid, until=self._db.now() + AVOID_S)

    def quarantine(self, run: Run, host: str, uuid: str, reason: str) -> None:
        """Stop giving the card out. Event `gpu.quarantined`."""
        with self._db.transaction():
            found = self._db.rows(
                "quarantine_gpu", host=host, uuid=uuid, reason=reason, run_id=run.id, now=self._db.now()
            )
            for row in found:
                data = {"host": host, "uuid": uuid, "index": gpu_rows.card(row).index, "reason": reason}
                self._events.write(run.id, "gpu.quarantined", data)

    def unquarantine(self, host: str, uuid: str, by: str) -> None:
        """End the quarantine of a card. Event `gpu.unquarantined`. Raises NotFound, and WrongState where it is not in quarantine."""
        with self._db.transaction():
            found = [row for row in self._db.rows("select_gpus_of", host=host) if row["uuid"] == uuid]
            if not found:
                raise NotFound(f"host {host!r} has no GPU {uuid!r}; `evalfleet gpus` lists them")
            if found[0]["quarantine"] is None:
                raise WrongState(f"GPU {uuid} of host {host!r} is not in quarantine")
            self._end_quarantine(found[0], by)
            self._next_turn()

    def _end_quarantine(self, row: Row, by: str) -> None:
        self._db.rows("unquarantine_gpu", host=row["host"], uuid=row["uuid"])
        data = {"host": row["host"], "uuid": row["uuid"], "index": gpu_rows.card(row).index, "by": by}
        self._events.write(row["quarantined_for"], "gpu.unquarantined", data)

    # The queue

    def ask(self, run: Run, asks: Sequence[Ask], others: Iterable[str] = ()) -> Turn:
        """Let tasks of a run have GPUs, or wait for them. What is granted is leased by `Attempts.claim`; `batch` makes both one
        transaction. Tasks of the run that are not among `asks` stop waiting."""
        with self._db.transaction():
            if self._runs.get(run.id).epoch != run.epoch:
                return Turn(grants={}, number=self.turn())
            grants = self._queue(run.id, asks, others, {**_NO_OWNER, "run_id": run.id})
            return Turn(grants=grants, number=self.turn())

    def lease(self, program: Program, ask: Ask, others: Iterable[str] = ()) -> tuple[Device, ...] | None:
        """Let a program have all that it asks for. None: it waits, and keeps its place in the queue while it asks again.
        A program that has GPUs already gets those."""
        who = {"program": program.name, "pid": program.pid, "born": program.born, "boot": program.boot}
        with self._db.transaction():
            held = [lease for lease in self.leases(others) if lease.holder == program.token]
            if held:  # it asks again: it does not queue behind itself
                return tuple(Device(index=one.index, uuid=one.uuid, memory_mb=one.memory_mb) for one in held)
            granted = self._queue(program.token, [ask], others, {**_NO_OWNER, **who}).get(ask.task_number)
            if granted is None:
                return None
            devices = devices_of(granted)
            self._drop_ticket(program.token, None)
            self._insert_leases(program.token, granted.host, devices, who)
            return devices

    def renew(self, program: Program) -> bool:
        """Say that the program lives. False: its lease is not its own any more."""
        with self._db.transaction():
            return bool(self._db.rows("renew_gpu_leases", holder=program.token, now=self._db.now()))

    def free(self, program: Program) -> None:
        """Give back what the program has, and its place in the queue."""
        with self._db.transaction():
            self.release(program.token, programs=True)
            self.drop_tickets(program.token)

    def _queue(
        self, owner: str, asks: Sequence[Ask], others: Iterable[str], who: dict[str, Any]
    ) -> dict[int | None, Grant]:
        """Decide, and keep who waits for what."""
        self._release_dead()
        now = self._db.now()
        waiting = self._db.rows("select_gpu_tickets")
        mine = {row["task_number"]: row for row in waiting if row["owner"] == owner}
        theirs = [gpu_rows.ticket(row) for row in waiting if row["owner"] != owner and self._waits(row, now)]
        last = max((row["number"] for row in waiting), default=0)
        end = max((row["line"] for row in waiting), default=0) + 1
        line = min((row["line"] for row in mine.values()), default=end)
        own = [_ticket(owner, ask, mine.get(ask.task_number), last + turn, line) for turn, ask in enumerate(asks, 1)]
        decision = grant([*theirs, *own], self.cards(), self.leases(others), now)
        granted = {one.ticket.task_number: one for one in decision.grants if one.ticket.owner == owner}
        for ask, ticket in zip(asks, own, strict=True):
            if ask.waits and ask.task_number not in granted:
                row, reserved = mine.get(ask.task_number), decision.reserved[ticket.number]
                self._keep_ticket(ticket, reserved, row, who, now)
        self._keep_reserved(theirs, decision)
        unwanted = mine.keys() - {ask.task_number for ask in asks if ask.waits}
        for task_number in unwanted - granted.keys():
            self._drop_ticket(owner, task_number)
        return granted

    def _keep_ticket(
        self, ticket: Ticket, reserved: Reserved | None, row: Row | None, who: dict[str, Any], now: float
    ) -> None:
        text = None if reserved is None else rows.to_json(reserved)
        values = gpu_rows.ticket_columns(ticket)
        if row is None:
            self._db.rows("insert_gpu_ticket", **{**who, **values}, reserved=text, now=now)
        elif row["hosts"] != values["hosts"] or row["reserved"] != text or now - row["seen_at"] >= RENEW_S:
            self._db.rows("update_gpu_ticket", number=ticket.number, hosts=values["hosts"], reserved=text, seen_at=now)

    def _keep_reserved(self, tickets: Iterable[Ticket], decision: Decision) -> None:
        for ticket in tickets:
            reserved = decision.reserved.get(ticket.number, ticket.reserved)
            if reserved != ticket.reserved:
                text = None if reserved is None else rows.to_json(reserved)
                self._db.rows("reserve_gpus", number=ticket.number, reserved=text)

    def _drop_ticket(self, owner: str, task_number: int | None) -> list[int]:
        dropped = self._db.rows("delete_task_ticket", owner=owner, task_number=task_number or 0)
        if dropped:
            self._next_turn()
        return [row["number"] for row in dropped]

    def drop_tickets(self, owner: str) -> None:
        """Let an owner wait no more, inside the transaction of the caller. For the other parts of the store."""
        if self._db.rows("delete_gpu_tickets", owner=owner):
            self._next_turn()

    # Leases

    def lease_claimed(self, claim: Claim, attempt: Attempt) -> None:
        """Give an attempt the GPUs of its claim, inside the transaction of the claim. For the other parts of the store."""
        who = {"run_id": attempt.run_id, "task_number": attempt.task_number, "number": attempt.number}
        self._insert_leases(attempt.id, claim.host, claim.devices, who)
        for number in self._drop_ticket(attempt.run_id, attempt.task_number):
            self._db.rows("rejoin_gpu_line", owner=attempt.run_id, number=number)

    def _insert_leases(self, holder: str, host: str, devices: Iterable[Device], who: dict[str, Any]) -> None:
        for device in devices:
            self._db.rows(
                "insert_gpu_lease",
                host=host,
                uuid=device.uuid,
                holder=holder,
                place=device.index,
                memory_mb=device.memory_mb,
                now=self._db.now(),
                **{**_NO_OWNER, **who},
            )

    def is_free(self, claim: Claim) -> bool:
        """Whether the GPUs of a claim can be had, inside the transaction of the claim. For the other parts of the store."""
        cards = {card.uuid: card for card in self.cards() if card.host == claim.host}
        leases: dict[str, list[Lease]] = {}
        for lease in self.leases(claim.others):
            if lease.host == claim.host:
                leases.setdefault(lease.uuid, []).append(lease)
        return all(
            has_room(cards.get(device.uuid), leases.get(device.uuid, ()), device.memory_mb) for device in claim.devices
        )

    def release(self, holder: str, *, programs: bool = False) -> None:
        """Free the GPUs of a holder, inside the transaction of the caller. For the other parts of the store."""
        self._db.rows("release_gpus", holder=holder, programs=programs, now=self._db.now())
        if self._db.rows("delete_gpu_leases", holder=holder):
            self._next_turn()

    def _release_dead(self) -> None:
        """Free what dead programs had and waited for, and drop the tickets of runs without a driver."""
        now = self._db.now()
        for row in self._db.rows("select_program_leases"):
            if not self._program_lives(row, now):
                self.release(row["holder"], programs=True)
        for row in self._db.rows("select_gpu_tickets"):
            if self._is_dead(row, now):
                self.drop_tickets(row["owner"])

    def _next_turn(self) -> None:
        self._db.rows("next_gpu_turn")


def devices_of(granted: Grant) -> tuple[Device, ...]:
    asked = granted.ticket.memory_mb or None
    return tuple(Device(index=card.index, uuid=card.uuid, memory_mb=asked) for card in granted.cards)


def _ticket(owner: str, ask: Ask, row: Row | None, number: int, line: int) -> Ticket:
    return Ticket(
        number=number if row is None else row["number"],
        owner=owner,
        line=line,
        gpus=ask.gpus,
        hosts=ask.hosts,
        memory_mb=ask.memory_mb,
        least_mb=ask.least_mb,
        places=ask.places,
        pack=ask.pack,
        reserved=None if row is None else gpu_rows.reserved(row["reserved"]),
        task_number=ask.task_number,
    )
