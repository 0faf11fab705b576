"""A connection to a host of a pool for inspection, independent of any run.

The modules below import `asyncssh`; `evalfleet.hosts.ssh.backend` reports it if the package is missing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from evalfleet.hosts.access import ReachableHost, name_in_errors
from evalfleet.hosts.base import single_error
from evalfleet.hosts.ssh.backend import Keepalive, SshSettings
from evalfleet.hosts.ssh.login.config import Hop
from evalfleet.layout import Home
from evalfleet.model import JsonObject

if TYPE_CHECKING:
    import asyncssh

    from evalfleet.hosts.ssh.login.host_keys import HostKeys

Notice = Callable[[str], None]
KEEPALIVE = SshSettings().keepalive


@asynccontextmanager
async def visit_connection(
    host: ReachableHost, home: Home, notice: Notice, keepalive: Keepalive = KEEPALIVE
) -> AsyncGenerator[asyncssh.SSHClientConnection]:
    """A connection to the host inside the block.

    Args:
        notice: called for a key that was learned.

    Raises HostUnreachable where there is no answer in time; HostRefused where its host key is wrong, or the login is refused.
    """
    from evalfleet.hosts.ssh.connection import connected

    keys = _keys(host, home, notice)
    async with AsyncExitStack() as stack:
        with name_in_errors(host.name), single_error():
            connection = await stack.enter_async_context(connected(host.spec, keys, keepalive))
        yield connection


def is_known(host: ReachableHost, hops: Sequence[Hop], home: Home) -> bool:
    """Whether the keys of the host and of its jump hosts are known."""
    keys = _keys(host, home, lambda _: None)
    with name_in_errors(host.name):
        return not any(
            keys.trust(hop.known_as or hop.login, given, hop.known_hosts).is_empty
            for hop, given in zip(hops, [*(None for _ in hops[1:]), host.spec.host_key], strict=True)
        )


def _keys(host: ReachableHost, home: Home, notice: Notice) -> HostKeys:
    from evalfleet.hosts.ssh.login.host_keys import HostKeys

    return HostKeys(home.known_hosts, host.known_hosts, trust_first_use=host.trust_first_use, notice=notice)


@asynccontextmanager
async def show_logs(
    host: ReachableHost, home: Home, notice: Notice, orders: JsonObject
) -> AsyncGenerator[AsyncGenerator[JsonObject]]:
    """Run `evalfleet.runner.visit.logs` on the host and return its answers line by line.

    Raises:
        HostUnreachable, HostRefused: as `visit_connection`, also while the lines are read.
    """
    from evalfleet.hosts.ssh.channel import RunnerPlace, visit_answers

    place = RunnerPlace(folder=host.spec.folder, python=host.spec.python)
    async with visit_connection(host, home, notice) as connection:
        with name_in_errors(host.name):
            async with visit_answers(connection, place, orders) as lines:
                yield lines
