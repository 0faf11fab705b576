"""The machines that a command of `evalfleet pool` acts on, and how to reach them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import click

from evalfleet.cli.pools.shared.pools import chosen, opened

if TYPE_CHECKING:
    from evalfleet.hosts.access import ReachableHost, UnavailableHost
    from evalfleet.model import Pool
    from evalfleet.store.reader import StoreReader

    Found: TypeAlias = ReachableHost | UnavailableHost

worker_option = click.option("--worker", metavar="W", help="Only this host; the name of one of its workers works too.")
"""Gives the command `worker: str | None`."""

AT_ONCE = 20  # hosts that one command has to do with at the same time


def found(home: str | None, name: str | None, worker: str | None = None) -> Sequence[Found]:
    """The hosts of a pool, or the one named. A host name means the same machine in all pools of a home.

    Raises InputError where no pool is named and there are several; NotFound where there is no such pool, host or worker.
    """
    with opened(home) as (reader, pools):
        if worker is not None and name is None:
            return [_meant(worker, [host for pool in pools for host in _hosts_of(reader, pool)])]
        hosts = _hosts_of(reader, chosen(name, pools))
        return hosts if worker is None else [_meant(worker, hosts)]


def one(home: str | None, worker: str | None) -> ReachableHost:
    """The named host; without a name the only one of all pools.

    Raises InputError where nothing is named and there is not exactly one host; NotFound where there is no such host or worker;
    HostUnreachable where it cannot be reached at this moment, and why.
    """
    from evalfleet.errors import InputError
    from evalfleet.hosts.access import present

    if worker is not None:
        return present(found(home, None, worker)[0])
    with opened(home) as (reader, pools):
        hosts = [host for pool in pools for host in _hosts_of(reader, pool)]
    if len(hosts) == 1:
        return present(hosts[0])
    raise InputError(
        f"which machine? There are: {', '.join(host.name for host in hosts)}." if hosts else "there are no pools yet."
    )


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


def _meant(worker: str, hosts: Sequence[Found]) -> Found:
    from evalfleet.errors import InputError, NotFound
    from evalfleet.hosts.access import host_of_worker
    from evalfleet.validation import suggestion

    if not hosts:
        raise InputError("there are no pools yet.")
    host = host_of_worker(worker, hosts)
    if host is None:
        raise NotFound(f'there is no machine "{worker}"{suggestion(worker, [host.name for host in hosts])}')
    return host
