"""What a VM is on this machine: the protocol of hosts, and the user data that they are made from."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import asyncssh

from evalfleet.emulator.faults import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """What a host is made from."""

    name: str
    folder: Path  # of its disks; stays over a deallocate
    address: str
    port: int
    user: str
    login_keys: tuple[str, ...]
    host_key: str | None = field(repr=False)  # private, from cloud-init; None: the host makes one
    imds_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str


class Host(Protocol):
    """A machine that can be switched on and off, keeps its disk meanwhile, and answers SSH."""

    async def boot(self, fault: Fault | None) -> None:
        """Switch on. A fault of `host.boot` may keep it from answering."""
        ...

    async def halt(self) -> None:
        """Switch off at once: every process dies, every connection is cut, the temporary disk is empty."""
        ...

    async def remove(self) -> None:
        """Switch off for good, and delete the disk."""
        ...

    async def run(self, script: str) -> Ran:
        """Run a script, as the agent inside an Azure VM does."""
        ...

    async def set_link(self, *, blocked: bool, latency_s: float) -> None:
        """Let the network be cut (nothing passes, nothing is refused) or slow."""
        ...


def fresh_private_key() -> str:
    """Return a host key for a VM that was given none."""
    made: Any = asyncssh.generate_private_key("ssh-ed25519")  # pyright: ignore[reportUnknownMemberType]
    return made.export_private_key().decode()


def read_user_data(custom_data: str | None) -> dict[str, Any]:
    """Read the cloud-config that we send (JSON below its first line); anything else is as none."""
    try:
        text = base64.b64decode(custom_data or "").decode()
        found: Any = json.loads(text.removeprefix("#cloud-config\n")) if text.startswith("#cloud-config\n") else {}
    except (binascii.Error, ValueError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
