"""What the engine may ask of a backend.

A backend hands out a `Host`: a machine with one runner. All methods are idempotent by our ids, return quickly, and never
wait for an attempt. A host tells what it sees as observations in the `Inbox`; only `core` judges them.

A `BackendError` out of any method is an instruction to the engine: count it against the backend's breaker and come back
later. It never means that an attempt failed.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Literal, Protocol, cast

import anyio
from msgspec import Struct, field

from evalfleet.core.gpus.cards import Card
from evalfleet.core.hosts.health import OtherWay
from evalfleet.core.hosts.load import Load
from evalfleet.model import JsonObject


def gpus_of(host: str, rows: Iterable[JsonObject]) -> tuple[Card, ...]:
    """Those of a runner's answer; one that does not say who it is cannot be leased."""
    return tuple(
        Card(
            host=host,
            index=row["index"],
            uuid=row["uuid"],
            name=row.get("name"),
            memory_mb=_whole(row.get("memory_mb")),
            used_mb=_whole(row.get("used_mb")),
            utilization=_whole(row.get("utilization")),
            processes=_processes(row.get("processes", [])),
            foreign=tuple(row.get("foreign") or ()),
            unexplained_mb=_whole(row.get("unexplained_mb")),
            held=row.get("held"),
            mig=row.get("mig"),
            links=row.get("links") or {},
        )
        for row in rows
        if isinstance(row.get("index"), int) and isinstance(row.get("uuid"), str)
    )


def _whole(value: object) -> int | None:
    """A number; a text such as "[N/A]" is none, and neither is nothing."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _processes(rows: list[JsonObject | int] | None) -> tuple[JsonObject, ...] | None:
    """None: the host cannot tell. A runner of another version tells numbers only, or nothing."""
    return None if rows is None else tuple({"pid": row} if isinstance(row, int) else row for row in rows)


class Room(Struct, frozen=True, kw_only=True):
    """The slots of a host whose slots are counted over all runs, homes and users, as its runner told them last."""

    free: int = 0  # kept for this run
    live: frozenset[str] = (
        frozenset()
    )  # attempts of this run that it knew of then: they have their slots, or wait for one
    others: int = 0  # slots that somebody else has, while the run waits for one
    by: tuple[str, ...] = ()  # who that is, in words
    trouble: str | None = None  # why they cannot be counted

    def left(self, live: Collection[str]) -> int:
        """How many more attempts may go there, where these are ours: those that it does not know yet are on their way."""
        return max(0, self.free - len(set(live) - self.live))


class HostInfo(Struct, frozen=True, kw_only=True):
    """One machine, as placement and cost see it."""

    name: str
    memory_mb: int | None  # None: not limited
    gpus: int
    price_usd_per_hour: float  # of one of its workers
    others: frozenset[str] = frozenset()  # live attempts of other runs that it had when it was asked last
    devices: tuple[Card, ...] = ()  # its GPUs, as they were then
    looked_at: float | None = None  # when, by `time.monotonic()`; None: just now
    load: Load | None = None  # how busy it was then
    room: Room | None = None  # None: its slots are not counted there
    age_s: float | None = None  # for how long it has been a host of ours, then; None: it does not say


class Launch(Struct, frozen=True, kw_only=True):
    """One attempt to start. Idempotent by `attempt_id`: a host that knows it starts nothing again."""

    attempt_id: str
    spec: JsonObject
    secrets: dict[str, str]  # shown by no repr
    valid_for_s: float
    # For hosts other than this machine: names in the spec's env whose values belong to this machine, and the files that
    # the work folder there needs (path in it -> file or folder here).
    inherited: frozenset[str] = frozenset()
    files: Mapping[str, Path] = field(default_factory=dict[str, Path])
    takes_slot: bool = True  # False: it is short, and must not wait for others

    def __repr__(self) -> str:
        return f"Launch(attempt_id={self.attempt_id!r})"


class Observation(Struct, frozen=True):
    """One event of an attempt, numbered by its runner: started, ready, progress or ended."""

    attempt_id: str
    number: int
    at: float
    type: str
    data: JsonObject


class Known(Struct, frozen=True):
    """An attempt that a host has, live or waiting to be collected."""

    attempt_id: str
    live: bool


@contextmanager
def single_error() -> Generator[None]:
    """Let a lone error out of the group that a task group makes of it, so that callers can catch it by its class."""
    try:
        yield
    except BaseExceptionGroup as group:
        lone = _lone(group)
        if lone is None:
            raise
        raise lone from lone.__cause__


def _lone(error: BaseException) -> BaseException | None:
    """The one error inside of groups inside of groups; None where there are several."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return _lone(group.exceptions[0]) if len(group.exceptions) == 1 else None


class Inbox:
    """Where hosts put observations, and the engine takes all there are at once."""

    def __init__(self) -> None:
        self._items: list[Observation] = []
        self._event = anyio.Event()

    def put(self, observations: Sequence[Observation]) -> None:
        self._items.extend(observations)
        self._event.set()

    def poke(self) -> None:
        """Wake the engine without an observation."""
        self._event.set()

    def take(self) -> list[Observation]:
        taken, self._items = self._items, []
        self._event = anyio.Event()
        return taken

    async def wait(self, at_most_s: float) -> bool:
        """Return as soon as something is there, or after that time: then False."""
        with anyio.move_on_after(at_most_s):
            await self._event.wait()
            return True
        return False


class Host(Protocol):
    """A reachable machine with a runner, for one run and epoch. Raises BackendError when it is not reachable any more."""

    @property
    def info(self) -> HostInfo: ...

    async def known(self) -> list[Known]:
        """The attempts of this run that it has."""
        ...

    @property
    def others(self) -> Sequence[Known]:
        """The attempts of other runs that it had when it was asked last."""
        ...

    async def clear(self, run_id: str, epoch: int, *, stop: Sequence[str], forget: Sequence[str]) -> None:
        """End and forget attempts of another run, which is over and had that epoch. Raises RunnerRefused where it was taken up again."""
        ...

    async def launch(self, launches: Sequence[Launch]) -> None:
        """Start attempts and observe them from their first event."""
        ...

    async def want(self, slots: int) -> None:
        """Say how many slots of the host the run could use now, in all. What is kept for it comes with `info`, whose change wakes
        the engine. Nothing happens where slots are not counted."""
        ...

    async def observe(self, attempt_id: str, after: int) -> bool:
        """Observe an attempt from the event after number `after`. False: the host does not know it."""
        ...

    async def stop(self, attempt_ids: Sequence[str], reason: str) -> None:
        """End attempts; their ends come as observations. Unknown and ended ones are passed over."""
        ...

    async def collect(
        self, attempt_id: str, destination: Path, secrets: Mapping[str, str], *, listed_only: bool = False
    ) -> None:
        """Bring the files of an ended attempt to `destination`, whole or not at all. Again is harmless, and so is an
        attempt that the host does not have.

        Args:
            secrets: values that the files must not hold; given where the runner died before it could see to that itself.
            listed_only: the attempt had secrets: what its end record does not list was not looked into, and is left there.

        Raises:
            BackendError: the connection broke; the next try goes on.
            OSError: they cannot be brought; the host must keep them.
        """
        ...

    async def forget(self, attempt_ids: Sequence[str]) -> None:
        """The results are stored: the host may remove the attempts."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone."""
        ...

    async def lost(self) -> None:
        """Return when the connection is gone."""
        ...

    async def preemption_notice(self) -> str:
        """Return once the machine says that it will be taken away, with one line that says why and when. It launches nothing
        from then on: a launch that comes too late ends its attempt as `preempted`. Waits for ever otherwise."""
        ...


class CanarySpec(Struct, frozen=True, kw_only=True):
    """A short program that a host must run well before it gets paid work. A run may name another command."""

    command: tuple[str, ...] = ("/bin/sh", "-c", "exit 0")
    timeout_s: float = 60.0


class Backend(Protocol):
    """The way to one host."""

    @property
    def name(self) -> str:
        """Of the host."""
        ...

    @property
    def canary(self) -> CanarySpec | None:
        """What a host that is new to the run must do before its first attempt. None: it is trusted."""
        ...

    @property
    def slots(self) -> int | None:
        """How many attempts it takes at a time, whoever's they are. None: as many as runs ask for."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether it is another machine than this one, which may be out of reach."""
        ...

    def acquire(self, run_id: str, epoch: int, inbox: Inbox) -> AbstractAsyncContextManager[Host]:
        """Connect to a host, and start its runner if none runs. Leaving the context ends the connection, not the work."""
        ...

    async def ask_otherwise(self) -> OtherWay:
        """Ask for a silent host by a way that does not use its connection."""
        ...

    async def reset(self) -> None:
        """End a runner that runs but has not answered for too long; its attempts come back as `runner_lost`."""
        ...

    async def release(self) -> None:
        """Give back what is idle."""
        ...


class Departure(Struct, frozen=True, kw_only=True):
    """What became of a host, for the attempts that it had. Neither cause counts against their tasks."""

    cause: Literal["preempted", "worker_lost"]
    message: str


class Fleet(Protocol):
    """The hosts that a run may use, while they come and go. Used in the loop's thread."""

    def backends(self) -> Sequence[Backend]:
        """Those that are ready to be connected to, in a stable order; from the first look on every one that may hold attempts of
        the run. The same object for as long as it is the same way to the same machine."""
        ...

    def draining(self) -> Collection[str]:
        """Hosts among them that end what they have and get no more."""
        ...

    def departure(self, host: str) -> Departure | None:
        """What became of a host that is not among them. None: that is not known yet, and its attempts wait for it."""
        ...

    async def changed(self) -> None:
        """Return when `backends` or a departure may differ from the last look. May be cancelled and called again."""
        ...

    def waits_for(self) -> str:
        """Why there is no host, in one line for a person."""
        ...

    async def serve(self) -> None:
        """Runs beside the engine for as long as the run is driven."""
        ...

    async def part(self, *, over: bool) -> None:
        """The run is not driven any more; `over`: and will not be again."""
        ...

    def want(self, workers: int) -> None:
        """How many workers the run could use now."""
        ...

    def busy(self, host: str, attempts: int) -> None:
        """How many attempts a host has that run or whose files are not here yet. Nobody should stop it before there are none."""
        ...

    def blame(self, host: str, reason: str) -> None:
        """The engine gives the host no more work, because of what failed there."""
        ...

    def give_up(self, hosts: Mapping[str, str]) -> None:
        """All hosts that are of no use to the run now, and why: they do not answer, or failed every canary."""
        ...


class FixedFleet:
    """Implements `Fleet` for hosts that are given once and for all."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = tuple(backends)

    def backends(self) -> Sequence[Backend]:
        return self._backends

    def draining(self) -> Collection[str]:
        return ()

    def departure(self, host: str) -> Departure:
        return Departure(cause="worker_lost", message=f"its host {host} does not belong to the pool any more")

    async def changed(self) -> None:
        await anyio.sleep_forever()

    def waits_for(self) -> str:
        return "it has no hosts"

    async def serve(self) -> None:
        await anyio.sleep_forever()

    async def part(self, *, over: bool) -> None:
        pass

    def want(self, workers: int) -> None:
        pass

    def busy(self, host: str, attempts: int) -> None:
        pass

    def blame(self, host: str, reason: str) -> None:
        pass

    def give_up(self, hosts: Mapping[str, str]) -> None:
        pass
