"""What the engine may ask of a backend.

A backend hands out a `Host`: a machine with one runner. All methods are idempotent by our ids, return quickly, and never
wait for an attempt. A host tells what it sees as observations in the `Inbox`; only `core` judges them.

A `BackendError` out of any method is an instruction to the engine: count it against the backend's breaker and come back
later. It never means that an attempt failed.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

import anyio

from evalfleet.core.health import OtherWay
from evalfleet.model import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInfo:
    """One machine, as placement and cost see it."""

    name: str
    memory_mb: int | None  # None: not limited
    gpus: int
    price_usd_per_hour: float
    others: frozenset[str] = frozenset()  # live attempts of other runs that it had when it was asked last


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One attempt to start. Idempotent by `attempt_id`: a host that knows it starts nothing again."""

    attempt_id: str
    spec: JsonObject
    secrets: dict[str, str] = field(repr=False)
    valid_for_s: float
    # For hosts other than this machine: names in the spec's env whose values belong to this machine, and the files that
    # the work folder there needs (path in it -> file or folder here).
    inherited: frozenset[str] = frozenset()
    files: Mapping[str, Path] = field(default_factory=dict[str, Path])


@dataclass(frozen=True, slots=True)
class Observation:
    """One event of an attempt, numbered by its runner: started, ready, progress or ended."""

    attempt_id: str
    number: int
    at: float
    type: str
    data: JsonObject


@dataclass(frozen=True, slots=True)
class Known:
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

    async def wait(self, at_most_s: float) -> None:
        """Return as soon as something is there, or after that time."""
        with anyio.move_on_after(at_most_s):
            await self._event.wait()


class Host(Protocol):
    """A reachable machine with a runner, for one run and epoch. Raises BackendError when it is not reachable any more."""

    @property
    def info(self) -> HostInfo: ...

    async def known(self) -> list[Known]:
        """The attempts of this run that it has."""
        ...

    async def launch(self, launches: Sequence[Launch]) -> None:
        """Start attempts and observe them from their first event."""
        ...

    async def observe(self, attempt_id: str, after: int) -> bool:
        """Observe an attempt from the event after number `after`. False: the host does not know it."""
        ...

    async def stop(self, attempt_ids: Sequence[str], reason: str) -> None:
        """End attempts; their ends come as observations. Unknown and ended ones are passed over."""
        ...

    async def collect(self, attempt_id: str, destination: Path, secrets: Mapping[str, str]) -> None:
        """Bring the files of an ended attempt to `destination`, whole or not at all. Again is harmless, and so is an
        attempt that the host does not have.

        `secrets` are values that the files must not hold; given where the runner died before it could see to that itself.
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

    async def doomed(self) -> str:
        """Return once the machine says that it will be taken away, with one line that says why and when. It launches nothing
        from then on: a launch that comes too late ends its attempt as `preempted`. Waits for ever otherwise."""
        ...


class Backend(Protocol):
    """The way to one host."""

    @property
    def name(self) -> str:
        """Of the host."""
        ...

    @property
    def slots(self) -> int | None:
        """How many attempts of a run it takes at a time. None: as many as the run asks for, because it is this machine."""
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
