"""Logs of the machines of a pool: read from the cloud and by login now, or as they were kept when a machine failed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import anyio
import anyio.to_thread
from msgspec import Struct

from evalfleet import config
from evalfleet.answers.machines import MachineLog, MachineLogList, MachineLogRow
from evalfleet.core.failures.kinds import one_line
from evalfleet.errors import BackendError, EvalfleetError, HostUnreachable, NotFound
from evalfleet.hosts.access import ReachableHost, UnavailableHost, host_of_worker
from evalfleet.hosts.late_redaction import without_credentials
from evalfleet.layout import Home
from evalfleet.model import Pool
from evalfleet.pools.kinds import registry
from evalfleet.pools.machine.logs.kept import LIMIT_CHARS, KeptLog, kept
from evalfleet.pools.machine.logs.logs import MachineLogs, machine_logs
from evalfleet.store.home.facts import identified
from evalfleet.store.reader import StoreReader
from evalfleet.validation import suggestion

LIMIT_S = 30.0  # for one machine


class Target(Struct, frozen=True, kw_only=True):
    """A machine whose logs are asked for, and all that must be read from the store for it."""

    settings: config.Settings
    home: Home
    pool: Pool
    name: str
    host: ReachableHost | UnavailableHost | None  # None: it is gone; what was kept of it is left
    secrets: frozenset[str]


def targets(settings: config.Settings, store: StoreReader, pool: Pool, host: str | None = None) -> list[Target]:
    """The machine of that name, or all that the pool has. The name of a worker stands for its machine. Raises NotFound."""
    rows = store.hosts.of_pool(pool.name, gone=True)
    there = [row for row in rows if row.gone_at is None]
    reachable = registry.kind_of(pool).reachable(pool, there)
    runs = [one.run_id for one in store.pools.demand(pool.name)]
    secrets = frozenset(name for run in runs for task in store.tasks.all(run) for name in task.spec.secrets)
    home = identified(settings.home, store.home.identity())
    target = partial(Target, settings=settings, home=home, pool=pool, secrets=secrets)
    by_name = {one.name: one for one in reachable}
    if host is None:
        names = [row.name for row in there] or list(by_name)
        return [target(name=name, host=by_name.get(name)) for name in names]
    found = host_of_worker(host, reachable)
    name = host if found is None else found.name
    known = {*by_name, *(row.name for row in rows)}
    if name not in known:
        raise NotFound(f'pool {pool.name!r} has no machine "{host}"{suggestion(host, sorted(known))}')
    return [target(name=name, host=found)]


async def names(target: Target) -> MachineLogList:
    """The logs that there are of a machine, now and kept."""
    found: list[MachineLogRow] = []
    unread: list[str] = []
    try:
        async with _open(target) as logs:
            found += [MachineLogRow(log=log, source="cloud") for log in await logs.cloud_names()]
            found += [MachineLogRow(log=log, source="login") for log in await logs.login_names()]
            unread = logs.unread
    except EvalfleetError as error:
        unread = [str(error)]
    if isinstance(target.host, UnavailableHost):
        unread.append(f"it {target.host.why}")
    found += [
        MachineLogRow(
            log=one.log, source="kept", run=one.run, at=one.at, file=str(one.path.relative_to(target.home.path))
        )
        for one in await anyio.to_thread.run_sync(_kept, target)
    ]
    return MachineLogList(pool=target.pool.name, host=target.name, logs=found, unread=[one_line(one) for one in unread])


async def read(target: Target, log: str, *, lines: int | None = None, from_kept: bool = False) -> MachineLog:
    """The end of one log, without credentials.

    Args:
        lines: of its end; None: all of it, up to 256,000 characters.
        from_kept: as it was kept when the machine failed last; so are all logs of a machine that is gone.

    Raises NotFound where there is no such log; BackendError where the machine or its cloud does not answer.
    """
    text, row = "", MachineLogRow(log=log, source="cloud")
    if not from_kept:
        async with _open(target) as logs:
            text = await logs.read(log, LIMIT_CHARS)
    if not text and (from_kept or target.host is None):
        text, row = await anyio.to_thread.run_sync(_from_kept, target, log)
    if not text:
        _explain(target, log)
    text = without_credentials(text, config.set_secrets(target.secrets))
    whole = text.splitlines(keepends=True)
    cut = len(text) >= LIMIT_CHARS or (lines is not None and len(whole) > lines)
    shown = whole if lines is None else whole[max(0, len(whole) - lines) :]
    return MachineLog(
        pool=target.pool.name,
        host=target.name,
        log=log,
        kept=row.source == "kept",
        run=row.run,
        text="".join(shown),
        cut=cut,
    )


def _explain(target: Target, log: str) -> None:
    """Raises what is the reason for a log without text."""
    if isinstance(target.host, UnavailableHost):
        raise HostUnreachable(f"host {target.name} {target.host.why}; it has no log {log!r} that its cloud keeps")
    raise NotFound(f"host {target.name} has no log {log!r}, or it is empty; `--list` shows those that there are")


def _kept(target: Target) -> list[KeptLog]:
    return kept(target.home, target.pool.name, target.name)


def _from_kept(target: Target, log: str) -> tuple[str, MachineLogRow]:
    for one in _kept(target):
        if one.log == log:
            return one.path.read_text("utf-8", "replace"), MachineLogRow(log=log, source="kept", run=one.run, at=one.at)
    return "", MachineLogRow(log=log, source="kept")


@asynccontextmanager
async def _open(target: Target) -> AsyncGenerator[MachineLogs]:
    """Raises HostUnreachable where it takes too long; InputError where the settings name another account than the pool's."""
    host = target.host if isinstance(target.host, ReachableHost) else None
    try:
        with anyio.fail_after(LIMIT_S):
            async with AsyncExitStack() as stack:
                cloud = None
                if registry.creates_machines(target.pool) and target.host is not None:
                    kind = registry.cloud_of(target.pool)
                    kind.require_account(target.pool, target.settings)
                    cloud = await stack.enter_async_context(kind.provider.open(target.settings, target.home))
                yield await stack.enter_async_context(machine_logs(target.name, cloud, host, target.home))
    except TimeoutError:
        raise HostUnreachable(f"host {target.name} does not answer within {LIMIT_S:g} s") from None
    except BackendError as error:
        if target.name in str(error):
            raise
        kind = HostUnreachable if isinstance(error, HostUnreachable) else BackendError
        raise kind(f"host {target.name}: {error}") from error
