"""What a VM is on this machine: the protocol of hosts, and the user data that they are made from."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import asyncssh
from msgspec import Struct

from evalfleet.emulator.machines.condition import Condition


class HostSpec(Struct, frozen=True, kw_only=True):
    """What a host is made from."""

    name: str
    folder: Path  # of its disks; stays over a deallocate
    address: str
    port: int
    user: str
    login_keys: tuple[str, ...]
    host_key: str | None  # private, from cloud-init, shown by no repr; None: the host makes one
    imds_url: str
    vm: str = ""  # the VM's own id
    docker: str = ""  # where Docker's daemon listens for its machines
    image: Path | None = None  # a copy of another host's disk, to begin with

    def __repr__(self) -> str:
        return f"HostSpec(name={self.name!r}, address={self.address!r}, port={self.port!r})"


class Ran(Struct, frozen=True, kw_only=True):
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str


class Host(Protocol):
    """A machine that can be switched on and off, keeps its disk meanwhile, and answers SSH."""

    async def lay_out(self) -> None:
        """Fill its disk from its image, the first time."""
        ...

    async def boot(self, condition: Condition, ssh: str | None) -> None:
        """Switch on, as a machine in that condition. `ssh` names a preset that keeps SSH from working."""
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

    async def spawn(self, argv: Sequence[str], environ: Mapping[str, str], folder: str) -> Process:
        """Start a program on it, with pipes for all three streams.

        Raises:
            OSError: it cannot be started.
        """
        ...

    async def show(self, condition: Condition, images_gb: float) -> None:
        """Let it look so, from inside."""
        ...

    async def copy_disk(self, to: Path) -> None:
        """Copy its disk into a new folder."""
        ...

    @property
    def docker_folder(self) -> Path:
        """Where the state of its Docker lies: on its disk."""
        ...

    def outside(self, path: Path) -> Path:
        """Return where a path of the host's lies on this machine."""
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


async def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder as a disk is copied: with owners, links and all. What vanishes meanwhile is not in the copy."""
    await asyncio.to_thread(target.mkdir, parents=True, exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *("cp", "-a", f"{source}/.", str(target)), stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
    )
    await process.wait()
