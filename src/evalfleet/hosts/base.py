"""The contract between the engine and a backend.

A backend hands out a `Host`: a machine with one runner. All methods are idempotent by attempt id, return quickly, and never
wait for an attempt. A host reports observations to the `Inbox`; only `core` decides what they mean.

A `BackendError` out of any method is an instruction to the engine: count it against the backend's breaker and come back
later. It never means that an attempt failed.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Literal, Protocol, cast, runtime_checkable

import anyio
from msgspec import Struct, field

from evalfleet.core.gpus.cards import Card
from evalfleet.core.hosts.health import OtherWay
from evalfleet.core.hosts.load import Load
from evalfleet.model import JsonObject


def gpus_of(host: str, rows: Iterable[JsonObject]) -> tuple[Card, ...]:
    """The GPUs in a runner's answer. A GPU without a uuid is left out, because it cannot be leased."""
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
    """The value if it is a whole number, else None: a driver may answer with text such as "[N/A]"."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _processes(rows: list[JsonObject | int] | None) -> tuple[JsonObject, ...] | None:
    """The processes on a GPU; None if the host does not know. A runner of another version sends only pids, or nothing."""
    return None if rows is None else tuple({"pid": row} if isinstance(row, int) else row for row in rows)


class SlotReport(Struct, frozen=True, kw_only=True):
    """The slots of a host, counted over all runs, homes and users, as its runner last reported them."""

    free: int = 0  # kept for this run
    live: frozenset[str] = (
        frozenset()
    )  # attempts of this run that it knew of then: they have their slots, or wait for one
    others: int = 0  # slots that other runs have, while the run waits for one
    by: tuple[str, ...] = ()  # who that is, in words
    trouble: str | None = None  # why they cannot be counted

    def left(self, live: Collection[str]) -> int:
        """How many more attempts may start there. Those in `ours` that the host does not know yet are on their way."""
        return max(0, self.free - len(set(live) - self.live))


class HostInfo(Struct, frozen=True, kw_only=True):
    """What placement and cost need to know about one machine."""

    name: str
    memory_mb: int | None  # None: not limited
    gpus: int
    price_usd_per_hour: float  # of one of its workers
    others: frozenset[str] = frozenset()  # live attempts of other runs that it had when it was asked last
    devices: tuple[Card, ...] = ()  # its GPUs, as they were then
    looked_at: float | None = None  # when, by `time.monotonic()`; None: just now
    load: Load | None = None  # how busy it was then
    room: SlotReport | None = None  # None: its slots are not counted there
    age_s: float | None = None  # age of the runner's spool at that time; None: not reported


class Launch(Struct, frozen=True, kw_only=True):
    """One attempt to start. Idempotent by `attempt_id`: a host that already has it does not start it again."""

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


class AttemptEvent(Struct, frozen=True):
    """One event of an attempt, numbered by its runner: started, ready, progress or ended."""

    attempt_id: str
    number: int
    at: float
    type: str
    data: JsonObject


class KnownAttempt(Struct, frozen=True):
    """An attempt that a host has, live or waiting to be collected."""

    attempt_id: str
    live: bool


@contextmanager
def single_error() -> Generator[None]:
    """Unwrap an exception group that holds a single error, so that callers can catch that error by its class."""
    try:
        yield
    except BaseExceptionGroup as group:
        lone = _lone(group)
        if lone is None:
            raise
        raise lone from lone.__cause__


def _lone(error: BaseException) -> BaseException | None:
    """The only error in nested exception groups; None if there are several."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return _lone(group.exceptions[0]) if len(group.exceptions) == 1 else None


@contextmanager
def first_error(kind: type[Exception]) -> Generator[None]:
    """Let one error of this class out of a task group's bundle, so that callers can catch it by its class."""
    try:
        yield
    except BaseExceptionGroup as bundle:
        first: BaseException | None = bundle.split(kind)[0]
        while isinstance(first, BaseExceptionGroup):
            first = cast("BaseExceptionGroup[BaseException]", first).exceptions[0]
        if first is None:
            raise
        raise first from first.__cause__


class Inbox:
    """Queue of observations: hosts add to it, and the engine takes everything at once."""

    def __init__(self) -> None:
        self._items: list[AttemptEvent] = []
        self._event = anyio.Event()

    def put(self, observations: Sequence[AttemptEvent]) -> None:
        self._items.extend(observations)
        self._event.set()

    def poke(self) -> None:
        """Wake the engine without an observation."""
        self._event.set()

    def take(self) -> list[AttemptEvent]:
        taken, self._items = self._items, []
        self._event = anyio.Event()
        return taken

    async def wait(self, at_most_s: float) -> bool:
        """Wait until there is something to take. Returns False on a timeout."""
        with anyio.move_on_after(at_most_s):
            await self._event.wait()
            return True
        return False


class Host(Protocol):
    """A reachable machine with a runner, for one run and epoch. Its methods raise BackendError once it is unreachable."""

    @property
    def info(self) -> HostInfo: ...

    async def known(self) -> list[KnownAttempt]:
        """The attempts of this run that the host has."""
        ...

    @property
    def others(self) -> Sequence[KnownAttempt]:
        """The attempts of other runs that the host had when last asked."""
        ...

    async def clear(self, run_id: str, epoch: int, *, stop: Sequence[str], forget: Sequence[str]) -> None:
        """End and forget attempts of another run that ended at that epoch. Raises RunnerRefused if that run was resumed."""
        ...

    async def launch(self, launches: Sequence[Launch]) -> None:
        """Start attempts and observe them from their first event."""
        ...

    async def want(self, slots: int) -> None:
        """Report how many slots of the host the run could use now, in total. The slots kept for the run appear in `info`; a change
        wakes the engine. Does nothing if slots are not counted."""
        ...

    async def observe(self, attempt_id: str, after: int) -> bool:
        """Observe an attempt from the event after number `after`. Returns False if the host does not know the attempt."""
        ...

    async def stop(self, attempt_ids: Sequence[str], reason: str) -> None:
        """End attempts; their ends arrive as observations. Unknown and ended attempts are ignored."""
        ...

    async def collect(
        self, attempt_id: str, destination: Path, secrets: Mapping[str, str], *, listed_only: bool = False
    ) -> None:
        """Copy the files of an ended attempt to `destination`, completely or not at all. Safe to repeat, and safe for an attempt
        that the host does not have.

        Args:
            secrets: values to remove from the files; given if the runner died before it could remove them itself.
            listed_only: the attempt had secrets: files that its end record does not list were not checked for them and stay there.

        Raises:
            BackendError: the connection broke; the next call continues.
            OSError: the files cannot be copied; the host must keep them.
        """
        ...

    async def forget(self, attempt_ids: Sequence[str]) -> None:
        """Tell the host that the results are stored, so it may remove the attempts."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone."""
        ...

    async def lost(self) -> None:
        """Return when the connection is gone."""
        ...

    async def preemption_notice(self) -> str:
        """Wait for the preemption notice of the machine and return its text, which says why and when. From then on the host
        launches nothing: a later launch ends its attempt as `preempted`. Waits forever if there is no notice."""
        ...


class CanarySpec(Struct, frozen=True, kw_only=True):
    """A short program that a host must run successfully before it gets tasks. A run may use another command."""

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
        """The check that a host must pass before its first attempt in a run; None if it needs none."""
        ...

    @property
    def slots(self) -> int | None:
        """How many attempts the host runs at a time, over all runs; None for no limit."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether the host is another machine, which may become unreachable."""
        ...

    def acquire(self, run_id: str, epoch: int, inbox: Inbox) -> AbstractAsyncContextManager[Host]:
        """Connect to a host, and start its runner if none runs. Leaving the context ends the connection, not the work."""
        ...

    async def ask_otherwise(self) -> OtherWay:
        """Ask about a silent host in a way that does not use its connection."""
        ...

    async def reset(self) -> None:
        """End a runner that runs but has not answered for too long; its attempts end as `runner_lost`."""
        ...

    async def release(self) -> None:
        """Give back what is idle."""
        ...


class Departure(Struct, frozen=True, kw_only=True):
    """Why a host left, for the attempts that it had. Neither cause counts against their tasks."""

    cause: Literal["preempted", "worker_lost"]
    message: str


class Fleet(Protocol):
    """The hosts that a run may use, which may change while it runs. Used in the event loop's thread."""

    def backends(self) -> Sequence[Backend]:
        """The hosts that are ready for a connection, in a stable order. The first call already returns every host that may hold
        attempts of the run. A backend stays the same object while it leads to the same machine in the same way."""
        ...

    def draining(self) -> Collection[str]:
        """Those of the hosts that finish their attempts and get no more."""
        ...

    def departure(self, host: str) -> Departure | None:
        """Why a host is no longer among them. None if that is not known yet; its attempts wait."""
        ...

    async def changed(self) -> None:
        """Wait until `backends` or a departure may have changed since the last call. May be cancelled and called again."""
        ...

    def waits_for(self) -> str:
        """Why there is no host, in one line for people."""
        ...

    async def serve(self) -> None:
        """Run beside the engine while it drives the run."""
        ...

    async def part(self, *, over: bool) -> None:
        """The engine no longer drives the run; with `over` the run has ended for good."""
        ...

    def want(self, workers: int) -> None:
        """How many workers the run could use now."""
        ...

    def busy(self, host: str, attempts: int) -> None:
        """Report how many attempts of a host still run or wait for collection. It should not be stopped while there are any."""
        ...

    def blame(self, host: str, reason: str) -> None:
        """The engine gives the host no more work, because of these failures."""
        ...

    def give_up(self, hosts: Mapping[str, str]) -> None:
        """No host can be used by the run now, and why: they do not answer, or failed every canary."""
        ...


@runtime_checkable
class FollowsHealth(Protocol):
    """What a fleet may have besides: it consists of several pools, and moves work between them by how their hosts do."""

    def absent(self, hosts: Mapping[str, str | None]) -> None:
        """The hosts that can get no new work now, and why: not reached, given up, quarantined. None: by no fault of theirs, such as
        a first check that is not over, or a preemption notice."""
        ...

    def ended(self, host: str, fault: str | None) -> None:
        """An attempt ended there. `fault`: what went wrong, where the pool or backend is blamed; None: the host did its work."""
        ...

    def expects_hosts(self) -> bool:
        """Whether hosts may come: a run without one waits, and does not pause."""
        ...

    def moves(self) -> int:
        """How often the pool that gets new work was another. What failed before a move says nothing of what follows."""
        ...


class FixedFleet:
    """Implements `Fleet` for a fixed list of hosts."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = tuple(backends)

    def backends(self) -> Sequence[Backend]:
        return self._backends

    def draining(self) -> Collection[str]:
        return ()

    def departure(self, host: str) -> Departure:
        return Departure(cause="worker_lost", message=f"its host {host} is no longer part of the pool")

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
