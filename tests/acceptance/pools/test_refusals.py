"""A cloud that says no: what a pool does about it, how often it asks, and what a person is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.web_site import NAME, Site, site

from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import Scenario
from evalfleet.model import DesiredState
from evalfleet.pools import size
from evalfleet.pools.cloud.problems import Action, Cause, Refusal

pytestmark = pytest.mark.anyio
FOUR = ("eastus", "westus2", "centralus", "eastus2")
FAMILY = "standardDDSv5Family"  # of the default size, with 8 cores


async def gone_without_a_trace(here: Site) -> None:
    here.store.pools.mark_for_deletion(NAME)
    await here.settle()
    assert await here.leaks() == {"leaks": [], "resources": {}}


async def test_a_missing_quota_is_named_with_the_command_that_asks_for_more(tmp_path: Path) -> None:
    quota = {"eastus": {FAMILY: 16}, "westus2": {FAMILY: 0}}
    async with site(tmp_path, Scenario(quota=quota)) as here:
        here.wants(workers=4, regions=("eastus", "westus2"))
        await here.settle()
        assert sorted(here.states().values()) == ["ready", "ready"]
        assert {here.facts(host.name).region for host in here.hosts()} == {"eastus"}
        cause, message = here.reason()
        assert cause == "family_quota"
        assert f"quota {FAMILY} in eastus lacks 8 cores: limit 16, used 16" in message
        assert f"az quota update --resource-name {FAMILY}" in message
        assert "value=24" in message
        assert here.creations() <= 2 + 4  # both regions by each of the two that are refused, at most
        assert here.told("pool.paused") == ["pool.paused"]
        refused = [host for host in here.hosts(gone=True) if host.state == "gone"]
        assert {host.reason is not None and FAMILY in host.reason for host in refused} == {True}
        await gone_without_a_trace(here)


async def test_a_quota_that_was_raised_is_noticed_by_the_next_command(tmp_path: Path) -> None:
    async with site(tmp_path, Scenario(quota={"eastus": {FAMILY: 8}})) as here:
        here.wants(workers=2)
        await here.settle()
        assert list(here.states().values()) == ["ready"]
        asked = here.creations()
        here.cloud.emulator.world.quotas._limits["eastus"] = {}  # pyright: ignore[reportPrivateUsage]
        await here.settle()
        assert list(here.states().values()) == ["ready", "ready"]
        assert here.reason() == ("", "")
        assert here.told("pool.paused", "pool.resumed") == ["pool.paused", "pool.resumed"]
        assert here.creations() == asked + 1


async def test_the_third_region_is_used_where_two_have_none(tmp_path: Path) -> None:
    faults = [
        Fault(op="vm.create", match={"location": "eastus"}, preset="sku_not_available"),
        Fault(op="vm.create", match={"location": "westus2"}, preset="allocation_failed"),
    ]
    async with site(tmp_path, Scenario(fault=faults)) as here:
        here.wants(workers=2, regions=FOUR)
        await here.settle()
        assert list(here.states().values()) == ["ready", "ready"]
        assert {here.facts(host.name).region for host in here.hosts()} == {"centralus"}
        assert here.reason() == ("", "")
        assert here.creations() <= 6
        # On Azure a failed record blocks its name until somebody deletes it.
        for name in here.states():
            story = [event["type"] for event in here.cloud.events() if event["subject"] == name]
            assert story.count("vm.creating") == story.count("vm.failed") + 1
            assert story.count("vm.deleted") == story.count("vm.failed")
        await gone_without_a_trace(here)


async def test_where_all_regions_are_down_a_pool_of_ten_asks_ten_times_at_most(tmp_path: Path) -> None:
    async with site(tmp_path, Scenario(fault=[Fault(op="vm.create", preset="allocation_failed")])) as here:
        here.wants(workers=10, regions=FOUR)
        await here.settle()
        assert here.states() == {}
        assert 4 <= here.creations() <= 10
        cause, message = here.reason()
        assert cause == "capacity"
        assert "no machine free" in message
        assert "try later" in message
        assert here.told("pool.paused") == ["pool.paused"]
        assert here.told("worker.readied") == []
        assert all(host.reason for host in here.hosts(gone=True))
        assert here.shown_usd() < 0.01
        await gone_without_a_trace(here)


async def test_a_look_that_takes_long_does_not_ask_for_what_was_given_up_meanwhile(tmp_path: Path) -> None:
    faults = [
        Fault(op="vm.create", preset="authorization_failed", delay=0.6),
        Fault(op="vm.list", delay=0.8, skip=2),  # the second look begins before the refusal, and ends after it
    ]
    async with site(tmp_path, Scenario(fault=faults)) as here:
        here.wants(workers=1)
        await here.settle()
        assert here.creations() == 1
        assert list(here.states(gone=True).values()) == ["gone"]


async def test_what_was_sold_out_is_asked_for_again_later_by_one_machine(tmp_path: Path) -> None:
    async with site(tmp_path, Scenario(fault=[Fault(op="vm.create", preset="allocation_failed")])) as here:
        here.wants(workers=3)
        later_s = size.RETRY_S + 3600  # offers are closed for an hour
        async with here.served():
            await here.until(lambda: here.reason()[0] == "capacity" and here.states() == {})
            asked = here.creations()
            here.advance(later_s)
            await here.until(lambda: here.told("pool.paused") == ["pool.paused"] * 2 and here.states() == {})
            assert here.creations() == asked + 1
            here.cloud.emulator.world.faults.clear()
            here.advance(later_s)
            await here.until(lambda: here.count("ready") == 3)
        assert here.reason() == ("", "")
        assert here.creations() == asked + 1 + 3


@pytest.mark.long
async def test_a_storm_of_refusals_for_haste_is_waited_out(tmp_path: Path) -> None:
    fault = Fault(op="vm.*", preset="throttled", retry_after=0.05, times=30)
    async with site(tmp_path, Scenario(fault=[fault])) as here:
        here.wants(workers=4)
        await here.settle()
        assert list(here.states().values()) == ["ready"] * 4
        assert here.reason() == ("", "")
        assert len([each for each in here.cloud.exchanges("PUT", "virtualMachines/") if each["status"] == 201]) == 4


async def test_every_machine_is_asked_for_without_trusted_launch(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=1)
        await here.settle()
        [put] = here.cloud.exchanges("PUT", "virtualMachines/")
        assert put["request"]["properties"]["securityProfile"] == {"securityType": "Standard"}
        assert put["answer"]["properties"]["securityProfile"] == {"securityType": "Standard"}


async def test_no_right_to_create_is_one_clear_line(tmp_path: Path) -> None:
    async with site(tmp_path, Scenario(fault=[Fault(op="vm.create", preset="authorization_failed")])) as here:
        here.wants(workers=5, regions=FOUR)
        await here.settle()
        cause, message = here.reason()
        assert cause == "auth"
        assert message.startswith("Azure does not let us: AuthorizationFailed")
        assert "`evalfleet doctor --azure` shows which permissions are missing" in message
        assert "\n" not in message
        assert here.creations() <= 3
        assert here.states() == {}


async def test_no_right_to_look_is_one_clear_line(tmp_path: Path) -> None:
    async with site(tmp_path, Scenario(fault=[Fault(op="vm.list", preset="authorization_failed")])) as here:
        here.wants(workers=1)
        with pytest.raises(Refusal, match="Azure does not let us") as caught:
            await here.settle()
        assert (caught.value.problem.cause, caught.value.problem.action) == (Cause.AUTH, Action.GIVE_UP)
        assert here.creations() == 0


async def test_a_machine_that_cannot_be_started_is_tried_three_times(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2)
        await here.settle()
        here.set_desired(DesiredState.STOPPED)
        await here.settle()
        here.fault(op="vm.start", match={"name": "evalfleet-1"}, preset="internal_operation_error")
        here.set_desired(DesiredState.RUNNING)
        with pytest.raises(Refusal, match="InternalOperationError"):
            await here.settle()
        assert here.states() == {"evalfleet-1": "stopped", "evalfleet-2": "ready"}
        assert len(here.cloud.exchanges("POST", "evalfleet-1/start")) == 3
        assert "InternalOperationError" in (here.host("evalfleet-1").reason or "")
        here.cloud.emulator.world.faults.clear()
        await here.settle()
        assert here.states() == {"evalfleet-1": "ready", "evalfleet-2": "ready"}
        assert here.host("evalfleet-1").reason is None
