"""Watches the runs, pools and hosts of a home, and tells people when something is wrong.

Every live process of a home that can send alerts has such a service: `serve`, and the controllers of runs and pools where [alerts] is set.
The store decides which of them works (`Claim`); the others wait. What was told is in the events, so that the next sender neither forgets
nor repeats; what could not be delivered or done yet is tried again until it is.
"""

from __future__ import annotations

import logging
from contextlib import suppress

import anyio

from evalfleet.config import Settings
from evalfleet.daemon.alerts.access import LEASE_S, Access, Claim
from evalfleet.daemon.alerts.actions import ActionQueue
from evalfleet.daemon.alerts.evaluation import Evaluator, has_news
from evalfleet.daemon.alerts.outbox import Outbox
from evalfleet.daemon.alerts.state import HOME
from evalfleet.daemon.orphans import Orphans
from evalfleet.errors import EvalfleetError
from evalfleet.model import Event
from evalfleet.store.store import Store

LOOK_S = 5.0
_SOON_S = 0.5
_CLAIM_S = 1.0
_ROUNDS = 3  # of sending at the end of a process
WATCHED = "alert.watched"
_LOUD = ("run.", "breaker.", "worker.", "pool.", "reap.")  # events after which a look is due at once

_log = logging.getLogger("evalfleet.alerts")


class AlertService:
    """Used in the event loop's thread."""

    def __init__(self, settings: Settings, access: Access) -> None:
        self._access = access
        self._evaluator = Evaluator(settings)
        self._claim = Claim(access)
        self._outbox = Outbox(settings.alerts, access, self._claim)
        self._actions = ActionQueue(access, self._claim)
        self._orphans = Orphans(settings, access)
        self._wake = anyio.Event()
        self._begun: float | None = None

    def look_soon(self, events: list[Event]) -> None:
        if any(event.type.startswith(_LOUD) for event in events):
            self._wake.set()

    async def begin(self) -> None:
        """Watch from now on, if the home is not watched yet: earlier ends raise no alert."""
        self._begun = await self._access.write(_begun)

    async def serve(self) -> None:
        """Work whenever no other service of the home does, until cancelled."""
        try:
            while True:
                with suppress(EvalfleetError, OSError):  # a busy store is asked again soon
                    if self._begun is None:
                        await self.begin()
                    if await self._claim.hold():
                        await self._work()
                await anyio.sleep(_CLAIM_S)
        finally:
            with anyio.CancelScope(shield=True), suppress(EvalfleetError, OSError):
                await self._claim.release()

    async def finish(self) -> None:
        """Tell what is new at the end of this process, and send what waits, unless another service does.

        A service that still has the claim sees what we told when it looks again after its release, as we do.
        """
        await self._look()
        for _ in range(_ROUNDS):
            if not await self._claim.hold():
                return
            await self._actions.take_due()
            tried = await self._outbox.send_once()
            await self._claim.release()
            if await self._outbox.waiting() <= tried:
                return

    async def _work(self) -> None:
        """Until the claim is lost."""
        async with anyio.create_task_group() as group:
            # A receiver or a controller that does not answer holds up no look.
            group.start_soon(self._outbox.serve)
            group.start_soon(self._actions.serve)
            group.start_soon(self._orphans.serve)
            group.start_soon(self._look_often)
            with suppress(EvalfleetError, OSError):
                while await self._claim.hold():  # noqa: ASYNC110 - another process may take it
                    await anyio.sleep(LEASE_S / 3)
            group.cancel_scope.cancel()

    async def _look_often(self) -> None:
        while True:
            started = anyio.current_time()
            try:
                await self._look()
            except (EvalfleetError, OSError) as error:  # a busy store, a full disk: the next look comes soon
                self._access.notice(f"alerts: {error}")
            except Exception:  # noqa: BLE001 - the boundary of a service: one odd run must not blind us for all others
                _log.exception("a look for alerts failed")
                self._access.notice("alerts: a look failed, which is a mistake of evalfleet; the log has the traceback")
            self._outbox.poke()
            self._actions.poke()
            took = anyio.current_time() - started
            with anyio.move_on_after(max(LOOK_S, 10 * took)):
                await self._wake.wait()
                await anyio.sleep(max(_SOON_S, 5 * took))  # what belongs together comes together
            self._wake = anyio.Event()

    async def _look(self) -> None:
        begun = self._begun
        assert begun is not None, "`begin` comes first"
        seen = await self._access.read(lambda store: self._evaluator.evaluate(store, begun))
        if has_news(seen):
            await self._access.write(lambda store: self._evaluator.tell(store, seen))


def _begun(store: Store) -> float:
    with store.batch():
        for event in store.events.alerts():
            if event.type == WATCHED:
                return event.at
        store.events.note(HOME, WATCHED, {})
        return store.now()
