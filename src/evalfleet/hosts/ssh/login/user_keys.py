"""The user's keys that are offered to a host."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncssh

from evalfleet.errors import HostRefused
from evalfleet.hosts.ssh.login.config import Hop


@asynccontextmanager
async def identity(hop: Hop) -> AsyncGenerator[dict[str, Any]]:
    """Connection options: the key in the hosts file, from its file or from the agent; else the keys of the ssh configuration; else
    the user's default keys. The agent is available inside the block.

    Raises HostRefused where the named key cannot be used.
    """
    if hop.key is None and hop.identities is None:
        yield {}
        return
    key = None if hop.key is None else _read_key(hop.key)
    if key is not None:
        yield {"client_keys": [key], "agent_path": None}
        return
    async with AsyncExitStack() as stack:
        held = await _held(stack, hop.agent) if hop.asks_agent else []
        keys = _named(hop.key, held) if hop.key is not None else _configured(hop, held)
        yield {"client_keys": keys, "agent_path": None}


async def _held(stack: AsyncExitStack, agent_path: str) -> list[asyncssh.SSHKeyPair]:
    """The agent's keys; none if there is no agent or it does not answer."""
    with suppress(OSError, asyncssh.Error, ValueError):
        agent = await stack.enter_async_context(await asyncssh.connect_agent(agent_path))
        return list(await agent.get_keys())
    return []


def _named(path: Path, held: list[asyncssh.SSHKeyPair]) -> list[asyncssh.SSHKeyPair]:
    half = _public_half(path)
    keys = [key for key in held if half is None or key.public_data == half]
    if not keys:
        raise HostRefused(
            f"the key {path} is protected by a passphrase, and no agent holds it; run `ssh-add {path}` in this "
            "shell, or use a key without one"
        )
    return keys


def _configured(hop: Hop, held: list[asyncssh.SSHKeyPair]) -> list[asyncssh.SSHKeyPair | asyncssh.SSHKey]:
    """The configured keys first, because hosts refuse a login with too many tries. Unreadable keys are skipped, as ssh does."""
    files = [path for path in hop.identities or () if path.is_file()]
    halves = [_public_half(path) for path in files]
    keys: list[asyncssh.SSHKeyPair | asyncssh.SSHKey] = [key for key in held if key.public_data in halves]
    for path in files:
        with suppress(HostRefused):
            key = _read_key(path)
            if key is not None:
                keys.append(key)
    return keys if hop.identities_only else keys + [key for key in held if key.public_data not in halves]


def _read_key(path: Path) -> asyncssh.SSHKey | None:
    """The private key; None if a passphrase protects it."""
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
