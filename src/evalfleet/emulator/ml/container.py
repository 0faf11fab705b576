"""The container of a job on its node: the image is pulled, its arguments are honoured as far as the emulator's Docker does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.docker import command_line
from evalfleet.emulator.docker.call import registry_of
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.machines.docker_machine import PRIVATE
from evalfleet.emulator.ml.node import Node
from evalfleet.emulator.presets import DOCKER

Tell = Callable[[str], None]


class ContainerFailed(Exception):
    """The container was not started; the text is Docker's."""


class JobContainer:
    """Faults are those of "host.docker", with `pull IMAGE` and `run IMAGE` as commands and the node's name."""

    def __init__(self, world: EmulatorContext) -> None:
        self._world = world
        self._speaks = asyncio.Event()  # not set: containers that start say nothing
        self._speaks.set()

    def silence(self, *, silent: bool) -> None:
        """Let no container begin: its job says Running, and that is all."""
        if silent:
            self._speaks.clear()
        else:
            self._speaks.set()

    async def pull(self, node: Node, image: str, *, has_identity: bool, tell: Tell) -> None:
        """Pull the image, unless the node has it.

        Raises:
            ContainerFailed: it cannot be had.
        """
        if image in node.images:
            tell(f"the image {image} is on the node")
            return
        tell(f"pulling {image}")
        await self._meet(node, f"pull {image}", image)
        if registry_of(image).endswith(PRIVATE) and not has_identity:
            raise ContainerFailed(
                f'Error response from daemon: Head "https://{registry_of(image)}/v2/": unauthorized: authentication required'
            )
        await self._world.clock.sleep(self._world.times.pull)
        node.images.add(image)
        tell(f"pulled {image}")

    async def run(
        self, node: Node, image: str, words: Sequence[str], command: str, environ: Mapping[str, str], log: Path
    ) -> int:
        """Run the command to its end. Returns its exit status.

        Raises:
            ContainerFailed: the container cannot be started.
        """
        await self._meet(node, f"run {image}", image)
        asked = command_line.read(["run", *words, image])
        if "/dev/kvm" in str(asked.options.get("--device", ())) and not node.condition.kvm:
            raise ContainerFailed(
                'docker: Error response from daemon: error gathering device information while adding custom device "/dev/kvm": '
                "no such file or directory."
            )
        await self._speaks.wait()
        process = await node.spawn(command, {**environ, **asked.environment({})}, log)
        return await process.wait()

    async def _meet(self, node: Node, command: str, image: str) -> None:
        fault: Fault | None = self._world.fault_of("host.docker", {**node.attributes(), "command": command})
        if fault is None:
            return
        await asyncio.sleep(fault.delay)
        if fault.hang:
            await asyncio.Event().wait()
        if fault.exit is not None:
            raise ContainerFailed(fault.stderr or f"docker: exit status {fault.exit}")
        if fault.preset in DOCKER and DOCKER[fault.preset].exit:
            raise ContainerFailed(DOCKER[fault.preset].stderr.format(image=image))
