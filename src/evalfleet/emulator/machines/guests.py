"""Fake Windows guests: they answer probes on the address of the machine whose container runs them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from evalfleet.emulator.arm.protocol import ArmError
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.docker import state
from evalfleet.emulator.machines.machines import Machine, Machines

GUEST = "20.20.20.21"  # where it is in WAA's container
PORT = 5000
SCREEN_PORT = 8006
_PROBE = b'{"status": "Probe successful", "message": "Service is operational"}'
_SCREEN = "<!doctype html><title>{name}</title><h1>{name}</h1><p>An emulated Windows has no screen."


class Guests:
    """One guest per machine: it answers while a container of the machine runs, some time after its start."""

    def __init__(self, world: EmulatorContext, machines: Machines) -> None:
        self._world = world
        self._machines = machines
        self._servers: dict[str, list[asyncio.Server]] = {}

    async def open(self, machine: Machine) -> None:
        """Listen for a machine; once is enough."""
        address = machine.address
        if address not in self._servers:
            self._servers[address] = []
            for port in (PORT, SCREEN_PORT):
                with suppress(OSError):  # somebody else has the port
                    self._servers[address].append(await asyncio.start_server(self._answer, address, port))

    def close(self) -> None:
        for servers in self._servers.values():
            for server in servers:
                server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own, port = writer.get_extra_info("sockname")[:2]
        try:
            machine = self._machines.at(own)
            if self.answers(machine):
                await reader.readline()
                body = _PROBE if port == PORT else _SCREEN.format(name=machine.name).encode()
                writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        except (ArmError, OSError):
            pass  # no such machine any more; or nobody waits for the answer
        finally:
            writer.close()

    def answers(self, machine: Machine) -> bool:
        if machine.power != "running" or machine.silent:
            return False
        now, boot_s = self._world.clock.now(), self._world.clock.real(self._world.times.windows)
        shelf = state.load(machine.host.docker_folder)
        return any(each.runs(machine.boots) and now >= each.started_at + boot_s for each in shelf.containers.values())
