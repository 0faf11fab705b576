"""Reaches the host, again and again, and asks it for every attempt that should be there.

Unreachable is not failed: a host that does not answer is suspected and gets no new work, is asked by another way, and is
given up only by the rules of `core.health`. Attempts come back by what the runner says of them, never by our guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

import anyio

from evalfleet.backends.base import Backend, Host, Inbox, Launch, Observation, single_error
from evalfleet.core import health
from evalfleet.engine.clerk import Clerk
from evalfleet.engine.dispatcher import Dispatcher, EngineSettings
from evalfleet.errors import BackendError, RunnerUnavailable
from evalfleet.model import AttemptState, JsonObject
from evalfleet.store.base import Store

_RESCUE_S = 30.0


class Rescuer:
    def __init__(
        self,
        backend: Backend,
        dispatcher: Dispatcher,
        clerk: Clerk,
        inbox: Inbox,
        store: Store,
        settings: EngineSettings,
        meet: Callable[[Host | None], None],
    ) -> None:
        self._backend = backend
        self._dispatcher = dispatcher
        self._clerk = clerk
        self._inbox = inbox
        self._store = store
        self._settings = settings
        self._meet = meet

    async def serve(self) -> None:
        """Keep a connection for as long as we live."""
        run = self._dispatcher.run
        while True:
            try:
                with single_error():
                    async with self._backend.acquire(run.id, run.epoch, self._inbox) as host:
                        await self._rescue(host)
                        await self._clerk.call(self._dispatcher.backend_returned)
                        self._meet(host)
                        await self._watch(host)
            except BackendError as error:
                self._meet(None)
                delay = await self._clerk.call(partial(self._dispatcher.backend_failed, str(error)))
                self._inbox.poke()
                await (anyio.sleep_forever() if delay is None else anyio.sleep(delay))
            finally:
                self._meet(None)

    async def _rescue(self, host: Host) -> None:
        """Ask the host for every attempt that should be there, and for those that nobody expects any more."""
        try:
            with anyio.fail_after(_RESCUE_S):
                known = {one.attempt_id for one in await host.known()}
                # Through the clerk, so that a claim that is just being made is among them.
                live = await self._clerk.call(lambda: dict(self._dispatcher.live))
                for attempt_id in live.keys() & known:
                    await host.observe(attempt_id, live[attempt_id].last_event)
                await self._find(host, live.keys() - known)
                for attempt_id in known - live.keys():
                    # Its end says whether it is late or was never collected. Without files, we took them and died before
                    # we said so.
                    if not await host.observe(attempt_id, -1):
                        await host.forget([attempt_id])
        except TimeoutError:
            raise RunnerUnavailable(f"host {host.info.name} fell silent while it was asked for its attempts") from None

    async def _find(self, host: Host, missing: Iterable[str]) -> None:
        """Attempts that the host does not know. Never started: launch again, which is idempotent. Else its runner lost it."""
        launches: list[Launch] = []
        for attempt_id in missing:
            live = self._dispatcher.live.get(attempt_id)
            if live is None:
                continue
            if live.attempt.state is not AttemptState.LEASED or live.last_event >= 0:
                self._end(attempt_id, {"cause": "runner_lost", "message": "its runner does not know it any more"})
                continue
            launch = await self._clerk.call(partial(self._dispatcher.relaunch, attempt_id))
            if launch:
                launches.append(launch)
            else:
                self._end(attempt_id, {"cause": "cancelled"})
        if launches:
            await host.launch(launches)

    def _end(self, attempt_id: str, end: JsonObject) -> None:
        self._inbox.put([Observation(attempt_id, 1 << 30, 0.0, "ended", end)])

    async def _watch(self, host: Host) -> None:
        """Return when the connection is gone or of no use any more."""
        async with anyio.create_task_group() as group:

            async def ask_often() -> None:
                await self._ask_often(host)
                group.cancel_scope.cancel()

            group.start_soon(ask_often)
            await host.lost()
            group.cancel_scope.cancel()

    async def _ask_often(self, host: Host) -> None:
        """Return when this connection is of no use any more: gone, or silent while the host answers another way, or given up."""
        answered_at = anyio.current_time()
        unanswered = 0
        while True:
            await anyio.sleep(self._settings.ping_s)
            known = await self._known(host)
            now = anyio.current_time()
            if known is not None:
                if unanswered:
                    await self._note("worker.returned", host, now - answered_at)
                    self._meet(host)
                answered_at, unanswered = now, 0
                await self._audit(host, known)
                continue
            if host.is_lost:
                return
            unanswered += 1
            if not await self._keeps_waiting(host, answered_at, unanswered):
                return

    async def _known(self, host: Host) -> set[str] | None:
        """The attempts that the host has; None if it does not say so in time."""
        with anyio.move_on_after(2 * self._settings.ping_s), suppress(BackendError):
            return {one.attempt_id for one in await host.known()}
        return None

    async def _keeps_waiting(self, host: Host, answered_at: float, unanswered: int) -> bool:
        """Suspect a silent host and ask it another way. False: leave this connection."""
        self._meet(None)  # it keeps its attempts and gets no new ones
        seen = health.Observation(
            last_answer_at=answered_at,
            lease_expires_at=answered_at + self._settings.lease_s,
            reconnects_failed=unanswered,
            other_way=await self._backend.ask_otherwise(),
        )
        now = anyio.current_time()
        if unanswered == 1:
            await self._note("worker.suspected", host, now - answered_at)
        if seen.other_way is health.OtherWay.ALIVE:
            await self._note("worker.returned", host, now - answered_at)
            return False
        if health.health_of(seen, now, self._settings.patience) is not health.Health.LOST:
            return True
        await self._note("worker.lost", host, now - answered_at)
        await self._backend.reset()
        return False

    async def _audit(self, host: Host, known: set[str]) -> None:
        """Attempts that the host should have by now and has not will never end by themselves."""
        missing = await self._clerk.call(partial(self._dispatcher.missing, known, self._settings.audit_age_s))
        with suppress(BackendError):
            await self._find(host, missing)

    async def _note(self, event: str, host: Host, silent_s: float) -> None:
        data = {"host": host.info.name, "silent_s": round(silent_s, 1)}
        await self._clerk.call(partial(self._store.note, self._dispatcher.run.id, event, data))
