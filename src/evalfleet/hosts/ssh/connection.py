"""Opens an SSH connection to a host, directly or through jump hosts. Every failure becomes a one-line message."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import asyncssh
from msgspec import Struct

from evalfleet.errors import BackendError, HostRefused, HostUnreachable
from evalfleet.hosts.ssh.login.config import Hop, route
from evalfleet.hosts.ssh.login.host_keys import HostKeys, refusal
from evalfleet.hosts.ssh.login.hosts_file import Login, SshHostSpec
from evalfleet.hosts.ssh.login.proxy import proxy_socket
from evalfleet.hosts.ssh.login.user_keys import identity

HANDSHAKE_S = 120.0  # nine times there and back: a host that is five seconds away is slow, not gone
CLOSE_S = 2.0
SSH_PORT = 22


class Keepalive(Struct, frozen=True, kw_only=True):
    """A connection without any answer is given up after about `interval_s` times `count`."""

    interval_s: float = 15.0
    count: int = 3


@asynccontextmanager
async def connected(
    spec: SshHostSpec, keys: HostKeys, keepalive: Keepalive, config: Path | None = None
) -> AsyncGenerator[asyncssh.SSHClientConnection]:
    """Hold a connection to the host inside the block.

    Args:
        config: OpenSSH configuration file to use in place of the user's.

    Raises HostUnreachable where there is no answer in time; HostRefused where its host key is wrong, the login is refused, or its
    configuration cannot be used.
    """
    *jumps, last = await route(spec, config)
    async with AsyncExitStack() as stack:
        tunnel = None
        for hop in jumps:
            try:
                tunnel = await stack.enter_async_context(_open(hop, None, keys, keepalive, tunnel, spec.connect_s))
            except BackendError as error:
                raise type(error)(f"jump host on the way to {last.login}: {error}") from error
        yield await stack.enter_async_context(_open(last, spec.host_key, keys, keepalive, tunnel, spec.connect_s))


@asynccontextmanager
async def _open(
    hop: Hop,
    given: str | None,
    keys: HostKeys,
    keepalive: Keepalive,
    tunnel: asyncssh.SSHClientConnection | None,
    connect_s: float,
) -> AsyncGenerator[asyncssh.SSHClientConnection]:
    login, known_as = hop.login, hop.known_as or hop.login
    trust = keys.trust(known_as, given, hop.known_hosts)
    check = keys.check(trust)
    options: dict[str, Any] = {
        "config": None,  # `hop` says it all
        "client_factory": lambda: check,
        "known_hosts": (trust.keys, trust.authorities, trust.revoked),
        "server_host_key_algs": trust.algorithms(),
        "preferred_auth": "publickey",
        "x509_trusted_certs": None,
        "keepalive_interval": keepalive.interval_s,
        "keepalive_count_max": keepalive.count,
        "connect_timeout": HANDSHAKE_S,
        "login_timeout": HANDSHAKE_S,
        "tunnel": tunnel,
    }
    if login.user is not None:
        options["username"] = login.user
    async with AsyncExitStack() as stack:
        async with identity(hop) as offered:
            try:
                if tunnel is None and hop.command is None:
                    options["sock"] = await _dial(login, connect_s)
                elif tunnel is None and hop.command is not None:
                    options["sock"] = await stack.enter_async_context(proxy_socket(hop.command))
                connection = await asyncssh.connect(login.address, login.port or SSH_PORT, **options, **offered)
            except asyncssh.HostKeyNotVerifiable as error:
                raise refusal(login, trust, check.shown, error.reason) from error
            except asyncssh.PermissionDenied as error:
                raise HostRefused(_no_entry(hop)) from error
            except TimeoutError as error:
                raise HostUnreachable(f"{login}: no SSH handshake within {HANDSHAKE_S:.0f} s") from error
            except (asyncssh.Error, OSError) as error:
                way = f" through its ProxyCommand {hop.command!r} (run it by hand to see more)" if hop.command else ""
                raise HostUnreachable(f"{login}: the connection{way} failed: {words_of(error)}") from error
        stack.push_async_callback(_close, connection)
        if check.shown is not None:
            try:
                keys.learn(known_as, check.shown, hop.known_hosts)
            except OSError as error:
                raise HostRefused(f"{login}: cannot save its host key: {error}") from error
        yield connection


async def _dial(login: Login, limit_s: float) -> socket.socket:
    """Open a TCP connection. Its time limit is shorter than the handshake's: a dead address shows soon."""
    loop = asyncio.get_running_loop()
    failed = f"no answer within {limit_s:g} s"
    try:
        with anyio.fail_after(limit_s):
            places = await loop.getaddrinfo(login.address, login.port or SSH_PORT, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, place in places:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setblocking(False)
                with anyio.fail_after(limit_s / len(places)):
                    await loop.sock_connect(sock, place)
                return sock
            except TimeoutError:
                sock.close()
            except OSError as error:
                sock.close()
                failed = words_of(error)
            except BaseException:
                sock.close()
                raise
    except TimeoutError:
        failed = "its name was not resolved in time"
    except OSError as error:
        failed = words_of(error)
    raise HostUnreachable(f"{login}: cannot be reached: {failed}")


def _no_entry(hop: Hop) -> str:
    tried = f"the key {hop.key}" if hop.key else "the agent's keys and the default key files"
    if hop.key is None and hop.identities is not None:
        files = [str(path) for path in hop.identities if path.exists()]
        tried = f"the agent's keys and {', '.join(files) or 'no file'}, as the ssh configuration says"
    who = f"user {hop.login.user}" if hop.login.user else "this user"
    return f"{hop.login}: login refused for {who} with {tried}; add the public key to ~/.ssh/authorized_keys there"


def words_of(error: BaseException) -> str:
    """The text of a connection error, in one line."""
    if isinstance(error, asyncssh.Error):
        return error.reason or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


async def _close(connection: asyncssh.SSHClientConnection) -> None:
    with anyio.CancelScope(shield=True):
        connection.close()
        with anyio.move_on_after(CLOSE_S):
            await connection.wait_closed()
            return
        connection.abort()  # the host no longer reads what we send
