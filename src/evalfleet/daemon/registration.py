"""A controller's entry in the store: it says that this process lives, what it may drive, and what it cannot drive and why.

The entry is a row, and a lock that lasts as long as the process. A lock that is free does not say that its controller is dead: where
the store is on a server, its restart frees all locks for a moment. So the others wait a little, unless they can see the process.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import anyio
from msgspec import Struct, field

from evalfleet.config import Settings
from evalfleet.daemon.alerts.access import OwnStore
from evalfleet.errors import EvalfleetError, StoreBusy
from evalfleet.store.controllers import Controller, Liveness
from evalfleet.store.home import place
from evalfleet.store.store import Store

_KEEP_S = 1.0  # how soon a cut connection is made anew
_PATIENCE_S = 3.0  # for a controller of another machine whose lock is free


class Registration(Struct, kw_only=True):
    """Used in the event loop's thread."""

    settings: Settings
    runs: int  # that this controller drives at a time, at most
    notice: Callable[[str], None]
    id: str = field(default_factory=lambda: os.urandom(8).hex())
    _own: OwnStore | None = None
    _liveness: dict[str, Liveness] = field(default_factory=dict[str, Liveness])  # of all that are entered
    _absent: dict[str, float] = field(default_factory=dict[str, float])  # since when, by the loop's clock
    _waits: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])  # by kind and name: why
    _told: dict[str, str] = field(default_factory=dict[str, str])
    _given_up: frozenset[str] = frozenset()

    @property
    def member(self) -> str:
        return place.member_of(self.settings.home)

    async def enter(self) -> None:
        """Take the lock, and enter this process. Nothing may be claimed before."""
        self._own = OwnStore(self.settings.home)
        await self._own.call(self._enter)

    def _enter(self, store: Store) -> None:
        one = Controller(
            id=self.id,
            member=self.member,
            host=socket.gethostname(),
            path=str(self.settings.home.absolute()),
            pid=os.getpid(),
            since=store.now(),
            runs=self.runs,
        )
        store.controllers.enter(one)

    async def serve(self) -> None:
        """Keep the lock, and tell the store what waits for other controllers, until cancelled."""
        assert self._own is not None, "`enter` comes first"
        while True:
            try:
                await self._own.call(self._keep)
            except StoreBusy as error:
                self.notice(f"controllers: {error}")
            await anyio.sleep(_KEEP_S)

    async def leave(self) -> None:
        """Free what is left for the other controllers: the processes of this controller have ended."""
        assert self._own is not None, "`enter` comes first"
        try:
            await self._own.call(lambda store: store.controllers.leave(self.id))
        except EvalfleetError as error:  # the others see that the lock is free
            self.notice(f"controllers: {error}")
        await self._own.close()

    def _keep(self, store: Store) -> None:
        store.changed()  # asks the server, so that a cut connection is seen and the lock taken again
        waits = dict(self._waits.get("run", {}))
        if waits != self._told:
            store.controllers.set_waits(self.id, waits)
            self._told = waits
        self._liveness = {one.id: liveness for one, liveness in store.controllers.all()}
        for other, liveness in self._liveness.items():
            if liveness is Liveness.DEAD or other in self._given_up:
                self._given_up |= {other}
                store.controllers.strike(other)

    def set_waits(self, kind: str, waits: dict[str, str]) -> None:
        """Say what this controller cannot look after, and why; it is stored within a second."""
        self._waits[kind] = waits

    def is_gone(self, controller: str, now: float) -> bool:
        """Whether what that controller looked after may be taken."""
        if controller in self._given_up:
            return True
        liveness = self._liveness.get(controller)
        if liveness is Liveness.ALIVE or controller == self.id:
            self._absent.pop(controller, None)
            return False
        since = self._absent.setdefault(controller, now)
        if liveness is not Liveness.DEAD and now - since < _PATIENCE_S:
            return False
        self._given_up |= {controller}
        return True
