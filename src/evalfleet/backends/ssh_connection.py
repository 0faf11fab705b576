"""One SSH connection to a host, perhaps through another, with all that can go wrong said in one line."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import asyncssh

from evalfleet.backends.ssh_hostsfile import Login, SshHostSpec
from evalfleet.backends.ssh_keys import HostKeys, refusal
from evalfleet.errors import BackendError, HostRefused, HostUnreachable

HANDSHAKE_S = 120.0  # nine times there and back: a host that is five seconds away is slow, not gone
CLOSE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepalive:
    """How soon a connection on which nothing comes back is given up: after about `interval_s` times `count`."""

    interval_s: float = 15.0
    count: int = 3


@asynccontextmanager
async def connected(
    spec: SshHostSpec, keys: HostKeys, keepalive: Keepalive
) -> AsyncGenerator[asyncssh.SSHClientConnection]:
    """A connection to the host inside the block.

    Raises:
        HostUnreachable: nothing answers, or not in time.
        HostRefused: its key is not the right one, or it does not let us in.
    """
    async with AsyncExitStack() as stack:
        tunnel = None
        if spec.jump is not None:
            try:
                tunnel = await stack.enter_async_context(_open(spec, spec.jump, None, keys, keepalive, None))
            except BackendError as error:
                raise type(error)(f"on the way to {spec.login}: {error}") from error
        yield await stack.enter_async_context(_open(spec, spec.login, spec.host_key, keys, keepalive, tunnel))


@asynccontextmanager
async def _open(
    spec: SshHostSpec,
    login: Login,
    given: str | None,
    keys: HostKeys,
    keepalive: Keepalive,
    tunnel: asyncssh.SSHClientConnection | None,
) -> AsyncGenerator[asyncssh.SSHClientConnection]:
    trust = keys.trust(login, given)
    doorkeeper = keys.doorkeeper(trust)
    options: dict[str, Any] = {
        "config": None,  # the hosts file says it all
        "client_factory": lambda: doorkeeper,
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
    async with _identity(spec) as identity:
        try:
            if tunnel is None:
                options["sock"] = await _dial(login, spec.connect_s)
            connection = await asyncssh.connect(login.address, login.port, **options, **identity)
        except asyncssh.HostKeyNotVerifiable as error:
            raise refusal(login, trust, doorkeeper.shown, error.reason) from error
        except asyncssh.PermissionDenied as error:
            raise HostRefused(_no_entry(login, spec.key)) from error
        except TimeoutError as error:
            raise HostUnreachable(f"{login}: does not speak SSH within {HANDSHAKE_S:.0f} s") from error
        except (asyncssh.Error, OSError) as error:
            raise HostUnreachable(f"{login}: the connection failed: {words_of(error)}") from error
    try:
        if doorkeeper.shown is not None:
            try:
                keys.learn(login, doorkeeper.shown)
            except OSError as error:
                raise HostRefused(f"{login}: its key cannot be kept: {error}") from error
        yield connection
    finally:
        await _close(connection)


async def _dial(login: Login, limit_s: float) -> socket.socket:
    """A connected socket. Its limit is shorter than that of the handshake: where nothing listens, one need not wait long."""
    loop = asyncio.get_running_loop()
    failed = f"no answer within {limit_s:g} s"
    try:
        with anyio.fail_after(limit_s):
            places = await loop.getaddrinfo(login.address, login.port, type=socket.SOCK_STREAM)
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


@asynccontextmanager
async def _identity(spec: SshHostSpec) -> AsyncGenerator[dict[str, Any]]:
    """Options that say who we are: the named key, by its file or by the agent that holds it; else whatever the user has."""
    if spec.key is None:
        yield {}
        return
    key = _read_key(spec.key)
    if key is not None:
        yield {"client_keys": [key], "agent_path": None}
        return
    async with AsyncExitStack() as stack:
        found: list[asyncssh.SSHKeyPair] = []
        with suppress(OSError, asyncssh.Error, ValueError):  # there is no agent, or none that answers
            agent = await stack.enter_async_context(await asyncssh.connect_agent())
            found = list(await agent.get_keys())
        half = _public_half(spec.key)
        held = [key for key in found if half is None or key.public_data == half]
        if not held:
            raise HostRefused(
                f"the key {spec.key} is protected by a passphrase, and no agent holds it; run `ssh-add {spec.key}` in this "
                "shell, or name a key without one"
            )
        yield {"client_keys": held, "agent_path": None}


def _read_key(path: Path) -> asyncssh.SSHKey | None:
    """The private key; None where a passphrase protects it."""
    try:
        return asyncssh.read_private_key(path)
    except OSError as error:
        raise HostRefused(f"the key {path} cannot be read: {error.strerror}") from error
    except asyncssh.KeyImportError as error:
        if str(error).startswith("Passphrase"):
            return None
        raise HostRefused(f"the key {path} is not a private key: {error}") from error


def _public_half(key: Path) -> bytes | None:
    with suppress(OSError, asyncssh.KeyImportError):
        return asyncssh.read_public_key(key.with_name(f"{key.name}.pub")).public_data
    return None


def _no_entry(login: Login, key: Path | None) -> str:
    tried = f"the key {key}" if key else "the agent's keys and the default ones"
    who = f"the user {login.user}" if login.user else "this user"
    return f"{login}: does not let {who} in with {tried}; add the public key to ~/.ssh/authorized_keys there"


def words_of(error: BaseException) -> str:
    """What an error of the connection says, in one line."""
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
        connection.abort()  # nobody takes what we have to say
