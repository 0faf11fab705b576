"""The machines of a cloud as a run uses them: they come and go. The run reconciles the pool where no other process does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import anyio

from evalfleet import config
from evalfleet.core.hosts.health import OtherWay
from evalfleet.core.hosts.lifecycle import Power
from evalfleet.core.readiness import Notice
from evalfleet.errors import BackendError, NotFound, Owned, Refused
from evalfleet.hosts.base import Backend, Departure
from evalfleet.hosts.ssh.login.hosts_file import SshHostSpec
from evalfleet.hosts.ssh.tools import first_failed
from evalfleet.model import DesiredState, HostState, Pool, PoolHost, Run
from evalfleet.pools.busy import waiting
from evalfleet.pools.cloud.problems import Refusal
from evalfleet.pools.cloud.protocol import Cloud, keeps_stopped
from evalfleet.pools.cloud.waits import told_to
from evalfleet.pools.context import opened_mailbox
from evalfleet.pools.controller import PoolController, own_pool, reconcile_pool
from evalfleet.pools.kinds.cloud import CloudKind
from evalfleet.pools.machine.facts import facts_of
from evalfleet.pools.machine.host import CloudBackend
from evalfleet.pools.machine.reach import ssh_spec
from evalfleet.pools.settings import settings_of
from evalfleet.store.home.facts import identified
from evalfleet.store.open import open_store
from evalfleet.store.pools.queries import pool_subject
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store
from evalfleet.store.thread import StoreThread

if TYPE_CHECKING:
    from evalfleet.pools.machine.mailbox import Mailbox

_LOOK_S = 0.5
_RECHECK_S = 60.0
_AGAIN_S = 2.0  # before we ask again whether the pool has no owner any more
_USABLE = (HostState.READY, HostState.QUARANTINED, HostState.DRAINING)
_OFF = (Power.RELEASED, Power.STOPPING, Power.OFF)


class PoolFleet:
    """Implements `Fleet`. Used in the loop's thread; has a store of its own, beside the engine's."""

    def __init__(
        self,
        kind: CloudKind,
        settings: config.Settings,
        reader: StoreReader,
        pool: Pool,
        run: Run,
        process: str,
        notice: Notice,
    ) -> None:
        """Raises InputError where the settings name another account than the pool's."""
        kind.require_account(pool, settings)
        self._provider = kind.provider
        self._settings = settings
        self._identity = reader.home.identity()
        self._home = identified(settings.home, self._identity)
        self._name = pool.name
        self._run_id = run.id
        self._tools = run.policy.tools
        self._process = process
        self._notice = notice
        self._pool = pool
        self._stopped_at = settings_of(pool).stopped_at
        self._rows: dict[str, PoolHost] = {row.name: row for row in reader.hosts.of_pool(pool.name, gone=True)}
        self._known: dict[str, tuple[object, Backend]] = {}
        self._kept: dict[
            str, bool
        ] = {}  # machines that are gone -> whether the run has attempts that may be in their boxes
        self._changed = anyio.Event()
        self._controller: PoolController | None = None
        self._cloud: Cloud | None = None
        self._mailbox: Mailbox | None = None  # of machines that cannot be called; while we serve
        self._wanted = 0
        self._busy: dict[str, int] = {}
        self._unwell: dict[str, str] = {}
        self._given_up: dict[str, str] = {}
        self._blamed: list[tuple[str, str]] = []
        self._retries = 0  # machines in quarantine that shall prove themselves again

    # What the engine asks

    def backends(self) -> Sequence[Backend]:
        return [self._backend(row) for row in self._rows.values() if self._is_usable(row) and self._is_reached(row)]

    def _is_usable(self, row: PoolHost) -> bool:
        """Of a machine that is gone the run uses the box, while it may hold results of the run."""
        return row.state in _USABLE or (_left_box(row) and self._kept.get(row.name, False))

    def _is_reached(self, row: PoolHost) -> bool:
        facts = facts_of(row)
        return facts.address is not None or (facts.box is not None and self._mailbox is not None)

    def _backend(self, row: PoolHost) -> Backend:
        """The way to a machine: the same object as long as the way is the same."""
        slots, facts = settings_of(self._pool).slots, facts_of(row)
        if self._mailbox is not None:
            way: object = (facts.box, facts.generation, facts.pilot, slots, _left_box(row))
        else:
            way = ssh_spec(self._provider, row, slots)
        if row.name not in self._known or self._known[row.name][0] != way:
            if isinstance(way, SshHostSpec):
                backend: Backend = CloudBackend(self._home, way, self._ask, self._notice, self._tools)
            else:
                assert self._mailbox is not None
                left = _departure(row) if _left_box(row) else None
                backend = self._mailbox.backend(self._provider, row, slots, self._ask, canary=left is None, left=left)
            self._known[row.name] = (way, backend)
        return self._known[row.name][1]

    def draining(self) -> frozenset[str]:
        """Those that get no new work: they are in quarantine, or on their way to be stopped or deleted."""
        return frozenset(
            row.name
            for row in self._rows.values()
            if row.state is not HostState.READY or row.desired is not DesiredState.RUNNING
        )

    def departure(self, host: str) -> Departure | None:
        row = self._rows.get(host)
        if row is None:
            return Departure(cause="worker_lost", message=f"its host {host} does not belong to the pool any more")
        if _left_box(row) and self._kept.get(host, True):
            return None  # its box tells how they ended
        return _departure(row)

    async def changed(self) -> None:
        await self._changed.wait()
        self._changed = anyio.Event()

    def want(self, workers: int) -> None:
        if workers != self._wanted:
            self._wanted = workers
            self._pass_on()

    def busy(self, host: str, attempts: int) -> None:
        if self._busy.get(host, 0) != attempts:
            self._busy[host] = attempts
            self._pass_on()

    def blame(self, host: str, reason: str) -> None:
        self._blamed.append((host, reason))

    def give_up(self, hosts: Mapping[str, str]) -> None:
        if hosts != self._given_up:
            self._given_up = dict(hosts)
            self._pass_on()

    def retry_quarantined(self, most: int | None) -> None:
        """Let machines in quarantine prove themselves again, as far as this process keeps the pool; None: all of them."""
        self._retries = len(self._rows) if most is None else most

    async def part(self, *, over: bool) -> None:
        """A pool that was made for the run goes with it, when that is over. Any other stays, also that of a run that is
        paused, and its machines stop soon."""
        store, thread = open_store(self._settings.home), StoreThread()
        try:
            own = settings_of(self._pool).run is not None
            if own and over:
                await thread.call(store.pools.mark_for_deletion, self._name)
                self._notice(f"pool {self._name} was made for this run, and is deleted now")
                await reconcile_pool(self._settings, store, self._name, self._process, lambda _: None, waits=False)
                for host, why in (await thread.call(waiting, store, self._name)).items():
                    self._notice(
                        f"{host} stays until its deadline: it {why} (`evalfleet pool delete {self._name} --force`)"
                    )
            else:
                await self._loosen(store, thread)
        except (BackendError, Refused, NotFound) as error:
            self._notice(f"pool {self._name}: {error}; `evalfleet reap` deletes what is no longer needed")
        finally:
            await thread.finish(store.close)

    async def _loosen(self, store: Store, thread: StoreThread) -> None:
        if await thread.call(store.pools.owner, self._name) is not None:
            return  # somebody else has use for it
        async with own_pool(self._settings, store, thread, self._name, self._process) as controller:
            until = await controller.part()
        if until is not None:
            when = time.strftime("%H:%M", time.localtime(until))
            rows = await thread.call(store.hosts.of_pool, self._name)
            usd = sum(row.usd_per_hour + row.kept_usd_per_hour for row in rows if row.allocated_since is not None)
            end = "stop" if keeps_stopped(self._provider) else "are deleted"
            self._notice(
                f"pool {self._name} is still there, and costs ${usd / self._provider.speed(self._settings):.2f} an hour "
                f"until about {when}: then its machines {end}; `evalfleet pool stop {self._name}` or `pool delete` "
                "ends it now"
            )

    def waits_for(self) -> str:
        """What a run without a host waits for, in one line."""
        if self._pool.reason is not None:
            return f"pool {self._name}: {self._pool.reason['message']}"
        states = [str(row.state) for row in self._rows.values() if row.state is not HostState.GONE]
        told = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        return f"pool {self._name}: {told or 'its machines are being asked for'}"

    # Beside the engine

    async def serve(self) -> None:
        store, thread = open_store(self._settings.home), StoreThread()
        try:
            with told_to(self._notice):
                async with (
                    self._provider.open(self._settings, self._home) as cloud,
                    opened_mailbox(self._provider, self._settings, self._identity, self._name) as mailbox,
                    anyio.create_task_group() as group,
                ):
                    self._cloud, self._mailbox = cloud, mailbox
                    self._changed.set()
                    group.start_soon(self._follow, store, thread)
                    group.start_soon(self._keep, store, thread)
                    group.start_soon(self._recheck)
        finally:
            self._cloud = self._mailbox = None
            await thread.finish(store.close)

    async def _keep(self, store: Store, thread: StoreThread) -> None:
        """Keep the pool, now or as soon as its owner leaves it."""
        told = ""
        while True:
            try:
                async with own_pool(
                    self._settings, store, thread, self._name, self._process, self._note, stopped_at=self._stopped_at
                ) as controller:
                    self._controller = controller
                    self._pass_on()
                    await controller.serve()
                    return
            except Owned:
                pass
            except NotFound:
                return
            except BackendError as error:
                if str(error) != told:
                    told = str(error)
                    self._notice(told)
            finally:
                self._controller = None
            await anyio.sleep(_AGAIN_S)

    async def _follow(self, store: Store, thread: StoreThread) -> None:
        """See what others write, and write what the engine said."""
        while True:
            try:
                self._pool = await thread.call(store.pools.get, self._name)
            except NotFound:
                self._rows = {}
                self._changed.set()
                return
            rows = await thread.call(store.hosts.of_pool, self._name, gone=True)
            await self._look_at_boxes(rows, store, thread)
            for row in rows:
                self._note(row)
            unwell, self._unwell = self._unwell, {}
            for host, reason in unwell.items():
                if self._controller is not None:  # else whoever keeps the pool finds out by itself
                    await self._controller.quarantine(host, reason)
            if self._retries and self._controller is not None:
                await self._controller.retry_quarantined(self._retries)
                self._retries = 0
            blamed, self._blamed = self._blamed, []
            for host, reason in blamed:
                data = {"host": host, "reason": reason}
                await thread.call(store.events.note, pool_subject(self._name), "worker.blamed", data)
            await anyio.sleep(_LOOK_S)

    async def _look_at_boxes(self, rows: Sequence[PoolHost], store: Store, thread: StoreThread) -> None:
        """See of which machines that are gone the boxes are still needed by this run."""
        left = [row.name for row in rows if _left_box(row)]
        work = await thread.call(store.hosts.work) if left else {}
        kept = {name: any(one.run_id == self._run_id for one in work.get(name, ())) for name in left}
        if kept != self._kept:
            self._kept = kept
            self._changed.set()

    async def _recheck(self) -> None:
        """Look again and again whether what the run's tasks need on each machine still is there: a dead container is
        restarted once; what is unwell after that is quarantined."""
        restarted: dict[str, set[str]] = {}
        while self._tools is not None and self._tools.benchmark is not None:
            await anyio.sleep(_RECHECK_S)
            for backend in self.backends():
                name = backend.name
                if name in self.draining() or not isinstance(backend, CloudBackend):
                    continue
                try:
                    checks = await backend.recheck(self._tools, restarted.setdefault(name, set()))
                except BackendError:
                    continue  # whether it is there at all is for others to find out
                restarted[name] |= {check.of for check in checks if check.of and check.restarted}
                bad = first_failed(checks)
                if bad is not None:
                    self._unwell[name] = bad.said()

    def _note(self, row: PoolHost) -> None:
        if self._rows.get(row.name) != row:
            self._rows[row.name] = row
            self._changed.set()

    def _pass_on(self) -> None:
        if self._controller is not None:
            self._controller.follow(self._run_id, self._wanted, self._busy, self._given_up)

    async def _ask(self, name: str) -> OtherWay | None:
        """What the cloud says of a machine that is silent; None: that it runs, or nothing."""
        if self._cloud is None or name not in self._rows:
            return None
        taken = OtherWay.EVICTED if facts_of(self._rows[name]).spot else OtherWay.GONE
        try:
            view = await self._cloud.view(name)
        except Refusal:
            return None
        return taken if view is None or view.power in _OFF else None


def _left_box(row: PoolHost) -> bool:
    """Whether the machine is gone, and its box is still there."""
    return row.state is HostState.LOST and facts_of(row).box is not None


def _departure(row: PoolHost) -> Departure | None:
    """Why a machine is gone; None while it is not."""
    if facts_of(row).preempted:
        why = "was taken back by the cloud" if facts_of(row).spot or not row.reason else f"is lost: {row.reason}"
        return Departure(cause="preempted", message=f"its host {row.name} {why}")
    if row.state in (HostState.GONE, HostState.LOST, HostState.STOPPED):
        message = f"its host {row.name} is {row.state}: {row.reason or 'as asked'}"
        return Departure(cause="worker_lost", message=message)
    return None
