"""Carries orders to one host, beside the dispatch loop: a slow host must not hold up the others."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import anyio

from evalfleet.backends.base import Host, Launch
from evalfleet.errors import BackendError


class Courier:
    """What cannot be delivered is dropped: the rescuer asks for it again when the host is back.

    Args:
        patience_s: most time for one delivery.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._host: Host | None = None
        self._launch: list[Launch] = []
        self._stop: dict[str, str] = {}  # attempt -> why
        self._forget: list[str] = []
        self._wake = anyio.Event()
        self._idle = anyio.Event()
        self._idle.set()

    def use(self, host: Host | None) -> None:
        """From now on orders go to this connection; None: nobody is there."""
        self._host = host
        if host is None:
            self._clear()

    def put(self, launch: Iterable[Launch], stop: Iterable[str], reason: str, forget: Iterable[str]) -> None:
        if self._host is None:
            return
        self._launch += launch
        self._stop |= dict.fromkeys(stop, reason)
        self._forget += forget
        if self._launch or self._stop or self._forget:
            self._idle = anyio.Event()
            self._wake.set()

    async def delivered(self) -> None:
        """Return when nothing is on its way any more."""
        await self._idle.wait()

    async def serve(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            while self._host is not None and (self._launch or self._stop or self._forget):
                with suppress(BackendError), anyio.move_on_after(self._patience_s):
                    await self._deliver(self._host)
            self._idle.set()

    async def _deliver(self, host: Host) -> None:
        launch, stop, forget = self._launch, self._stop, self._forget
        self._clear()
        if launch:
            await host.launch(launch)
        for reason in dict.fromkeys(stop.values()):
            await host.stop([one for one, why in stop.items() if why == reason], reason)
        if forget:
            await host.forget(forget)

    def _clear(self) -> None:
        self._launch, self._stop, self._forget = [], {}, []
