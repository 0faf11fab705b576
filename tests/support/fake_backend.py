"""A backend without machines, for tests of the engine. It passes the same `BackendContract` as the real ones.

It knows three programs: `true` and `false` end at once, `sleep` runs until it is stopped or told to `end`. A shell is what
canaries are made of: it ends at once, and well as long as `is_sound`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from evalfleet.core.gpus.cards import Card
from evalfleet.core.hosts.health import OtherWay
from evalfleet.errors import RunnerRefused, RunnerUnavailable
from evalfleet.hosts.base import AttemptEvent, CanarySpec, HostInfo, Inbox, KnownAttempt, Launch, SlotReport
from evalfleet.model import JsonObject


class FakeAttempt(Struct):
    run_id: str
    program: str
    events: list[AttemptEvent] = field(default_factory=list[AttemptEvent])
    live: bool = True


class FakeBackend:
    """Implements `Backend`. The fields are switches that a test may turn at any moment."""

    def __init__(
        self,
        name: str = "fake",
        *,
        slots: int | None = None,
        memory_mb: int | None = None,
        price_usd_per_hour: float = 0.0,
        canary: CanarySpec | None = None,
    ) -> None:
        self.name = name
        self.slots = slots
        self.is_remote = slots is not None
        self.canary = canary
        self.unreachable: str | None = None  # why nobody can connect
        self.silent = False  # connected, and does not answer
        self.hangs = False  # whoever connects, or asks another way, waits for ever
        self.forgets = True  # False: it refuses to forget anything
        self.is_sound = True  # False: canaries fail
        self.collects = True  # False: files do not come
        self.breaks_on_launch = False  # the connection breaks instead of an answer
        self.other_way = OtherWay.ALIVE
        self.preemption_line: str | None = None  # see `preempt`
        self.age_s: float | None = None  # for how long it has been there, where it says so
        self.gpus: tuple[Card, ...] = ()  # what it shows when it is asked
        self.attempts: dict[str, FakeAttempt] = {}
        self.launched: list[str] = []  # every launch that started something
        self.canaries: list[str] = []  # launches that belong to no task
        self.forgotten: list[str] = []
        self.wanted: dict[str, int] = {}  # slots that each run could use, as it said last; see `grant`
        self.resets = 0
        self.acquired = 0
        self._info = HostInfo(name=name, memory_mb=memory_mb, gpus=0, price_usd_per_hour=price_usd_per_hour)
        self._epochs: dict[str, int] = {}
        self._hosts: list[FakeHost] = []

    @asynccontextmanager
    async def acquire(self, run_id: str, epoch: int, inbox: Inbox) -> AsyncGenerator[FakeHost]:
        await self._hang()
        if self.unreachable:
            raise RunnerUnavailable(self.unreachable)
        self.fence(run_id, epoch)
        self.acquired += 1
        host = FakeHost(self, self._info, run_id, epoch, inbox)
        if self.preemption_line is not None:
            host.preempted.set()
        self._hosts.append(host)
        try:
            yield host
        finally:
            host.gone.set()
            self._hosts.remove(host)

    async def ask_otherwise(self) -> OtherWay:
        await self._hang()
        return self.other_way

    async def _hang(self) -> None:
        if self.hangs:
            await anyio.sleep_forever()

    async def reset(self) -> None:
        await self._hang()
        self.resets += 1
        self.silent = False
        self.lose_runner()

    async def release(self) -> None:
        pass

    # What a test does

    def grant(self, room: SlotReport | None) -> None:
        """Tell who is connected, and who comes later, how it stands with the slots. None: they are not counted, as at first."""
        self._info = replace(self._info, room=room)
        for host in self._hosts:
            host.see_room(room)

    def cut(self) -> None:
        """Break every connection; the work goes on."""
        for host in self._hosts:
            host.gone.set()

    def lose_runner(self) -> None:
        """The runner dies: connections break, and its live attempts come back as lost."""
        self.cut()
        for attempt_id, attempt in self.attempts.items():
            if attempt.live:
                self.end(attempt_id, cause="runner_lost", message="the runner died under the attempt")

    def preempt(self, line: str = "the cloud takes fake away, now") -> None:
        """The machine says that it will be taken away: to who is connected, and to who comes later."""
        self.preemption_line = line
        for host in self._hosts:
            host.preempted.set()

    def mute(self, attempt_id: str) -> None:
        """Whoever is connected hears no more of an attempt until it is observed again."""
        for host in self._hosts:
            host.observed.discard(attempt_id)

    def end(self, attempt_id: str, **end: object) -> None:
        """End a live attempt."""
        attempt = self.attempts[attempt_id]
        attempt.live = False
        self.tell(attempt_id, "ended", {"cause": "exited", "exit_code": 0, "duration_s": 1.0, **end})

    def tell(self, attempt_id: str, kind: str, data: JsonObject) -> None:
        """One more event of an attempt, to everybody who observes it."""
        attempt = self.attempts[attempt_id]
        event = AttemptEvent(attempt_id, len(attempt.events), time.time(), kind, data)
        attempt.events.append(event)
        for host in self._hosts:
            if attempt_id in host.observed and not host.is_lost:
                host.inbox.put([event])

    def start(self, run_id: str, launch: Launch) -> None:
        program = launch.spec["command"][0]
        self.attempts[launch.attempt_id] = FakeAttempt(run_id, program)
        (self.canaries if launch.spec["key"] == "canary" else self.launched).append(launch.attempt_id)
        self.tell(launch.attempt_id, "launched", {})
        self.tell(launch.attempt_id, "started", {})
        if program != "sleep":
            well = self.is_sound if program == "/bin/sh" else program == "true"
            self.end(launch.attempt_id, exit_code=int(not well))

    def fence(self, run_id: str, epoch: int) -> None:
        if epoch < self._epochs.get(run_id, 0):
            raise RunnerRefused(f"epoch {epoch} of run {run_id} is over")
        self._epochs[run_id] = epoch


class FakeHost:
    """Implements `Host`."""

    def __init__(self, backend: FakeBackend, info: HostInfo, run_id: str, epoch: int, inbox: Inbox) -> None:
        self.inbox = inbox
        self.observed: set[str] = set()
        self.gone = anyio.Event()
        self.preempted = anyio.Event()
        self._backend = backend
        self._info = info
        self._run_id = run_id
        self._epoch = epoch
        self._others: tuple[KnownAttempt, ...] = ()

    @property
    def info(self) -> HostInfo:
        return self._info

    def see_room(self, room: SlotReport | None) -> None:
        self._info = replace(self._info, room=room)
        self.inbox.poke()

    @property
    def is_lost(self) -> bool:
        return self.gone.is_set()

    async def known(self) -> list[KnownAttempt]:
        await self._answers()
        cards = self._backend.gpus
        if cards or self._info.devices:
            self._info = replace(self._info, gpus=len(cards), devices=cards, looked_at=time.monotonic())
        self._info = replace(self._info, age_s=self._backend.age_s)
        found = self._backend.attempts.items()
        self._others = tuple(
            KnownAttempt(one, attempt.live) for one, attempt in found if attempt.run_id != self._run_id
        )
        return [KnownAttempt(one, attempt.live) for one, attempt in found if attempt.run_id == self._run_id]

    @property
    def others(self) -> Sequence[KnownAttempt]:
        return self._others

    async def clear(self, run_id: str, epoch: int, *, stop: Sequence[str], forget: Sequence[str]) -> None:
        await self._answers()
        self._backend.fence(run_id, epoch)
        self._stop(stop, "its run is over")
        for attempt_id in forget:
            self._backend.forgotten.append(attempt_id)
            self._backend.attempts.pop(attempt_id, None)

    async def launch(self, launches: Sequence[Launch]) -> None:
        await self._answers()
        self._backend.fence(self._run_id, self._epoch)
        if self._backend.breaks_on_launch:
            self.gone.set()
            raise RunnerUnavailable("the connection broke")
        for launch in launches:
            if launch.attempt_id in self._backend.attempts:
                await self.observe(launch.attempt_id, -1)
            elif self._backend.preemption_line is not None:
                end: JsonObject = {"cause": "preempted", "message": self._backend.preemption_line, "errno": None}
                self.inbox.put([AttemptEvent(launch.attempt_id, 0, 0.0, "ended", end)])
            else:
                self.observed.add(launch.attempt_id)
                self._backend.start(self._run_id, launch)

    async def want(self, slots: int) -> None:
        await self._answers()
        self._backend.wanted[self._run_id] = slots

    async def observe(self, attempt_id: str, after: int) -> bool:
        await self._answers()
        attempt = self._backend.attempts.get(attempt_id)
        if attempt is None:
            return False
        self.observed.add(attempt_id)
        self.inbox.put([event for event in attempt.events if event.number > after])
        return True

    async def stop(self, attempt_ids: Sequence[str], reason: str) -> None:
        await self._answers()
        self._backend.fence(self._run_id, self._epoch)
        self._stop(attempt_ids, reason)

    def _stop(self, attempt_ids: Sequence[str], reason: str) -> None:
        for attempt_id in attempt_ids:
            attempt = self._backend.attempts.get(attempt_id)
            if attempt is not None and attempt.live:
                self._backend.end(attempt_id, cause="cancelled", exit_code=None, signal=15, message=reason)

    async def collect(
        self, attempt_id: str, destination: Path, secrets: Mapping[str, str], *, listed_only: bool = False
    ) -> None:
        await self._answers()
        while not self._backend.collects and not self.gone.is_set():  # noqa: ASYNC110 - as below
            await anyio.sleep(0.001)
        if attempt_id in self._backend.attempts:
            await anyio.Path(destination).mkdir(parents=True, exist_ok=True)
            await anyio.Path(destination / "journal.jsonl").write_text("{}\n")

    async def forget(self, attempt_ids: Sequence[str]) -> None:
        await self._answers()
        self._backend.fence(self._run_id, self._epoch)
        if not self._backend.forgets:
            raise RunnerRefused("it forgets nothing")
        for attempt_id in attempt_ids:
            self._backend.forgotten.append(attempt_id)
            self._backend.attempts.pop(attempt_id, None)

    async def lost(self) -> None:
        await self.gone.wait()

    async def preemption_notice(self) -> str:
        await self.preempted.wait()
        return self._backend.preemption_line or ""

    async def _answers(self) -> None:
        while self._backend.silent and not self.gone.is_set():  # noqa: ASYNC110 - a switch is simpler for tests to turn
            await anyio.sleep(0.001)
        if self.gone.is_set():
            raise RunnerUnavailable("the connection is gone")
