"""Fake Windows guests: they answer probes on the address of the machine whose container runs them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from evalfleet.emulator.arm.errors import ArmError
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.docker import state
from evalfleet.emulator.machines.machines import Machine, Machines

GUEST = "20.20.20.21"  # where it is in WAA's container
PORT = 5000
SCREEN = "8006/tcp"  # of the container: where WAA's image shows it
_PROBE = b'{"status": "Probe successful", "message": "Service is operational"}'
_SCREEN = "<!doctype html><title>{name}</title><h1>{name}</h1><p>An emulated Windows has no screen."


class Guests:
    """One guest per machine: it answers while a container of the machine runs, some time after its start. Its screen is on the ports
    of the machine that running containers publish for it."""

    def __init__(self, world: EmulatorContext, machines: Machines) -> None:
        self._world = world
        self._machines = machines
        self._servers: dict[str, dict[int, asyncio.Server]] = {}

    async def sync(self, machine: Machine) -> None:
        """Listen on the ports that the machine's containers ask for now, and on no others."""
        wanted = {PORT, *_screens(machine)}
        servers = self._servers.setdefault(machine.address, {})
        for port in servers.keys() - wanted:
            servers.pop(port).close()
        for port in wanted - servers.keys():
            with suppress(OSError):  # another program has the port
                servers[port] = await asyncio.start_server(self._answer, machine.address, port)

    def close(self) -> None:
        for servers in self._servers.values():
            for server in servers.values():
                server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own, port = writer.get_extra_info("sockname")[:2]
        try:
            machine = self._machines.at(own)
            if self.answers(machine) if port == PORT else port in _screens(machine):
                await reader.readline()
                body = _PROBE if port == PORT else _SCREEN.format(name=machine.name).encode()
                writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        except (ArmError, OSError):
            pass  # the machine or the client is gone
        finally:
            writer.close()

    def answers(self, machine: Machine) -> bool:
        if machine.power != "running" or machine.silent:
            return False
        now, boot_s = self._world.clock.now(), self._world.clock.real(self._world.times.windows)
        shelf = state.load(machine.host.docker_folder)
        return any(each.runs(machine.boots) and now >= each.started_at + boot_s for each in shelf.containers.values())


def _screens(machine: Machine) -> set[int]:
    """The ports of the machine on which running containers show their screens."""
    if machine.power != "running":
        return set()
    running = [each for each in state.load(machine.host.docker_folder).containers.values() if each.runs(machine.boots)]
    return {each.ports[SCREEN] for each in running if SCREEN in each.ports}
