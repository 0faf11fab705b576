"""A cloud that asks for time: it gets as much as it asks for, and a person hears what is waited for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.cloud import cloud
from tests.support.web_site import NAME, Site, site

from evalfleet.emulator.arm.protocol import Body
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import Scenario
from evalfleet.model import DesiredState
from evalfleet.pools.cloud.problems import Refusal
from evalfleet.pools.cloud.records import Verb
from evalfleet.pools.cloud.waits import told_to
from evalfleet.pools.machine import record

pytestmark = pytest.mark.anyio


async def test_lists_that_are_refused_for_haste_are_waited_for_as_asked_and_said(tmp_path: Path):
    fault = Fault(op="vm.list", preset="throttled", retry_after=0.01, times=50)
    async with site(tmp_path, Scenario(fault=[fault])) as here:
        here.wants(workers=1)
        began = time.monotonic()
        await here.settle()
        assert time.monotonic() - began < 20
        assert list(here.states().values()) == ["ready"]


async def test_a_wait_is_said_with_its_length():
    heard: list[str] = []
    fault = Fault(op="vm.list", preset="throttled", retry_after=1, times=1)
    async with cloud(Scenario(fault=[fault])) as here:
        with told_to(heard.append):
            await here.vms.list()
    assert heard == ["Azure asks for fewer requests; asking again in 1 s"]


async def test_an_operation_is_looked_at_when_azure_asks_for_it():
    async with cloud(speed=10) as here:
        spec = here.spec()
        continuation = await here.vms.order(spec, here.network)
        assert continuation is not None
        progress = await here.vms.poll(Verb.CREATE, spec.name, continuation, spec)
        assert (progress.done, progress.look_again_s) == (False, 0.5)


async def stuck(here: Site, state: str) -> Body:
    """A VM that the cloud shows so for ever."""
    (body,) = [each for each in here.cloud.emulator.world.resources if each["type"].endswith("/virtualMachines")]
    body["properties"]["provisioningState"] = state
    return body


async def test_a_creation_that_never_ends_is_given_up_for_another_region(tmp_path: Path):
    fault = Fault(op="vm.create", match={"location": "eastus"}, preset="hangs", times=1)
    async with site(tmp_path, Scenario(fault=[fault])) as here:
        here.wants(workers=1, regions=("eastus", "westus2"))
        async with here.served():
            await here.until(lambda: here.count("creating") == 1 and here.facts("evalfleet-1").operation is not None)
            here.advance(record.SLOW_S + 1)
            await here.until(lambda: "takes long to create it" in (here.host("evalfleet-1").reason or ""))
            here.advance(record.OPERATION_S)
            await here.until(lambda: here.count("ready") == 1)
        assert here.facts("evalfleet-1").region == "westus2"


async def test_a_machine_that_is_deleted_for_ever_is_said_and_asked_for_once_more(tmp_path: Path):
    async with site(tmp_path) as here:
        here.wants(workers=1)
        await here.settle()
        await stuck(here, "Deleting")
        caught: list[Any] = []

        async def delete() -> None:
            here.store.pools.mark_for_deletion(NAME)
            try:
                await here.settle()
            except Refusal as error:
                caught.append(str(error))

        here.fault(op="vm.delete", preset="hangs")
        async with anyio.create_task_group() as group:
            group.start_soon(delete)
            await here.until(lambda: here.host("evalfleet-1").desired is DesiredState.GONE)
            await here.looked()
            here.advance(record.SLOW_S + 1)
            await here.until(lambda: "as deleting for over 10 min" in (here.host("evalfleet-1").reason or ""))
            await here.until(lambda: len(here.cloud.exchanges("DELETE", "/virtualMachines/")) == 1)
            here.advance(record.OPERATION_S)
        assert caught
        assert "as deleting for 30 min; look at it in the cloud's portal" in caught[0]
