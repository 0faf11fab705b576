"""Readiness checks of one machine: each is tried until it holds or its time is over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar

import anyio

from evalfleet.errors import BackendError, EvalfleetError, HostRefused, HostUnreachable
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.record import MachineRecord

SILENCE = "says nothing"


class CheckFailed(EvalfleetError):
    """A check does not hold."""

    def __init__(self, check: str, message: str, *, replace: bool) -> None:
        super().__init__(f"{check}: {message}")
        self.check = check
        self.is_silent = message.endswith(SILENCE)  # it was not refused, but never answered
        self.replace = replace  # whether another machine might do better


class Unwell(BackendError):
    """The machine answers, and is not as it must be."""


class TimedChecks(ABC):
    """Every check may be tried again after a crash."""

    deadlines_s: ClassVar[Mapping[str, float]]  # by check, where the pool's settings name none

    def __init__(self, context: PoolContext, record: MachineRecord) -> None:
        self._context = context
        self._record = record
        self._wanted = context.wanted
        self._pause_s = min(2.0, 5 * context.cloud.poll_s)
        self._took: dict[str, float] = {}  # seconds, by check; those of the benchmark by their own names
        self._heard = ""  # the latest of the check that is tried: where its time runs out, that is why

    @abstractmethod
    async def run(self) -> None:
        """Raises CheckFailed at the first check that does not hold in its time."""

    def _usual_s(self, name: str) -> float:
        return self.deadlines_s[name]

    async def _hang_up(self) -> None:  # noqa: B027 - not every way there has a connection
        """The connection is lost."""

    async def _check(self, name: str, try_once: Callable[[], Awaitable[str | None]], *, replace: bool) -> None:
        """Try until it holds; a `try_once` that returns a text says why it does not yet."""
        limit_s = self._wanted.deadline.get(name, self._usual_s(name))
        await self._record.move(readiness_check=name, reason=None)
        begun = anyio.current_time()
        self._heard = f"it {SILENCE}"
        with anyio.move_on_after(limit_s):
            while True:
                try:
                    said = await try_once()
                except HostUnreachable as error:
                    said = str(error)
                    await self._hang_up()
                except (Unwell, HostRefused) as error:
                    raise CheckFailed(name, str(error), replace=replace) from None
                if said is None:
                    self._took[name] = round(anyio.current_time() - begun, 3)
                    return
                self._hear(said)
                await anyio.sleep(self._pause_s)
        raise CheckFailed(name, f"does not hold after {limit_s:g} s: {self._heard}", replace=replace)

    def _hear(self, text: str) -> None:
        self._heard = text
