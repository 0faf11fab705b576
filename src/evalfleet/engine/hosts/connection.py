"""Keeps a connection to one host, and asks it for every attempt that should be there.

Unreachable is not failed: a host that does not answer is suspected, gets no new work, is asked another way, and is
given up only by the rules of `core.health`. The state of attempts comes from the runner, never from a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import anyio
from msgspec.structs import replace

from evalfleet.core.hosts import health
from evalfleet.engine.attempts.returned import LeftoverAttempts
from evalfleet.engine.dispatcher import Dispatcher
from evalfleet.engine.hosts.session import HostSession
from evalfleet.engine.placement.workers import Absence
from evalfleet.engine.settings import EngineSettings
from evalfleet.errors import BackendError, RunnerRefused, RunnerUnavailable
from evalfleet.hosts.base import AttemptEvent, Host, Inbox, KnownAttempt, Launch, single_error
from evalfleet.model import AttemptState, JsonObject
from evalfleet.store.store import Store
from evalfleet.store.thread import StoreThread

_RESCUE_S = 30.0
_NEWER_S = 2.0  # a host must be younger than an attempt by this much, because of clocks and rounding
_SILENT = "it does not answer on an open connection"
_FAR = 6.0  # a remote host may take this many times longer to answer: a slow connection is not silence


class HostConnection:
    def __init__(
        self,
        session: HostSession,
        dispatcher: Dispatcher,
        thread: StoreThread,
        inbox: Inbox,
        store: Store,
        settings: EngineSettings,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._notice = notice  # called with lines for people
        self._session = session
        self._backend = session.backend
        self._dispatcher = dispatcher
        self._thread = thread
        self._inbox = inbox
        self._store = store
        self._settings = settings
        self._far = _FAR if session.backend.is_remote else 1.0
        self._leftovers = LeftoverAttempts(store)
        self._answered_at = 0.0
        self._spared_at = 0.0  # when the other way last said that it lives, after a long silence
        self._unanswered = 0  # requests in a row without an answer
        self._given_up = False
        self._is_linked = False  # a connection is open, even if nothing arrives
        self._preemption: str | None = None  # why the machine will be taken away
        self._is_told = False  # this connection has reported it
        self._useless = anyio.Event()  # set to close the open connection

    async def serve(self) -> None:
        """Keep a connection until cancelled."""
        run = self._dispatcher.run
        name = self._backend.name
        self._answered_at = anyio.current_time()
        while True:
            try:
                with single_error():
                    async with self._backend.acquire(run.id, run.epoch, self._inbox) as host:
                        self._is_told = False
                        await self._rescue(host)
                        await self._thread.call(self._dispatcher.hosts.returned, name)
                        await self._answered()
                        self._session.meet(host)
                        self._is_linked = True
                        await self._watch(host)
            except BackendError as error:
                self._session.meet(None)
                self._session.trouble = str(error).removeprefix(f"host {name}: ")
                await self._doubt()
                delay = await self._thread.call(self._dispatcher.host_unreached, name, str(error))
                self._inbox.poke()
                await (anyio.sleep_forever() if delay is None else anyio.sleep(delay))
            finally:
                self._is_linked = False
                self._session.meet(None)

    async def _rescue(self, host: Host) -> None:
        """Ask the host for every attempt that should be there, and for unexpected ones."""
        try:
            with anyio.fail_after(_RESCUE_S * self._far):
                found = {one.attempt_id: one.live for one in await host.known()}
                known = found.keys()
                # Through the store's thread, so that a claim in progress is included.
                live = await self._thread.call(self._dispatcher.live.on, self._backend.name)
                for attempt_id in live.keys() & known:
                    await host.observe(attempt_id, live[attempt_id].last_event)
                await self._find(host, live.keys() - known)
                back = {one for one in known - live.keys() if found[one]}
                await self._thread.call(self._dispatcher.returned.found, self._backend.name, back)
                for attempt_id in known - live.keys():
                    # Its end says whether it is late or was never collected. Without files, we took them and died before
                    # we said so.
                    if not await host.observe(attempt_id, -1):
                        with suppress(RunnerRefused):  # one attempt that cannot be cleared must not affect others
                            await host.forget([attempt_id])
                await self._clear(host)
        except TimeoutError:
            raise RunnerUnavailable(
                f"host {host.info.name} stopped answering while it was asked for its attempts"
            ) from None

    async def _clear(self, host: Host) -> None:
        """End what finished runs left there: their controllers are gone."""
        if not host.others:
            return
        for run, stop, forget in await self._thread.call(self._leftovers.orders, host.others):
            with suppress(RunnerRefused):  # another controller resumed it
                await host.clear(run.id, run.epoch, stop=stop, forget=forget)

    async def _find(self, host: Host, missing: Iterable[str]) -> None:
        """Handle attempts that the host did not name. If never started, launch again, which is idempotent. Else the runner lost it.

        Launches are delivered in parallel, so one may have arrived since: ask once more before giving it up.
        """
        launches: list[Launch] = []
        for attempt_id in missing:
            live = self._dispatcher.live.get(attempt_id)
            if live is None:
                continue
            if live.attempt.state is not AttemptState.LEASED or live.last_event >= 0:
                if not await host.observe(attempt_id, live.last_event):
                    self._end(attempt_id, {"cause": "runner_lost", "message": "its runner does not know it any more"})
                continue
            if host.info.age_s is not None and self._store.now() - live.attempt.claimed_at > host.info.age_s + _NEWER_S:
                # The former machine may have run it: the same attempt is not started twice.
                message = f"host {host.info.name} was made anew after it was claimed"
                self._end(attempt_id, {"cause": "runner_lost", "message": message})
                continue
            launch = await self._thread.call(self._dispatcher.relaunch, attempt_id)
            if launch:
                launches.append(launch)
            elif attempt_id in self._dispatcher.live:
                self._end(attempt_id, {"cause": "cancelled"})
        if launches:
            await host.launch(launches)

    def _end(self, attempt_id: str, end: JsonObject) -> None:
        self._inbox.put([AttemptEvent(attempt_id, 1 << 30, 0.0, "ended", end)])

    async def _watch(self, host: Host) -> None:
        """Return when the connection is gone or useless."""
        self._useless = anyio.Event()
        async with anyio.create_task_group() as group:

            async def ask_often() -> None:
                await self._ask_often(host)
                group.cancel_scope.cancel()

            async def leave() -> None:
                await self._useless.wait()
                group.cancel_scope.cancel()

            group.start_soon(ask_often)
            group.start_soon(leave)
            group.start_soon(self._heed, host)
            await host.lost()
            group.cancel_scope.cancel()

    async def _heed(self, host: Host) -> None:
        """A machine that will be taken away gets no new work; what runs there goes on."""
        reason = await host.preemption_notice()
        self._is_told = True
        await self._thread.call(self._dispatcher.hosts.set_apart, self._backend.name, Absence.DRAINING)
        if self._preemption is None:
            await self._note("worker.draining", {"reason": reason})
        self._preemption = reason

    async def _ask_often(self, host: Host) -> None:
        """Return when this connection is useless: gone, given up, or silent while the host answers another way."""
        while True:
            await anyio.sleep(self._settings.ping_s)
            found = await self._known(host)
            if found is not None:
                if self._unanswered:
                    self._session.meet(host)
                await self._answered()
                if self._preemption is not None and not self._is_told:
                    await self._spare()
                await self._audit(host, found)
                continue
            if host.is_lost:
                return
            if not await self._keeps_waiting():
                return

    async def _known(self, host: Host) -> list[KnownAttempt] | None:
        """The attempts that the host has; None if it does not answer in time."""
        with anyio.move_on_after(2 * self._settings.ping_s * self._far), suppress(BackendError):
            return await host.known()
        return None

    async def _answered(self) -> None:
        self._session.trouble = None
        if self._unanswered:
            await self._note("worker.returned")
            if self._unanswered > 1 and self._backend.is_remote:
                self._notice(f"host {self._backend.name} answers again")
        self._answered_at, self._unanswered, self._given_up = anyio.current_time(), 0, False

    async def _spare(self) -> None:
        """Withdraw a preemption notice that the host does not repeat over a new connection."""
        self._preemption = None
        await self._thread.call(self._dispatcher.hosts.take_back, self._backend.name, Absence.DRAINING)
        await self._note("worker.returned", {"from": "draining"})
        self._inbox.poke()

    async def _keeps_waiting(self) -> bool:
        """Suspect a host that is silent on an open connection, and ask it another way. False: close this connection."""
        self._session.trouble = _SILENT
        self._session.meet(None)  # it keeps its attempts and gets no new ones
        seen = await self._suspect()
        if seen.other_way is health.OtherWay.ALIVE:
            await self._answered()
            return False
        if not self._is_lost(seen):
            return True
        if health.cause_of(seen) == "preempted":
            await self._give_up(seen)  # there is no machine on which to end a runner
        else:
            await self._note("worker.lost", {"cause": "worker_lost"})
            await self._backend.reset()
        return False

    async def _doubt(self) -> None:
        """A remote host could not be reached. If it is lost by the rules of `core.health`, its attempts are lost.

        This machine is always there: its next runner reports what the last one left.
        """
        if not self._backend.is_remote or self._given_up or self._session.is_leaving:
            return
        seen = await self._suspect()
        if self._is_lost(seen):
            await self._give_up(seen)

    async def judge(self) -> None:
        """Decide in time by our own clock, even while a connection or the other way still waits for an answer.

        This machine is always there, and is not given up.
        """
        limit_s = max(self._settings.patience.give_up_s, self._settings.lease_s)
        while self._backend.is_remote:
            since = max(self._answered_at, self._spared_at)
            await anyio.sleep(max(self._settings.ping_s, since + limit_s - anyio.current_time()))
            silent_s = anyio.current_time() - max(self._answered_at, self._spared_at)
            if silent_s >= limit_s and not self._given_up and not self._session.is_leaving:
                with suppress(BackendError):
                    await self._decide(self._answered_at)

    async def _decide(self, answered_at: float) -> None:
        """It was silent for too long. Ask the other way once more, and end a runner that hangs there.

        Both have limited time.
        """
        seen = await self._suspect(self._settings.last_look_s)
        # A connection that is still being tried does not show that the host lives.
        seen = replace(seen, reconnects_failed=max(seen.reconnects_failed, self._settings.patience.reconnects))
        if self._answered_at != answered_at or not self._is_lost(seen):
            self._spared_at = anyio.current_time()
            return
        if self._is_linked and health.cause_of(seen) == "worker_lost" and seen.other_way is health.OtherWay.SILENT:
            with anyio.move_on_after(self._settings.last_look_s / 4), suppress(BackendError):
                await self._backend.reset()
                await self._note("worker.lost", {"cause": "worker_lost"})
                # The machine has answered; its next runner reports the attempts.
                self._answered_at = anyio.current_time()
                self._useless.set()
                return
        await self._give_up(seen)
        self._useless.set()

    async def _give_up(self, seen: health.Observation) -> None:
        if self._given_up:
            return
        self._given_up = True
        name, cause = self._backend.name, health.cause_of(seen)
        silent_s = anyio.current_time() - self._answered_at
        await self._note("worker.lost", {"cause": cause})
        await self._thread.call(self._dispatcher.hosts.set_apart, name, Absence.LOST)
        why = f" ({self._session.trouble})" if self._session.trouble else ""
        message = f"host {name} was silent for {silent_s:.0f} s and is given up{why}"
        if cause == "preempted":
            message = f"host {name} was taken back by the cloud" + (f": {self._preemption}" if self._preemption else "")
        live = await self._thread.call(self._dispatcher.live.on, name)
        self._notice(f"{message}; what it had starts elsewhere" if live else message)
        for attempt_id in live:
            self._end(attempt_id, {"cause": cause, "message": message})
        self._session.collector.abandon()

    async def _suspect(self, patience_s: float | None = None) -> health.Observation:
        self._unanswered += 1
        await self._tell_suspicion()
        other_way = health.OtherWay.SILENT
        with anyio.move_on_after(patience_s):
            other_way = await self._backend.ask_otherwise()
        return health.Observation(
            last_answer_at=self._answered_at,
            lease_expires_at=self._answered_at + self._settings.lease_s,
            reconnects_failed=self._unanswered,
            other_way=other_way,
            preempted=self._preemption is not None,
        )

    async def _tell_suspicion(self) -> None:
        """Write an event at once, but a line for people only the second time: most connections are back by then."""
        reason = self._session.trouble or _SILENT
        if self._unanswered == 1:
            await self._note("worker.suspected", {"reason": reason})
        elif self._unanswered == 2 and self._backend.is_remote:
            self._notice(
                f"host {self._backend.name} is not reached: {reason}. It gets no work meanwhile, and is tried again"
            )

    def _is_lost(self, seen: health.Observation) -> bool:
        return health.health_of(seen, anyio.current_time(), self._settings.patience) is health.Health.LOST

    async def _audit(self, host: Host, found: list[KnownAttempt]) -> None:
        """End attempts that the host should have by now but does not have: no end will be reported."""
        known = {one.attempt_id for one in found}
        running = {one.attempt_id for one in found if one.live}
        await self._thread.call(self._dispatcher.returned.only, self._backend.name, running)
        before = self._store.now() - self._settings.audit_age_s
        missing = await self._thread.call(self._dispatcher.live.missing, self._backend.name, known, before)
        with suppress(BackendError):
            await self._find(host, missing)
            await self._clear(host)

    async def _note(self, event: str, more: JsonObject | None = None) -> None:
        silent_s = round(anyio.current_time() - self._answered_at, 1)
        data = {"host": self._backend.name, "silent_s": silent_s, **(more or {})}
        await self._thread.call(self._store.events.note, self._dispatcher.run.id, event, data)
