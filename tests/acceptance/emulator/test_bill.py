"""The emulator's own bill, and what it calls a leak."""

from __future__ import annotations

import pytest
from tests.support.cloud import cloud

from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import Scenario
from evalfleet.pools.cloud.records import Verb

pytestmark = pytest.mark.anyio


async def test_the_bill_counts_cloud_seconds_and_stops_with_the_machine():
    async with cloud() as here:
        spec = here.spec()
        await here.made(spec)
        await here.control("POST", "clock", {"seconds": 3600})
        await here.done(Verb.STOP, spec.name, await here.vms.stop(spec.name))
        await here.control("POST", "clock", {"seconds": 24 * 3600})
        bill = await here.control("GET", "bill")
        assert bill["by_kind"]["vm"] == pytest.approx(0.452, rel=0.02)
        assert bill["by_kind"]["ip"] == pytest.approx(25 * 0.005, rel=0.02)
        assert bill["by_kind"]["disk"] == pytest.approx(25 * 19.71 / 730, rel=0.02)
        await here.done(Verb.DELETE, spec.name, await here.vms.delete(spec.name))
        bill = await here.control("GET", "bill?pool=p1")
        before = bill["usd"]
        machine = bill["vms"][spec.name]
        assert machine["seconds"] == pytest.approx(3600, rel=0.02)
        assert machine["usd"] + machine["disk_usd"] + machine["ip_usd"] == pytest.approx(before)
        assert bill["vm_hours"] == pytest.approx(1.0, rel=0.02)
        assert (await here.control("GET", "bill?pool=other"))["usd"] == 0
        await here.control("POST", "clock", {"seconds": 3600})
        assert (await here.control("GET", "bill"))["usd"] == before


async def test_what_is_billed_of_a_spot_machine_and_of_one_that_never_ran():
    failing = Fault(op="vm.create", match={"name": "failed"}, preset="allocation_failed")
    async with cloud(Scenario(fault=[failing])) as here:
        await here.made(here.spec("spot", spot=True))
        failed = here.spec("failed")
        progress = await here.done(Verb.CREATE, "failed", await here.vms.order(failed, here.network), failed)
        assert progress.problem is not None
        await here.control("POST", "clock", {"seconds": 3600})
        bill = await here.control("GET", "bill")
        assert bill["vms"]["spot"]["usd"] == pytest.approx(0.0904, rel=0.02)
        (line,) = [line for line in bill["lines"] if line["kind"] == "vm"]
        assert (line["name"], line["size"], line["spot"], line["region"]) == (
            "spot",
            "Standard_D8ds_v5",
            True,
            "eastus",
        )
        # Its disk and address are there, and cost.
        assert bill["vms"]["failed"]["usd"] == 0
        assert bill["vms"]["failed"]["disk_usd"] > 0
        assert bill["vms"]["failed"]["ip_usd"] == pytest.approx(0.005, rel=0.02)


async def test_a_vm_past_its_deadline_is_a_leak():
    async with cloud() as here:
        await here.made(here.spec())
        assert (await here.control("GET", "leaks"))["leaks"] == []
        await here.control("POST", "clock", {"seconds": 2 * 3600})
        (leak,) = (await here.control("GET", "leaks"))["leaks"]
        assert leak["why"] == "is past its deadline"
