"""The Docker of an emulated VM: faults, times and events come from the world, processes run on the VM's host."""

from __future__ import annotations

from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.machines.condition import Condition
from evalfleet.emulator.machines.guests import GUEST, Guests
from evalfleet.emulator.machines.machines import Machine, Machines

PRIVATE = ".azurecr.io"  # registries that want a login
RESULTS = "/tmp/evalfleet/"  # where attempts work in a container


class VmDocker(Struct, frozen=True):
    """Implements `DockerMachine`."""

    world: EmulatorContext
    machines: Machines
    guests: Guests
    machine: Machine

    @property
    def boots(self) -> int:
        return self.machine.boots

    @property
    def condition(self) -> Condition:
        return self.machine.condition

    @property
    def folder(self) -> Path:
        return self.machine.host.docker_folder

    def now(self) -> float:
        return self.world.clock.now()

    def called(self, args: Sequence[str]) -> None:
        self.world.journal.tell("docker.called", self.machine.name, command=" ".join(args)[:500])

    def changed(self, what: str, container: str) -> None:
        self.world.journal.tell(what, self.machine.name, container=container)

    def fault(self, line: str) -> Fault | None:
        return self.world.fault_of("host.docker", {**self.machine.attributes(), "command": line})

    def wants_login(self, registry: str) -> bool:
        return registry.endswith(PRIVATE)

    def takes_password(self, password: str) -> bool:
        return True

    async def spawn(self, argv: Sequence[str], environ: Mapping[str, str], folder: str) -> Process:
        """In a container Windows and /tmp are its own; here they have the machine's address, and a folder on its disk."""

        def translated(word: str) -> str:
            return word.replace(GUEST, self.machine.address).replace(RESULTS, f"{self.folder}/tmp/")

        own = {name: translated(value) for name, value in environ.items()}
        return await self.machine.host.spawn([translated(word) for word in argv], own, folder)

    async def sync_guests(self) -> None:
        await self.guests.sync(self.machine)

    async def wait_for_layer(self) -> None:
        await self.world.clock.sleep(self.world.times.pull / 2)

    async def show_disk(self) -> None:
        await self.machines.show(self.machine)

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        self.world.tasks.start_soon(function, *args)
