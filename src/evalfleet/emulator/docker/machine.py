"""What the fake Docker asks of the machine that it runs on."""

from __future__ import annotations

from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from evalfleet.emulator.faults import Fault
from evalfleet.emulator.machines.condition import Condition


class DockerMachine(Protocol):
    """A machine with Docker: an emulated VM, or the stand-in's folder."""

    @property
    def boots(self) -> int:
        """How often it was switched on."""
        ...

    @property
    def condition(self) -> Condition: ...

    @property
    def folder(self) -> Path:
        """Where Docker keeps its state: on the machine's disk."""
        ...

    def now(self) -> float: ...

    def called(self, args: Sequence[str]) -> None:
        """Record a call of `docker`."""
        ...

    def changed(self, what: str, container: str) -> None:
        """Record that a container started or died."""
        ...

    def fault(self, line: str) -> Fault | None:
        """Return what goes wrong with the call, whose words after `docker` are the line."""
        ...

    def wants_login(self, registry: str) -> bool: ...

    def takes_password(self, password: str) -> bool: ...

    async def spawn(self, argv: Sequence[str], environ: Mapping[str, str], folder: str) -> Process:
        """Start a program on it, with pipes for all three streams.

        Raises:
            OSError: it cannot be started.
        """
        ...

    async def sync_guests(self) -> None:
        """Let guests and screens answer as its containers are now."""
        ...

    async def wait_for_layer(self) -> None:
        """Wait as long as half an image takes."""
        ...

    async def show_disk(self) -> None:
        """Let its programs show what images take."""
        ...

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Run it beside the call, which does not wait for it."""
        ...
