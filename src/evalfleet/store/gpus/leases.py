"""GPUs: what their hosts show, who has them, and who waits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from evalfleet.core.gpus.allocation import Decision, Grant, grant
from evalfleet.core.gpus.cards import SLACK_MB, Card, Lease, Reserved, Ticket, has_room
from evalfleet.errors import NotFound, WrongState
from evalfleet.model import Attempt, Device, Run
from evalfleet.store.base.gpus import AVOID_S, CLEAN_S, RENEW_S, Ask, Program, Turn
from evalfleet.store.base.store import Claim
from evalfleet.store.gpus import rows as gpu_rows
from evalfleet.store.runs import rows
from evalfleet.store.runs.events import Recording

_SETTLE_S = 2.0  # a look so soon after a card was found taken may have missed it too
_NOBODY: dict[str, Any] = dict.fromkeys(("run_id", "task_number", "number", "program", "pid", "born", "boot"))


class Leasing(Recording):
    """The part of `Store` that keeps GPUs."""

    # What hosts show

    def see_gpus(self, host: str, cards: Sequence[Card], seen_at: float) -> None:
        with self._db.transaction():
            before = {row["uuid"]: row for row in self._db.rows("select_gpus_of", host=host)}
            if not before and not cards:
                return
            leased = {one.uuid for one in self.gpu_leases() if one.host == host}
            changed = bool(self._db.rows("forget_gpus", host=host, uuids=rows.to_json([card.uuid for card in cards])))
            for card in cards:
                changed |= self._see(card, before.get(card.uuid), seen_at, is_leased=card.uuid in leased)
            if changed:
                self._next_turn()

    def _see(self, card: Card, before: rows.Row | None, seen_at: float, *, is_leased: bool) -> bool:
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
            self._pardon(row, f"nobody: it has looked well for {CLEAN_S:.0f} s")
            return True
        return before is None or before["facts"] != facts or before["avoid_until"] != row["avoid_until"]

    def avoid_gpus(self, host: str, uuids: Collection[str]) -> None:
        with self._db.transaction():
            for uuid in uuids:
                self._db.rows("avoid_gpu", host=host, uuid=uuid, until=self.now() + AVOID_S)

    def quarantine_gpu(self, run: Run, host: str, uuid: str, reason: str) -> None:
        with self._db.transaction():
            found = self._db.rows("quarantine_gpu", host=host, uuid=uuid, reason=reason, run_id=run.id, now=self.now())
            for row in found:
                data = {"host": host, "uuid": uuid, "index": gpu_rows.card(row).index, "reason": reason}
                self._event(run.id, "gpu.quarantined", data)

    def pardon_gpu(self, host: str, uuid: str, by: str) -> None:
        with self._db.transaction():
            found = [row for row in self._db.rows("select_gpus_of", host=host) if row["uuid"] == uuid]
            if not found:
                raise NotFound(f"host {host!r} has no GPU {uuid!r}; `evalfleet gpus` lists them")
            if found[0]["quarantine"] is None:
                raise WrongState(f"GPU {uuid} of host {host!r} is not in quarantine")
            self._pardon(found[0], by)
            self._next_turn()

    def _pardon(self, row: rows.Row, by: str) -> None:
        self._db.rows("pardon_gpu", host=row["host"], uuid=row["uuid"])
        data = {"host": row["host"], "uuid": row["uuid"], "index": gpu_rows.card(row).index, "by": by}
        self._event(row["quarantined_for"], "gpu.pardoned", data)

    # The queue

    def ask_gpus(self, run: Run, asks: Sequence[Ask], others: Iterable[str] = ()) -> Turn:
        with self._db.transaction():
            if self.run(run.id).epoch != run.epoch:
                return Turn(grants={}, number=self.gpu_turn())
            grants = self._queue(run.id, asks, others, {**_NOBODY, "run_id": run.id})
            return Turn(grants=grants, number=self.gpu_turn())

    def lease_gpus(self, program: Program, ask: Ask, others: Iterable[str] = ()) -> tuple[Device, ...] | None:
        who = {"program": program.name, "pid": program.pid, "born": program.born, "boot": program.boot}
        with self._db.transaction():
            held = [lease for lease in self.gpu_leases(others) if lease.holder == program.token]
            if held:  # said again: it does not queue behind itself
                return tuple(Device(index=one.index, uuid=one.uuid, memory_mb=one.memory_mb) for one in held)
            granted = self._queue(program.token, [ask], others, {**_NOBODY, **who}).get(ask.task_number)
            if granted is None:
                return None
            devices = devices_of(granted)
            self._drop_ticket(program.token, None)
            self._lease(program.token, granted.host, devices, who)
            return devices

    def renew_gpus(self, program: Program) -> bool:
        with self._db.transaction():
            return bool(self._db.rows("renew_gpu_leases", holder=program.token, now=self.now()))

    def free_gpus(self, program: Program) -> None:
        with self._db.transaction():
            self._release(program.token, programs=True)
            self._drop_tickets(program.token)

    def _queue(
        self, owner: str, asks: Sequence[Ask], others: Iterable[str], who: dict[str, Any]
    ) -> dict[int | None, Grant]:
        """Decide, and keep who waits for what."""
        self._bury()
        now = self.now()
        waiting = self._db.rows("select_gpu_tickets")
        mine = {row["task_number"]: row for row in waiting if row["owner"] == owner}
        theirs = [gpu_rows.ticket(row) for row in waiting if row["owner"] != owner and self._looks(row, now)]
        last = max((row["number"] for row in waiting), default=0)
        end = max((row["line"] for row in waiting), default=0) + 1
        line = min((row["line"] for row in mine.values()), default=end)
        own = [_ticket(owner, ask, mine.get(ask.task_number), last + turn, line) for turn, ask in enumerate(asks, 1)]
        decision = grant([*theirs, *own], self.gpus(), self.gpu_leases(others), now)
        granted = {one.ticket.task_number: one for one in decision.grants if one.ticket.owner == owner}
        for ask, ticket in zip(asks, own, strict=True):
            if ask.waits and ask.task_number not in granted:
                row, wish = mine.get(ask.task_number), decision.reserved[ticket.number]
                self._keep_ticket(ticket, wish, row, who, now)
        self._keep_reserved(theirs, decision)
        unwanted = mine.keys() - {ask.task_number for ask in asks if ask.waits}
        for task_number in unwanted - granted.keys():
            self._drop_ticket(owner, task_number)
        return granted

    def _keep_ticket(
        self, ticket: Ticket, reserved: Reserved | None, row: rows.Row | None, who: dict[str, Any], now: float
    ) -> None:
        wish = None if reserved is None else rows.to_json(reserved)
        values = gpu_rows.ticket_columns(ticket)
        if row is None:
            self._db.rows("insert_gpu_ticket", **{**who, **values}, reserved=wish, now=now)
        elif row["hosts"] != values["hosts"] or row["reserved"] != wish or now - row["seen_at"] >= RENEW_S:
            self._db.rows("update_gpu_ticket", number=ticket.number, hosts=values["hosts"], reserved=wish, seen_at=now)

    def _keep_reserved(self, tickets: Iterable[Ticket], decision: Decision) -> None:
        for ticket in tickets:
            wish = decision.reserved.get(ticket.number, ticket.reserved)
            if wish != ticket.reserved:
                text = None if wish is None else rows.to_json(wish)
                self._db.rows("reserve_gpus", number=ticket.number, reserved=text)

    def _drop_ticket(self, owner: str, task_number: int | None) -> list[int]:
        dropped = self._db.rows("delete_task_ticket", owner=owner, task_number=task_number or 0)
        if dropped:
            self._next_turn()
        return [row["number"] for row in dropped]

    def _drop_tickets(self, owner: str) -> None:
        if self._db.rows("delete_gpu_tickets", owner=owner):
            self._next_turn()

    # Leases

    def _lease_claimed(self, claim: Claim, attempt: Attempt) -> None:
        who = {"run_id": attempt.run_id, "task_number": attempt.task_number, "number": attempt.number}
        self._lease(attempt.id, claim.host, claim.devices, who)
        for number in self._drop_ticket(attempt.run_id, attempt.task_number):
            self._db.rows("rejoin_gpu_line", owner=attempt.run_id, number=number)

    def _lease(self, holder: str, host: str, devices: Iterable[Device], who: dict[str, Any]) -> None:
        for device in devices:
            self._db.rows(
                "insert_gpu_lease",
                host=host,
                uuid=device.uuid,
                holder=holder,
                place=device.index,
                memory_mb=device.memory_mb,
                now=self.now(),
                **{**_NOBODY, **who},
            )

    def _is_free(self, claim: Claim) -> bool:
        """Whether the GPUs of a claim are what nobody has."""
        cards = {card.uuid: card for card in self.gpus() if card.host == claim.host}
        leases: dict[str, list[Lease]] = {}
        for lease in self.gpu_leases(claim.others):
            if lease.host == claim.host:
                leases.setdefault(lease.uuid, []).append(lease)
        return all(
            has_room(cards.get(device.uuid), leases.get(device.uuid, ()), device.memory_mb) for device in claim.devices
        )

    def _release(self, holder: str, *, programs: bool = False) -> None:
        """Whatever the holder has is free again."""
        self._db.rows("release_gpus", holder=holder, programs=programs, now=self.now())
        if self._db.rows("delete_gpu_leases", holder=holder):
            self._next_turn()

    def _bury(self) -> None:
        """Take what dead programs had and waited for, and the tickets of runs that nobody drives."""
        now = self.now()
        for row in self._db.rows("select_program_leases"):
            if not self._runs(row, now):
                self._release(row["holder"], programs=True)
        for row in self._db.rows("select_gpu_tickets"):
            if self._is_dead(row, now):
                self._drop_tickets(row["owner"])

    def _next_turn(self) -> None:
        self._db.rows("next_gpu_turn")


def devices_of(granted: Grant) -> tuple[Device, ...]:
    asked = granted.ticket.memory_mb or None
    return tuple(Device(index=card.index, uuid=card.uuid, memory_mb=asked) for card in granted.cards)


def _ticket(owner: str, ask: Ask, row: rows.Row | None, number: int, line: int) -> Ticket:
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
