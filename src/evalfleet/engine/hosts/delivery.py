"""Delivers orders to one host, beside the dispatch loop: a slow host must not hold up the others."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import anyio

from evalfleet.errors import BackendError
from evalfleet.hosts.base import Host, Launch


class OrderDelivery:
    """Orders that cannot be delivered are dropped: the connection repeats them when the host is back.

    Args:
        patience_s: most time for one delivery.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._host: Host | None = None
        self._launch: list[Launch] = []
        self._stop: dict[str, str] = {}  # attempt -> why
        self._forget: list[str] = []
        self._want: int | None = None  # slots; None: unchanged
        self._said: int | None = None  # on this connection
        self._wake = anyio.Event()
        self._idle = anyio.Event()
        self._idle.set()

    def use(self, host: Host | None) -> None:
        """From now on orders go to this connection; None: the host is not reached."""
        self._host = host
        self._said = None
        if host is None:
            self._clear()

    def put(
        self, launch: Iterable[Launch], stop: Iterable[str], reason: str, forget: Iterable[str], want: int | None = None
    ) -> None:
        """
        Args:
            want: how many slots of the host the run could use.
        """
        if self._host is None:
            return
        self._want = None if want == self._said else want
        self._launch += launch
        self._stop |= dict.fromkeys(stop, reason)
        self._forget += forget
        if self._has_orders:
            self._idle = anyio.Event()
            self._wake.set()

    @property
    def _has_orders(self) -> bool:
        return bool(self._launch or self._stop or self._forget) or self._want is not None

    async def delivered(self) -> None:
        """Return when no order is being delivered."""
        await self._idle.wait()

    async def serve(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            while self._host is not None and self._has_orders:
                with suppress(BackendError), anyio.move_on_after(self._patience_s):
                    await self._deliver(self._host)
            self._idle.set()

    async def _deliver(self, host: Host) -> None:
        launch, stop, forget, want = self._launch, self._stop, self._forget, self._want
        self._clear()
        if launch:
            await host.launch(launch)
        if want is not None:
            self._said = None  # until the host has confirmed it
            await host.want(want)
            if self._host is host:
                self._said = want
        for reason in dict.fromkeys(stop.values()):
            await host.stop([one for one, why in stop.items() if why == reason], reason)
        if forget:
            await host.forget(forget)

    def _clear(self) -> None:
        self._launch, self._stop, self._forget, self._want = [], {}, [], None
