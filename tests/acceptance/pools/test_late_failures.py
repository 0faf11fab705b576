"""Failures of one machine that say nothing of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.web_site import site

from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import Scenario
from evalfleet.model import DesiredState

pytestmark = pytest.mark.anyio
FOUR = ("eastus", "westus2", "centralus", "eastus2")


@pytest.mark.parametrize("preset", ["internal_execution_error", "networking_internal_error"])
async def test_a_creation_that_fails_late_for_no_known_reason_is_asked_for_again(tmp_path: Path, preset: str):
    async with site(tmp_path, Scenario(fault=[Fault(op="vm.create", preset=preset, times=1)])) as here:
        here.wants(workers=2)
        await here.settle()
        assert list(here.states().values()) == ["ready", "ready"]
        assert (here.creations(), here.reason()) == (3, ("", ""))


async def test_a_region_without_public_addresses_is_left_for_the_next(tmp_path: Path):
    fault = Fault(op="vm.create", match={"location": "eastus"}, preset="address_quota")
    async with site(tmp_path, Scenario(fault=[fault])) as here:
        here.wants(workers=2, regions=("eastus", "westus2"))
        await here.settle()
        assert {here.facts(name).region for name in here.states()} == {"westus2"}
        assert here.count("ready") == 2


async def test_every_region_is_asked_where_each_has_quota_for_one_machine(tmp_path: Path):
    quota = {region: {"standardDDSv5Family": 8} for region in FOUR}
    async with site(tmp_path, Scenario(quota=quota)) as here:
        here.wants(workers=4, regions=FOUR)
        await here.settle()
        assert {here.facts(name).region for name in here.states()} == set(FOUR)
        assert here.count("ready") == 4


async def test_a_machine_that_cannot_be_started_for_want_of_capacity_is_replaced(tmp_path: Path):
    async with site(tmp_path) as here:
        here.wants(workers=1, regions=("eastus", "westus2"))
        await here.settle()
        here.set_desired(DesiredState.STOPPED)
        await here.settle()
        here.fault(op="vm.start", preset="allocation_failed")
        here.set_desired(DesiredState.RUNNING, "evalfleet-1")
        await here.settle()
        assert here.states() == {"evalfleet-1": "stopped", "evalfleet-2": "ready"}
        assert "cannot be started: Azure has no machine free" in (here.host("evalfleet-1").reason or "")


async def test_a_network_that_is_still_in_use_for_a_moment_does_not_fail_the_deletion(tmp_path: Path):
    async with site(tmp_path) as here:
        here.wants(workers=1)
        await here.settle()
        here.fault(op="network.delete", preset="subnet_in_use", times=1)
        here.store.pools.mark_for_deletion("p1")
        await here.settle()
        assert await here.leaks() == {"leaks": [], "resources": {}}
