"""Leases of GPUs on this host: lock, probe, start one attempt after the other, and check that each GPU is left clean."""

from __future__ import annotations

import time

from .. import jsontext, states
from . import rules as check
from .locks import GpuLockHeld, GpuLocks, end_orphans
from .states import EDGES, GIVEN_BACK, LOOKING, STARTED, STARTING, WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Dict

    from ..attempt.spec import AttemptSpec
    from .devices import Gpus

    Row = Dict[str, Any]

STARTUP_S = 30.0
SETTLE_S = 10.0
SETTLE_AGAIN_S = 0.15
SHOWING_AGAIN_S = 0.5
LEAVING_S = 1.5  # a process that was killed is on its GPU for some moments more
LEAVING_AGAIN_S = 0.15
ORPHAN_S = 0.2
UNANSWERED = "the GPU driver does not answer"


class LeasedGpu:
    """The runner's state of one GPU while it has leases on it."""

    def __init__(self) -> None:
        self.leases: list[AttemptGpus] = []  # in the order of their coming
        self.baseline_mb: int | None = None  # used before the first of them started
        self.before: frozenset[int] = frozenset()  # who was on it then

    def running(self) -> dict[str, int | None]:
        return {lease.attempt: lease.memory_of(self) for lease in self.leases if lease.state in (STARTING, STARTED)}

    def adopted(self, row: Row) -> frozenset[int]:
        """Processes that are not visible here and that appeared while our attempts used the GPU."""
        if not self.running():
            return frozenset()
        hidden = (process["pid"] for process in row["processes"] or () if process["hidden"])
        return frozenset(hidden) - self.before


class GpuLeases:
    def __init__(self, gpus: Gpus) -> None:
        self.gpus = gpus
        self.locks = GpuLocks(gpus.spool)
        self._cards: dict[str, LeasedGpu] = {}
        self._watching = False

    def card(self, uuid: str) -> LeasedGpu:
        return self._cards.setdefault(uuid, LeasedGpu())

    def rows(self, rows: list[Row]) -> list[Row]:
        """Complete rows for a report: with foreign processes, unexplained memory, and who else holds the lock."""
        return [self._row(row) for row in rows]

    def _row(self, row: Row) -> Row:
        card = self._cards.get(row["uuid"]) or LeasedGpu()
        adopted = card.adopted(row)
        processes: list[Row] | None = row["processes"]
        if processes is not None:
            processes = [dict(one, ours=one["ours"] or one["pid"] in adopted) for one in processes]
        return dict(
            row,
            processes=processes,
            foreign=[process["pid"] for process in check.foreign(row, adopted)],
            unexplained_mb=check.unexplained_mb(row, card.running(), adopted),
            held=self.locks.outsider(row["uuid"]),
        )

    def next_turns(self) -> None:
        """Start the leases whose turn has come on all of their GPUs."""
        for lease in [lease for card in self._cards.values() for lease in card.leases]:
            if lease.state == WAITING and lease.has_turn():
                lease.check()
        self._watch_showing()

    def remove(self, uuid: str, lease: AttemptGpus) -> None:
        card = self._cards[uuid]
        card.leases.remove(lease)
        if not card.leases:
            del self._cards[uuid]

    def _watch_showing(self) -> None:
        """While another lease waits for a start-up on its GPU: check whether that memory is in use yet."""
        if not self._watching and any(lease.blocks() for card in self._cards.values() for lease in card.leases):
            self._watching = True
            self.gpus.loop.at(time.monotonic() + SHOWING_AGAIN_S, lambda: self.gpus.look(self._looked))

    def _looked(self, rows: list[Row] | None) -> None:
        self._watching = False
        found = {row["uuid"]: row for row in rows or ()}
        for lease in [lease for card in self._cards.values() for lease in card.leases]:
            lease.showing(found)
        self.next_turns()


class AttemptGpus:
    """The GPUs of one attempt: `begin`, then `go` or `refuse` is called; after `go`, `settle` (or `give_back`) ends it."""

    def __init__(
        self,
        leases: GpuLeases,
        attempt: str,
        spec: AttemptSpec,
        go: Callable[[dict[str, str], list[int]], None],
        refuse: Callable[[str], None],
    ) -> None:
        """
        Args:
            go: called with the variables and the open locks that the attempt's process inherits.
            refuse: called with the reason why it must not start.
        """
        self.attempt = attempt
        self.state = WAITING
        self._leases = leases
        self._gpus = leases.gpus
        self._wanted = {gpu["uuid"]: gpu["memory_mb"] for gpu in spec.gpus}
        self._style = spec.gpu_env
        self._go = go
        self._refuse = refuse
        self._fds: list[int] = []
        self._cards: dict[str, LeasedGpu] = {}
        self._showing: dict[str, check.StartupMemory] = {}
        self._before: dict[str, int | None] = {}
        self._up_at = 0.0
        self._refuse_at = 0.0
        self._settle_s = SETTLE_S

    def _move(self, state: str) -> None:
        self.state = states.moved(EDGES, self.state, state)

    def begin(self) -> None:
        """Take the locks and wait for its turn."""
        for uuid in sorted(self._wanted):
            try:
                self._fds.append(self._leases.locks.take(uuid, self.attempt))
            except GpuLockHeld as held:
                self._give_up("GPU %s is locked by %s" % (uuid, held.words))
                return
        for uuid, memory in self._wanted.items():
            other = next(
                (lease for lease in self._leases.card(uuid).leases if memory is None or lease.is_whole(uuid)), None
            )
            if other is not None:
                self._give_up("GPU %s is leased by attempt %s, and cannot be shared" % (uuid, other.attempt))
                return
            self._cards[uuid] = self._leases.card(uuid)
            self._cards[uuid].leases.append(self)
        self._leases.next_turns()

    def is_whole(self, uuid: str) -> bool:
        return self._wanted[uuid] is None

    def memory_of(self, card: LeasedGpu) -> int | None:
        return next(self._wanted[uuid] for uuid, one in self._cards.items() if one is card)

    def has_turn(self) -> bool:
        """Whether no earlier lease on one of the GPUs is starting up, or waiting to."""
        return all(
            next((lease for lease in card.leases if lease.state != STARTED), None) is self
            for card in self._cards.values()
        )

    def blocks(self) -> bool:
        """Whether another lease waits until this one has started up."""
        return self.state == STARTING and any(
            lease.state == WAITING for card in self._cards.values() for lease in card.leases
        )

    def check(self) -> None:
        """Probe the GPUs again; then start, or refuse."""
        self._move(LOOKING)
        self._refuse_at = time.monotonic() + LEAVING_S
        self._gpus.look(self._looked)

    def _looked(self, rows: list[Row] | None) -> None:
        if self.state != LOOKING:
            return  # it was cancelled meanwhile
        found = {row["uuid"]: row for row in rows or ()}
        reason = UNANSWERED if rows is None else self._reason(found)
        if reason is not None and rows is not None and time.monotonic() < self._refuse_at:
            self._gpus.loop.at(time.monotonic() + LEAVING_AGAIN_S, lambda: self._gpus.look(self._looked))
            return
        if reason is not None:
            self._give_up(reason)
            return
        limits_s = (0.0, 0.0)
        for uuid, card in self._cards.items():
            row = found[uuid]
            if not card.running():
                card.baseline_mb = row["used_mb"]
                card.before = frozenset(process["pid"] for process in row["processes"] or ())
            self._before[uuid] = row["used_mb"]
            self._showing[uuid] = check.StartupMemory(self._wanted[uuid])
            # a stand-in may say that its cards are quicker
            startup_s, settle_s = float(row.get("startup_s", STARTUP_S)), float(row.get("settle_s", SETTLE_S))
            limits_s = (max(limits_s[0], startup_s), max(limits_s[1], settle_s))
        self._move(STARTING if limits_s[0] > 0 else STARTED)
        self._up_at = time.monotonic() + limits_s[0]
        self._settle_s = limits_s[1]
        rows = [found[uuid] for uuid in self._wanted]
        leased = [{"uuid": row["uuid"], "index": row["index"], "memory_mb": self._wanted[row["uuid"]]} for row in rows]
        env = check.variables(rows, self._style)
        env["EVALFLEET_GPUS"] = jsontext.encode(leased).decode().strip()
        env["EVALFLEET_GPU_LOCK_FDS"] = ",".join(map(str, self._fds))
        self._go(env, self._fds)
        self._leases.next_turns()

    def _reason(self, found: dict[str, Row]) -> str | None:
        for uuid, card in self._cards.items():
            row = found.get(uuid)
            if row is None:
                return "GPU %s is not on this host, which has %s" % (uuid, ", ".join(sorted(found)) or "none")
            others = {name: memory for name, memory in card.running().items() if name != self.attempt}
            text = check.refusal(row, self._wanted[uuid], others, card.adopted(row))
            if text is not None:
                return text
        return None

    def showing(self, found: dict[str, Row]) -> None:
        """Use a probe during start-up. The start-up ends at its own deadline at the latest."""
        if self.state != STARTING:
            return
        now = time.monotonic()
        shown = [
            self._showing[uuid].feed(check.used_by(found[uuid], self.attempt, self._before[uuid]), now)
            for uuid in self._wanted
            if uuid in found
        ]
        if now >= self._up_at or (shown and all(shown)):
            self._move(STARTED)

    def ready(self) -> None:
        """The attempt reported that it is ready: its start-up is over."""
        if self.state == STARTING:
            self._move(STARTED)
            self._leases.next_turns()

    def give_back(self) -> None:
        """Release without a probe: nothing was started, or there is no time to wait."""
        if self.state != GIVEN_BACK:
            self._leave()

    def _give_up(self, reason: str) -> None:
        self._leave()
        self._refuse(reason)

    def settle(self, done: Callable[[list[dict[str, Any]]], None]) -> None:
        """The attempt's process tree is dead: wait until its GPUs are clean, then release them. `done` gets those that are not."""
        deadline = time.monotonic() + self._settle_s
        self._move(STARTED)
        self._leases.next_turns()

        def look() -> None:
            self._gpus.look(looked)

        def looked(rows: list[Row] | None) -> None:
            if self.state == GIVEN_BACK:
                return
            dirty = self._left_behind(rows)
            if dirty and time.monotonic() < deadline:
                self._gpus.loop.at(time.monotonic() + SETTLE_AGAIN_S, look)
                return
            known = {entry["uuid"] for entry in dirty}
            done(dirty + [entry for entry in self._leave() if entry["uuid"] not in known])

        look()

    def _left_behind(self, rows: list[Row] | None) -> list[dict[str, Any]]:
        found = {row["uuid"]: row for row in rows or ()}
        dirty: list[dict[str, Any]] = []
        for uuid, card in self._cards.items():
            row = found.get(uuid)
            if row is None:
                reason = UNANSWERED if rows is None else "it is no longer there"
                dirty.append({"uuid": uuid, "index": None, "reason": reason, "pids": []})
                continue
            alone = set(card.running()) <= {self.attempt}
            text = check.left_behind(row, self.attempt, card.baseline_mb, alone, card.adopted(row))
            if text is not None:
                pids = [process["pid"] for process in check.computing(row)]
                dirty.append({"uuid": uuid, "index": row["index"], "reason": text, "pids": pids})
        return dirty

    def _leave(self) -> list[dict[str, Any]]:
        """Release everything; returns the GPUs whose lock a process of the attempt still holds."""
        self._move(GIVEN_BACK)
        dirty: list[dict[str, Any]] = []
        for uuid in self._cards:
            self._leases.remove(uuid, self)
        for uuid in self._wanted:
            if self._leases.locks.drop(uuid, self.attempt):
                left = end_orphans(self._gpus.spool, uuid, ORPHAN_S)
                if left is not None:
                    dirty.append(
                        {"uuid": uuid, "index": None, "reason": "it is locked by %s" % left.words, "pids": left.pids}
                    )
        self._leases.next_turns()
        return dirty
