"""The state that all parts of the emulator share, and two things that each of them does: inject faults and delays."""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import math
import random
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from anyio.abc import TaskGroup
from msgspec.structs import replace

from evalfleet.emulator.arm.operations import Operations
from evalfleet.emulator.arm.protocol import ArmError
from evalfleet.emulator.arm.quotas import Quotas
from evalfleet.emulator.arm.resources import Resources
from evalfleet.emulator.arm.skus import Skus
from evalfleet.emulator.bill import Bill
from evalfleet.emulator.clock import Clock
from evalfleet.emulator.faults import Fault, Faults, error_of, is_late
from evalfleet.emulator.journal import Journal
from evalfleet.emulator.scenario import Outage, Scenario


class Dropped(Exception):
    """Cut the connection without an answer."""


class Addresses:
    """Public addresses of VMs: one of loopback each, and the same port on all, as a real one has.

    The port is reserved for this emulator. The addresses follow from it, so that the machines of two emulators do not meet: guests
    and screens have fixed ports.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self._next = itertools.count(int(ipaddress.IPv4Address(f"127.{10 + (port >> 8) % 240}.{port & 255}.1")))

    def take(self) -> str:
        return str(ipaddress.IPv4Address(next(self._next)))


class EmulatorContext:
    def __init__(
        self,
        *,
        clock: Clock,
        scenario: Scenario,
        folder: Path,
        tasks: TaskGroup,
        addresses: Addresses,
        seed: int,
        traffic: IO[str] | None = None,
    ) -> None:
        self.clock = clock
        self.times = scenario.times
        self.folder = folder
        self.tasks = tasks
        self.rng = random.Random(seed)
        self.journal = Journal(clock, traffic)
        self.resources = Resources(clock, scenario.times.group_lag)
        self.operations = Operations(clock, tasks)
        self.skus = Skus(scenario.sku)
        self.quotas = Quotas(scenario.quota, self.skus)
        self.faults = Faults(random.Random(seed + 1))
        self.bill = Bill(clock)
        self.addresses = addresses
        self.base_url = ""  # known once the port is
        self.plain_url = ""  # the same without TLS
        self.storage_url = ""  # of the storage account
        self.docker_at = ""  # where Docker's daemon listens for the machines
        self.links = scenario.link
        # Providers that are not registered, in lower case, and how far that is.
        self.unregistered = {space.lower(): "NotRegistered" for space in scenario.unregistered}
        self.roles = scenario.role
        self.scenario = scenario
        self._outages = list(scenario.outage)
        self.signs_in = False  # whether requests must carry a token that the token endpoint gave out
        self.secret = secrets.token_urlsafe(12)
        self.tokens: set[str] = set()
        for fault in scenario.fault:
            self.faults.add(fault)

    def add_outage(self, outage: Outage) -> None:
        """Let a service refuse every call, from so long after now on."""
        self._outages.append(replace(outage, after=self.clock.elapsed() + outage.after))

    def require_service(self, service: str) -> None:
        """Raises ArmError while the service is out."""
        now = self.clock.elapsed()
        for each in self._outages:
            if each.service == service and 0 <= now - each.after < (math.inf if each.lasts is None else each.lasts):
                raise ArmError(503, "ServiceUnavailable", "The service is unavailable. Please retry.")

    def fault_of(self, op: str, attributes: Mapping[str, str]) -> Fault | None:
        """Take the fault that hits this operation, and tell about it."""
        return next(self.faults_of(op, attributes), None)

    def faults_of(self, op: str, attributes: Mapping[str, str]) -> Iterator[Fault]:
        """Take every fault that hits this operation, and tell about each."""
        for fault in self.faults.taken(op, attributes):
            self.journal.tell("fault.hit", attributes.get("name", ""), op=op, preset=fault.preset)
            yield fault

    def command_asked(self, name: str, command: str) -> Fault | None:
        """Record a command that came over SSH, and take the fault that hits it."""
        self.journal.record(method="EXEC", path=f"ssh/{name}", request=command)
        return self.fault_of("host.exec", {"name": name, "command": command})

    async def meet(self, op: str, attributes: Mapping[str, str]) -> ArmError | None:
        """Do what a fault says before the operation. Returns an error that shall come only when the operation ends.

        Raises:
            ArmError: the operation is refused.
            Dropped: the connection is to be cut.
        """
        fault = self.fault_of(op, attributes)
        if fault is None:
            return None
        await asyncio.sleep(fault.delay)
        if fault.hang:
            await asyncio.Event().wait()
        if fault.drop:
            raise Dropped
        error = error_of(fault, attributes)
        if error is not None and not is_late(fault):
            raise error
        return error
