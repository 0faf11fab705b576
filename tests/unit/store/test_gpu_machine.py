"""The queue for GPUs under anything that may happen: random requests, ends, crashes, strangers, quarantine."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace
from tests.support.postgres import Server
from tests.support.store import cases

from evalfleet.core.gpus.allocation import Grant, in_turn
from evalfleet.core.gpus.cards import Card, Ticket, blocked
from evalfleet.core.gpus.room import Room
from evalfleet.model import Attempt, AttemptState, Requests, Run
from evalfleet.store.gpus.gpus import devices_of
from evalfleet.store.gpus.records import AVOID_S, CLEAN_S, TICKET_S, Ask, Program
from evalfleet.store.home import process
from evalfleet.store.open import open_store
from evalfleet.testing.clock import FakeClock

HERE = frozenset({"h"})
CARDS = 5
SIZE = 80
TASKS = 40
LEASE_S = 60.0


class Gpus(RuleBasedStateMachine):
    """Three runs and a few programs on one machine of five cards."""

    @initialize()
    def begin(self) -> None:
        self.folders = ExitStack()
        self.clock = FakeClock()
        self.store = open_store(self.home(), self.clock)
        self.alive: set[str] = set()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(process, "lives", lambda pid, born, boot: born in self.alive)
        self.runs = [cases.drive(self.store, TASKS) for _ in range(3)]
        self.next_task = dict.fromkeys((run.id for run in self.runs), 1)
        self.wants: dict[str, list[Ask]] = {run.id: [] for run in self.runs}
        self.live: dict[str, list[Attempt]] = {run.id: [] for run in self.runs}
        self.programs: dict[int, tuple[Program, Ask, bool]] = {}  # by pid; whether it has its cards
        self.strangers: set[int] = set()
        self.look()

    def home(self) -> Path:
        folder = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        return Path(self.folders.enter_context(folder))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            try:
                self.everybody_is_served_in_the_end()
            finally:
                self.patch.undo()
                self.store.close()
                self.folders.close()

    def look(self) -> None:
        self.clock.advance(0.01)
        cards = [
            Card(
                host="h", index=n, uuid=f"G{n}", memory_mb=SIZE, used_mb=0, utilization=0, processes=(),
                foreign=(99,) if n in self.strangers else (),
            ) for n in range(CARDS)
        ]  # fmt: skip
        self.store.gpus.see("h", cards, self.clock())

    # What may happen

    @rule(which=st.integers(0, 2), gpus=st.integers(1, CARDS), memory=st.sampled_from([0, 0, 30, 50]))
    def want(self, which: int, gpus: int, memory: int) -> None:
        run = self.runs[which]
        if self.next_task[run.id] > TASKS:
            return
        task, self.next_task[run.id] = self.next_task[run.id], self.next_task[run.id] + 1
        self.wants[run.id].append(Ask(gpus=gpus, memory_mb=memory, hosts=HERE, task_number=task))
        self.turn_of(run)

    @rule(which=st.integers(0, 2))
    def poll(self, which: int) -> None:
        self.turn_of(self.runs[which])

    @rule(which=st.integers(0, 2), chosen=st.integers(0, 99))
    def finish(self, which: int, chosen: int) -> None:
        run = self.runs[which]
        if self.live[run.id]:
            attempt = self.live[run.id].pop(chosen % len(self.live[run.id]))
            cases.finished(self.store, run, cases.with_verdict(attempt))

    @rule(which=st.integers(0, 2))
    def crash(self, which: int) -> None:
        """Its controller dies; the next one finds its live attempts, and asks anew."""
        run = self.runs[which]
        self.store.database.unlock(run.id)
        self.runs[which] = self.store.runs.take(run.id, "the next one")

    @rule(which=st.integers(0, 2))
    def fall_silent(self, which: int) -> None:
        """Its controller is stopped for a while: nobody waits for it."""
        self.clock.advance(TICKET_S + 0.1)
        for run in self.runs:
            if run is not self.runs[which]:
                self.turn_of(run)

    @rule(pid=st.integers(1, 4), gpus=st.integers(1, 2), least=st.sampled_from([0, SIZE]))
    def program(self, pid: int, gpus: int, least: int) -> None:
        if pid not in self.programs:
            self.clock.advance(0.01)
            program = Program(token=f"p{pid}.{self.clock()}", name=f"p{pid}", pid=pid, born=str(self.clock()), boot="")
            self.programs[pid] = (program, Ask(gpus=gpus, least_mb=least, hosts=HERE), False)
            self.alive.add(program.born)
        self.ask(pid)

    @rule(pid=st.integers(1, 4), dies=st.booleans())
    def leave(self, pid: int, dies: bool) -> None:
        if pid in self.programs:
            program = self.programs.pop(pid)[0]
            self.alive.discard(program.born)
            if not dies:
                self.store.gpus.free(program)

    @rule(card=st.integers(0, CARDS - 1), there=st.booleans())
    def stranger(self, card: int, there: bool) -> None:
        (self.strangers.add if there else self.strangers.discard)(card)
        self.look()

    @rule(card=st.integers(0, CARDS - 1))
    def quarantine(self, card: int) -> None:
        self.store.gpus.quarantine(self.runs[0], "h", f"G{card}", "dirty")

    @rule(card=st.integers(0, CARDS - 1))
    def taken(self, card: int) -> None:
        self.store.gpus.avoid("h", [f"G{card}"])

    @rule()
    def time_passes(self) -> None:
        self.clock.advance(AVOID_S)
        self.look()
        for run in self.runs:
            self.store.attempts.renew(run, LEASE_S)

    # What must hold

    def turn_of(self, run: Run) -> list[Attempt]:
        """Ask for all that the run wants and take what it is given, as a controller does."""
        self.store.attempts.renew(run, LEASE_S)
        made: list[Attempt] = []
        with self.store.batch():
            kept = self.store.database.rows("select_gpu_tickets")  # also those at which it has not looked for long
            self.numbers = {row["task_number"]: row["number"] for row in kept if row["owner"] == run.id}
            end = max((row["line"] for row in kept), default=0) + 1
            self.line = min((row["line"] for row in kept if row["owner"] == run.id), default=end)
            turn = self.store.gpus.ask(run, self.wants[run.id])
            for task, granted in turn.grants.items():
                assert task is not None
                self.is_fair(granted)
                requests = Requests(gpus=granted.ticket.gpus, gpu_memory_mb=granted.ticket.memory_mb)
                claim = replace(cases.new_claim(task), host="h", devices=devices_of(granted), requests=requests)
                found = self.store.attempts.claim(run, claim)
                assert found is not None
                made.append(found.attempt)
        given = {attempt.task_number for attempt in made}
        self.wants[run.id] = [ask for ask in self.wants[run.id] if ask.task_number not in given]
        self.live[run.id] += made
        return made

    def ask(self, pid: int) -> None:
        program, ask, has = self.programs[pid]
        if not has and self.store.gpus.lease(program, ask) is not None:
            self.programs[pid] = (program, ask, True)

    def is_fair(self, granted: Grant) -> None:
        """Whoever stands in front and waits on could have used none of these cards."""
        cards = list(granted.cards)
        for earlier in self.in_front_of(granted.ticket):
            if earlier.reserved is not None and not granted.ticket.memory_mb:
                assert {card.uuid for card in cards}.isdisjoint(earlier.reserved[1]), (earlier, granted)
            if earlier.gpus == 1:
                assert Room(cards, self.store.gpus.leases(), self.clock()).best(earlier) is None, (earlier, granted)

    def in_front_of(self, ticket: Ticket) -> list[Ticket]:
        """Those that are in front of it and get nothing now. What others are about to take is not known here."""
        own = self.wants.get(ticket.owner, [])
        waiting = [one for one in self.store.gpus.tickets() if one.owner != ticket.owner]
        mine = [
            Ticket(
                number=self.numbers.get(ask.task_number, 10**9 + place),
                owner=ticket.owner,
                line=self.line,
                gpus=ask.gpus,
                hosts=HERE,
                task_number=ask.task_number,
            )
            for place, ask in enumerate(own)
        ]
        ordered = in_turn([*waiting, *mine])
        place = next(
            n for n, one in enumerate(ordered) if one.task_number == ticket.task_number and one.owner == ticket.owner
        )
        room = Room(self.store.gpus.cards(), self.store.gpus.leases(), self.clock())
        return [one for one in ordered[:place] if one.owner != ticket.owner and room.best(one) is None]

    @invariant()
    def nothing_is_leased_twice_or_beyond_its_memory(self) -> None:
        if not hasattr(self, "store"):
            return
        leases = self.store.gpus.leases()
        for n in range(CARDS):
            amounts = [lease.memory_mb for lease in leases if lease.uuid == f"G{n}"]
            assert None not in amounts or len(amounts) == 1
            assert sum(amount or 0 for amount in amounts) <= SIZE

    @invariant()
    def leases_are_those_of_the_living(self) -> None:
        if not hasattr(self, "store"):
            return
        leases = self.store.gpus.leases()
        wanted = {
            (attempt.id, device.uuid)
            for run in self.runs
            for attempt in self.store.attempts.all(run.id)
            if attempt.state is AttemptState.LEASED and attempt.lease_expires_at > self.clock()
            for device in attempt.devices
        }
        has = {program.token for program, _, has in self.programs.values() if has}
        assert {(lease.holder, lease.uuid) for lease in leases if lease.program is None} == wanted
        assert {lease.holder for lease in leases if lease.program is not None} == has

    def everybody_is_served_in_the_end(self) -> None:
        """When strangers have left and everything that runs has ended, whoever stands in front gets its turn, and so on."""
        self.strangers.clear()
        for _ in range(4):
            self.clock.advance(CLEAN_S / 2 + 1)
            self.look()
        assert all(blocked(card, self.clock()) is None for card in self.store.gpus.cards())
        for _ in range(200):
            for run in self.runs:
                for attempt in self.live[run.id]:
                    cases.finished(self.store, run, cases.with_verdict(attempt))
                self.live[run.id] = []
            for pid, (program, _, has) in list(self.programs.items()):
                if has:
                    self.store.gpus.free(program)
                    del self.programs[pid]
            if not any(self.wants.values()) and not self.programs:
                return
            before = sum(map(len, self.wants.values())) + len(self.programs)
            for run in self.runs:
                self.turn_of(run)
            for pid in list(self.programs):
                self.ask(pid)
            served = before - sum(map(len, self.wants.values())) - sum(not has for *_, has in self.programs.values())
            assert served > 0, "nobody was served although everything was free"
        raise AssertionError("somebody starves")


class PostgresGpus(Gpus):
    server: ClassVar[Server]

    def home(self) -> Path:
        return self.folders.enter_context(self.server.home(super().home()))


@pytest.fixture(scope="module")
def server(postgres: Server) -> None:
    PostgresGpus.server = postgres


def _settings(examples: int) -> settings:
    # No shrinking: each step is a few transactions, and the first example of a failure is short enough to be read.
    return settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )


TestGpus = Gpus.TestCase
TestGpus.settings = _settings(15)
TestPostgresGpus = pytest.mark.usefixtures("server")(PostgresGpus.TestCase)
TestPostgresGpus.settings = _settings(4)
