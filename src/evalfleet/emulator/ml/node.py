"""The nodes of clusters and compute instances: folders whose processes are real, with the programs of an emulated machine."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from evalfleet.emulator.arm.protocol import Body
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.machines import processes
from evalfleet.emulator.machines.condition import Condition, apply
from evalfleet.emulator.machines.host import Host, HostSpec
from evalfleet.pilot.pilot import BEAT_S, BEAT_VARIABLE

BIN = ("kvm-ok", "df", "date", "systemctl", "sudo", "apt-get")


class Node(Struct):
    """One node. `state` is Azure's word."""

    body: Body  # id, name, location and tags, as the bill wants them
    size: str
    spot: bool
    folder: Path
    host: Host
    condition: Condition = field(default_factory=Condition)
    state: str = "preparing"
    job: str = ""  # that runs on it
    idle_since: float = 0.0
    images: set[str] = field(default_factory=set[str])  # that it has pulled
    manners: dict[str, str] = field(default_factory=dict[str, str])  # of programs that keep the cloud's time

    @property
    def name(self) -> str:
        return self.body["name"]

    def attributes(self) -> dict[str, str]:
        """What faults can be matched with."""
        priority = "LowPriority" if self.spot else "Dedicated"
        return {"name": self.name, "location": self.body["location"], "size": self.size, "priority": priority}

    async def spawn(self, command: str, environ: Mapping[str, str], log: Path) -> Process:
        """Start a command whose output goes to a file. Its home stays on the node: what has it there dies with the node."""
        env = (
            self.host.environment() | self.manners | {name: value for name, value in environ.items() if name != "HOME"}
        )
        with log.open("ab") as out:
            return await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", command),
                cwd=self.folder / "home",
                env=env,
                start_new_session=True,
                stdin=DEVNULL,
                stdout=out,
                stderr=STDOUT,
            )

    async def end_processes(self) -> None:
        await asyncio.to_thread(processes.end_all, self.folder)

    async def freeze(self, *, frozen: bool) -> None:
        """Stop all processes, so that nothing on the node says anything any more; or let them go on."""
        number = signal.SIGSTOP if frozen else signal.SIGCONT
        for pid in await asyncio.to_thread(processes.belonging, self.folder):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue


async def booted(world: EmulatorContext, compute: Body, size: str, *, spot: bool) -> Node:
    """Make a node of a compute, and switch it on: from now on it costs."""
    name = f"tvmps_{uuid.uuid4().hex[:12]}_{'p' if spot else 'd'}"
    body: Body = {"id": f"{compute['id']}/nodes/{name}", "name": name}
    body |= {"location": compute["location"], "tags": compute.get("tags") or {}}
    folder = world.folder / "ml" / name
    spec = HostSpec(
        name=name,
        folder=folder,
        address=world.addresses.take(),
        port=world.addresses.port,
        user="azureuser",
        login_keys=(),
        host_key=None,
        imds_url=f"{world.plain_url}/imds/{name}",
        vm=name,
        docker=world.docker_at,
    )
    node = Node(body, size, spot, folder, Host(spec, world.command_asked))
    if world.clock.speed > 1:
        node.manners[BEAT_VARIABLE] = f"{max(0.5, world.clock.real(BEAT_S)):g}"
    node.condition.kvm = world.skus.find(size).nested
    for fault in world.faults_of("host.boot", node.attributes()):
        await asyncio.sleep(fault.delay)
        if fault.preset is not None:
            apply(node.condition, fault)
    await node.host.boot(node.condition, "no_ssh")
    await node.host.show(node.condition, 0.0)
    usd = world.skus.usd_per_hour(size, body["location"], spot=spot)
    world.bill.begin(body, "vm", usd, size=size, spot=spot, compute=compute["name"])
    node.state, node.idle_since = "idle", world.clock.elapsed()
    world.journal.tell("node.running", name, compute=compute["name"])
    return node


async def removed(world: EmulatorContext, node: Node) -> None:
    """Take the node away, with all that runs on it and its disk."""
    node.state = "leaving"
    world.bill.end(node.body["id"])
    await node.host.remove()
    world.journal.tell("node.gone", node.name)
