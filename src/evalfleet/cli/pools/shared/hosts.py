"""The machines that a command of `evalfleet pool` acts on, and how to reach them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import click

from evalfleet.cli.pools.shared.pools import chosen, opened

if TYPE_CHECKING:
    from evalfleet.errors import InputError
    from evalfleet.hosts.access import ReachableHost, UnavailableHost
    from evalfleet.model import Pool
    from evalfleet.store.reader import StoreReader

    Found: TypeAlias = ReachableHost | UnavailableHost

worker_option = click.option("--worker", metavar="W", help="Only this host; the name of one of its workers works too.")
"""Gives the command `worker: str | None`."""

AT_ONCE = 20  # hosts that one command has to do with at the same time


def found(home: str | None, name: str | None, worker: str | None = None) -> Sequence[Found]:
    """The hosts of a pool, or the one named. A host name means the same machine in all pools of a home.

    Raises InputError where no pool is named and there are several, or there is no host at all; NotFound where there is no such
    pool, host or worker.
    """
    with opened(home) as (reader, pools):
        if worker is not None and name is None:
            return [_meant(worker, [host for pool in pools for host in _hosts_of(reader, pool)], pools)]
        pool = chosen(name, pools)
        hosts = _hosts_of(reader, pool)
        if worker is None and not hosts:
            raise _no_machines([pool])
        return hosts if worker is None else [_meant(worker, hosts, [pool])]


def everything(home: str | None) -> list[Found]:
    """All hosts of all pools. Raises InputError where there are none."""
    with opened(home) as (reader, pools):
        hosts = [host for pool in pools for host in _hosts_of(reader, pool)]
    if not hosts:
        raise _no_machines(pools)
    return hosts


def one(home: str | None, worker: str | None) -> ReachableHost:
    """The named host; without a name the only one of all pools.

    Raises InputError where nothing is named and there is not exactly one host; NotFound where there is no such host or worker;
    HostUnreachable where it cannot be reached at this moment, and why.
    """
    from evalfleet.hosts.access import present

    if worker is not None:
        return present(found(home, None, worker)[0])
    with opened(home) as (reader, pools):
        hosts = [host for pool in pools for host in _hosts_of(reader, pool)]
    if len(hosts) == 1:
        return present(hosts[0])
    if not hosts:
        raise _no_machines(pools)
    from evalfleet.errors import InputError

    raise InputError(f"which machine? There are: {', '.join(host.name for host in hosts)}.")


def require_library() -> None:
    """Raises ConfigError where the SSH library is not installed; must be called before anything that imports it."""
    from importlib import import_module

    import_module("evalfleet.hosts.ssh.backend")


async def until_told() -> None:
    """Return at Ctrl-C or SIGTERM, the normal end of a command that runs until it is stopped."""
    import signal

    import anyio

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            return


def say(text: str) -> None:
    """Print a note on standard error, as one line without control characters."""
    from evalfleet.report.text import printable

    click.echo(f"evalfleet: {printable(text)}", err=True)


def _hosts_of(reader: StoreReader | None, pool: Pool) -> Sequence[Found]:
    from evalfleet.pools.kinds import registry

    rows = reader.hosts.of_pool(pool.name) if reader is not None else []
    return registry.kind_of(pool).reachable(pool, rows)


def _no_machines(pools: Sequence[Pool]) -> InputError:
    """Why there are none."""
    from evalfleet.errors import InputError
    from evalfleet.pools.kinds import registry
    from evalfleet.pools.kinds.base import HasMembers

    if not pools:
        return InputError("there are no pools yet.")
    kind = registry.kind_of(pools[0])
    if len(pools) == 1 and isinstance(kind, HasMembers):
        tiers = ", ".join(kind.members(pools[0]))
        return InputError(f"pool {pools[0].name!r} has no machines of its own; name one of its tiers: {tiers}")
    names = ", ".join(pool.name for pool in pools)
    return InputError(f"there is no machine now in {names}; `evalfleet pool status` tells why")


def _meant(worker: str, hosts: Sequence[Found], pools: Sequence[Pool]) -> Found:
    from evalfleet.errors import NotFound
    from evalfleet.hosts.access import host_of_worker
    from evalfleet.validation import suggestion

    if not hosts:
        raise _no_machines(pools)
    host = host_of_worker(worker, hosts)
    if host is None:
        raise NotFound(f'there is no machine "{worker}"{suggestion(worker, [host.name for host in hosts])}')
    return host
