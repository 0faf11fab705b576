"""Pools: created, listed, opened, scaled, started, stopped and deleted."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from typing import Any, cast

import anyio
import anyio.to_thread
from msgspec.structs import replace

from evalfleet import config
from evalfleet.answers.machines import MachineLog, MachineLogList
from evalfleet.answers.pools import PoolDeletion, PoolFacts
from evalfleet.api.tasks import Duration, Folder, plain
from evalfleet.api.twins import in_own_loop, in_thread
from evalfleet.errors import NotFound
from evalfleet.hosts.base import single_error
from evalfleet.hosts.probe import LIMIT_S
from evalfleet.model import Pool, PoolHost
from evalfleet.operations.machines import machine_logs, pools
from evalfleet.operations.machines.probe import probed
from evalfleet.pools.kinds import registry
from evalfleet.report.reader import opened
from evalfleet.store.open import open_store
from evalfleet.store.store import Store
from evalfleet.validation import seconds

Tell = Callable[[PoolHost], None]


def create_pool(
    name: str,
    *,
    backend: str | None = None,
    replace: bool = False,
    home: Folder | None = None,
    **options: Any,
) -> PoolHandle:
    """Write down a pool: what `evalfleet pool create` orders. Machines are created by `PoolHandle.wait`, or by a run on it.

    Args:
        backend: ssh, azure-vm, azure-batch, tiers or that of a plug-in; else that in evalfleet.toml, or as `hosts` or `tiers` say.
        replace: give a pool of machines that exist, or of tiers, other ones.
        options: those of `evalfleet pool create` by their names: `hosts` (a path), `workers`, `size`, `regions`, `spot`, ...

    Raises InputError, NotFound; WrongState where there is another pool of that name.
    """
    machine = config.load(home)
    given = {word: _plain(value) for word, value in options.items() if value is not None}
    with closing(open_store(machine.home)) as store:
        pool = pools.create(machine, store, name, given, backend=backend, replace=replace)
    return PoolHandle(machine, pool.name)


def open_pool(name: str, *, home: Folder | None = None) -> PoolHandle:
    """A pool of the home. Raises NotFound."""
    handle = PoolHandle(config.load(home), name)
    handle.status()
    return handle


def list_pools(*, home: Folder | None = None) -> list[PoolFacts]:
    """The pools, each as `evalfleet pool status --json` prints it."""
    machine = config.load(home)
    with opened(machine.home) as reader:
        return [] if reader is None else [pools.status(machine, reader, one) for one in reader.pools.all()]


class PoolHandle:
    """A pool. Changes are written down at once; `wait` makes them true, as does a run that uses the pool, or `evalfleet serve`."""

    def __init__(self, settings: config.Settings, name: str) -> None:
        self.name = name
        self._settings = settings
        self._order = pools.Order(pool=name)  # what `wait` makes true

    def __repr__(self) -> str:
        return f"<evalfleet pool {self.name} in {self._settings.home}>"

    def status(self) -> PoolFacts:
        """Its hosts, and what they cost: the object that `evalfleet pool status --json` prints. Raises NotFound."""
        with opened(self._settings.home) as reader:
            if reader is None:
                raise NotFound(f"there is no pool {self.name!r}")
            return pools.status(self._settings, reader, reader.pools.get(self.name))

    def probe(self, timeout: float = LIMIT_S) -> PoolFacts:
        """Ask its machines and their guests now, all at once: what `evalfleet pool status --probe --json` prints. What does not
        answer within `timeout` seconds is in the answer as such.

        Raises NotFound; Refused inside a running event loop: use `probe_async` there.
        """
        return in_own_loop(lambda: self.probe_async(timeout), "pool.probe_async")

    async def probe_async(self, timeout: float = LIMIT_S) -> PoolFacts:  # noqa: ASYNC109 - the twin of `probe`
        """`probe` for asyncio."""
        with opened(self._settings.home) as reader:
            if reader is None:
                raise NotFound(f"there is no pool {self.name!r}")
            return await probed(self._settings, reader, reader.pools.get(self.name), timeout)

    def logs(self, host: str) -> MachineLogList:
        """The logs that there are of a machine: what `evalfleet pool logs --list --json` prints.

        Raises NotFound; Refused inside a running event loop: use `logs_async` there.
        """
        return in_own_loop(lambda: self.logs_async(host), "pool.logs_async")

    async def logs_async(self, host: str) -> MachineLogList:
        """`logs` for asyncio."""
        return await machine_logs.names(await anyio.to_thread.run_sync(self._log_target, host))

    def log(self, host: str, name: str, *, lines: int | None = None, kept: bool = False) -> MachineLog:
        """The end of one log of a machine: `boot`, `cloud-init`, `docker`, `container/NAME` or another that `logs` names.

        Args:
            lines: of its end; None: up to 256,000 characters.
            kept: as it was kept when the machine failed last.

        Raises NotFound; BackendError where the machine or its cloud does not answer; Refused inside a running event loop: use
        `log_async` there.
        """
        return in_own_loop(lambda: self.log_async(host, name, lines=lines, kept=kept), "pool.log_async")

    async def log_async(self, host: str, name: str, *, lines: int | None = None, kept: bool = False) -> MachineLog:
        """`log` for asyncio."""
        target = await anyio.to_thread.run_sync(self._log_target, host)
        return await machine_logs.read(target, name, lines=lines, from_kept=kept)

    def _log_target(self, host: str) -> machine_logs.Target:
        with opened(self._settings.home) as reader:
            if reader is None:
                raise NotFound(f"there is no pool {self.name!r}")
            return machine_logs.targets(self._settings, reader, reader.pools.get(self.name), host)[0]

    def scale(
        self,
        workers: int | None = None,
        *,
        min: int | None = None,
        max: int | None = None,
        idle: Duration | None = None,
        budget_usd: float | None = None,
        force: bool = False,
    ) -> list[str]:
        """Change how many machines it has, its limits or its budget; returns the names of machines that are too many.

        Args:
            min: with `max`: follow what runs need, between the two.
            idle: a machine that is idle for so long is stopped or deleted.
            force: do not wait for work that is on machines that are too many.
        """
        changes = {
            "workers": workers,
            "min": min,
            "max": max,
            "idle": seconds("idle", plain(idle)),
            "budget_usd": budget_usd,
        }
        return self._ordered(lambda store, pool: pools.scale(store, pool, changes, force=force))

    def start(self, worker: str | None = None) -> list[str]:
        """Let its stopped machines run, or one; `wait` lets those in quarantine try again, too. Returns their names."""
        return self._ordered(lambda store, pool: pools.start(store, pool, worker))

    def stop(self, worker: str | None = None, *, force: bool = False) -> list[str]:
        """Deallocate its machines, or one; their disks stay. `wait` creates none before another order. Returns their names.

        Args:
            force: do not wait for work that is on them.
        """
        return self._ordered(lambda store, pool: pools.stop(store, pool, worker, force=force))

    def delete(self, worker: str | None = None, *, force: bool = False) -> PoolDeletion:
        """Delete it with the machines that were created for it, or one of them.

        Existing machines stay, and such a pool is gone at once; evalfleet's folder is removed from hosts that are reachable
        and idle, within 20 s. Raises WrongState while a run uses the pool; Refused inside a running event loop: use
        `delete_async` there.
        """
        return in_own_loop(lambda: self.delete_async(worker, force=force), "pool.delete_async")

    async def delete_async(self, worker: str | None = None, *, force: bool = False) -> PoolDeletion:
        """`delete` for asyncio."""
        machines, leave = await anyio.to_thread.run_sync(self._deleted, worker, force)
        return PoolDeletion(machines=machines, left={} if leave is None else await leave())

    def _deleted(self, worker: str | None, force: bool) -> tuple[list[str], pools.Leave | None]:
        with closing(open_store(self._settings.home)) as store:
            pool = store.pools.get(self.name)
            self._order = pools.delete(store, pool, worker, force=force)
            return self._order.machines, None if worker else pools.leave(self._settings, store, pool)

    def wait(self, timeout: float | None = None, *, tell: Tell | None = None) -> PoolFacts | None:
        """Make its machines what they should be; returns how it is then, and None where it is deleted.

        Where another process owns the pool, wait for that one. `reason` says why a pool is not what it should be.

        Args:
            tell: is called with each machine that changes.

        Raises TimeoutError; Refused inside a running event loop: use `wait_async` there.
        """
        return in_own_loop(lambda: self.wait_async(timeout, tell=tell), "pool.wait_async")

    async def wait_async(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the twin of `wait`
        *,
        tell: Tell | None = None,
    ) -> PoolFacts | None:
        """`wait` for asyncio."""
        store = await anyio.to_thread.run_sync(open_store, self._settings.home)
        try:
            pool = store.pools.get(self.name)
            if registry.creates_machines(pool):
                pools.require_account(self._settings, pool)
                with anyio.fail_after(timeout), single_error():
                    facts = await pools.reconcile(self._settings, store, self._order, tell=tell or (lambda _: None))
                self._order = replace(self._order, again=False)
                return facts
            return pools.status(self._settings, store, pool)
        finally:
            store.close()

    status_async = in_thread(status)
    scale_async = in_thread(scale)
    start_async = in_thread(start)
    stop_async = in_thread(stop)

    def _ordered(self, order: Callable[[Store, Pool], pools.Order]) -> list[str]:
        with closing(open_store(self._settings.home)) as store:
            found = order(store, store.pools.get(self.name))
        self._order = replace(found, again=found.again or self._order.again)
        return found.machines


def _plain(value: Any) -> Any:
    return str(cast("os.PathLike[str]", value)) if isinstance(value, os.PathLike) else plain(value)
