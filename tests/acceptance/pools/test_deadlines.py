"""No machine without a deadline of its own: from the moment that its creation is accepted until it is gone, whatever the cloud refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.web_site import NAME, Site, site

from evalfleet.core.hosts.lifecycle import HOUR_S
from evalfleet.emulator.arm.resources import SCHEDULE, VM
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import Scenario, Times
from evalfleet.model import DesiredState
from evalfleet.pools.machine.deadline import move_deadlines

pytestmark = pytest.mark.anyio
ONE = "evalfleet-1"


def refused(preset: str, **more: Any) -> Scenario:
    return Scenario(fault=[Fault(op="schedule.put", preset=preset, **more)])


def unprotected(here: Site) -> list[str]:
    """VMs in the cloud that would run for ever, were nobody to come back."""
    resources = here.cloud.emulator.world.resources
    guarded = {body["properties"]["targetResourceId"].lower() for body in resources.of(SCHEDULE)}
    return [body["name"] for body in resources.of(VM) if body["id"].lower() not in guarded]


async def test_a_deadline_that_is_refused_once_is_asked_for_again(tmp_path: Path) -> None:
    async with site(tmp_path, refused("conflict", times=1)) as here:
        here.wants(workers=2)
        await here.settle()
        assert list(here.states().values()) == ["ready"] * 2
        assert unprotected(here) == []
        assert all(here.facts(name).deadline_at is not None for name in here.states())
        assert not any(host.reason for host in here.hosts())


async def test_a_machine_that_can_have_no_deadline_is_deleted_and_the_pool_says_why(tmp_path: Path) -> None:
    async with site(tmp_path, refused("authorization_failed")) as here:
        here.wants(workers=1)
        await here.settle()
        assert here.states() == {}
        assert await here.cloud.vms.list() == []
        cause, message = here.reason()
        assert cause == "auth"
        assert "no deadline can be set" in message
        assert "`evalfleet doctor --azure`" in message


async def test_the_provider_of_schedules_is_registered_where_nobody_did(tmp_path: Path) -> None:
    async with site(tmp_path, Scenario(unregistered=["Microsoft.DevTestLab"])) as here:
        here.wants(workers=2)
        await here.settle()
        assert list(here.states().values()) == ["ready"] * 2
        assert unprotected(here) == []
        assert len(here.cloud.events("provider.registered")) == 1


async def test_who_may_not_register_it_is_told_how(tmp_path: Path) -> None:
    scenario = Scenario(
        unregistered=["Microsoft.DevTestLab"], fault=[Fault(op="provider.register", preset="authorization_failed")]
    )
    async with site(tmp_path, scenario) as here:
        here.wants(workers=1)
        await here.settle()
        assert here.states() == {}
        assert "no deadline can be set" in here.reason()[1]


async def test_an_interrupt_while_azure_creates_leaves_no_machine_without_a_deadline(tmp_path: Path) -> None:
    async with site(tmp_path, Scenario(times=Times(create=600)), speed=10) as here:
        here.wants(workers=2)
        async with here.controller() as controller, anyio.create_task_group() as tasks:
            tasks.start_soon(controller.settle)
            await here.cloud.until("vm.creating")
            tasks.cancel_scope.cancel()  # as Ctrl-C does
        assert len(here.cloud.events("vm.creating")) >= 1
        assert unprotected(here) == []
        for view in await here.cloud.vms.list(NAME):
            assert here.facts(view.name).deadline_at is not None


async def test_what_a_keeper_left_that_died_between_order_and_deadline_is_made_good(tmp_path: Path) -> None:
    async with site(tmp_path, Scenario(times=Times(create=600)), speed=10) as here:
        here.wants(workers=1)
        here.fault(op="schedule.put", preset="conflict", times=1)
        async with here.controller() as controller, anyio.create_task_group() as tasks:
            tasks.start_soon(controller.settle)
            await here.cloud.until("fault.hit")
            tasks.cancel_scope.cancel()
        assert unprotected(here) == [ONE]
        async with here.served():
            await here.until(lambda: unprotected(here) == [])
            assert here.states() == {ONE: "creating"}


async def test_a_deadline_that_another_hand_took_is_set_again_before_the_machine_is_ready(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=1)
        await here.settle()
        here.set_desired(DesiredState.STOPPED)
        await here.settle()
        await here.cloud.vms.drop_deadline(ONE)
        here.set_desired(DesiredState.RUNNING)
        await here.settle()
        assert here.states() == {ONE: "ready"}
        assert unprotected(here) == []


async def test_a_ready_machine_whose_deadline_cannot_be_moved_says_so_until_it_can(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=1)
        await here.settle()
        here.advance(2 * HOUR_S)
        here.fault(op="schedule.put", preset="conflict", times=1)
        async with here.controller() as controller:
            context = controller._context
            views = {view.name: view for view in await context.cloud.list(context.record.name)}
            await move_deadlines(context, here.hosts(), views)
            [host] = here.hosts()
            assert (host.reason or "").startswith("its deadline cannot be moved: ")
            assert here.facts(ONE).deadline_refused is not None
            await move_deadlines(context, here.hosts(), views)
            [host] = here.hosts()
            assert (host.state, host.reason, here.facts(ONE).deadline_refused) == ("ready", None, None)


async def test_a_deletion_that_fails_leaves_the_deadline(tmp_path: Path) -> None:
    late = Fault(op="vm.delete", preset="internal_operation_error", times=2)
    async with site(tmp_path, Scenario(fault=[late])) as here:
        here.wants(workers=1)
        await here.settle()
        here.wants(workers=0)
        here.set_desired(DesiredState.GONE)
        async with here.controller() as controller, anyio.create_task_group() as tasks:
            tasks.start_soon(controller.settle)
            while here.states():
                assert unprotected(here) == []
                await anyio.sleep(0.01)
        assert (await here.leaks())["leaks"] == []


async def test_the_deadline_comes_when_the_budget_is_spent(tmp_path: Path) -> None:
    """Nobody needs to be there: at $1 for two machines of $0.48 an hour that is after an hour, not after four."""
    async with site(tmp_path) as here:
        here.wants(workers=2, budget_usd=1.0, max_hours=4)
        async with here.served():
            await here.until(lambda: here.count("ready") == 2)
            await here.until(
                lambda: all(
                    (here.facts(name).deadline_at or 1e12) - here.store.now() < 1.2 * HOUR_S for name in here.states()
                )
            )
        here.advance(1.5 * HOUR_S)  # the controller is off
        while set((await here.powers()).values()) != {"released"}:
            await here.cloud.until("vm.deallocated")


async def test_a_machine_without_a_public_address_is_given_up_in_words(tmp_path: Path) -> None:
    scenario = Scenario(fault=[Fault(op="network.get", match={"name": "*-ip"}, preset="resource_not_found")])
    async with site(tmp_path, scenario) as here:
        here.wants(workers=1, deadline={"ssh": 0.3})
        await here.settle()
        assert here.states() == {}
        assert "has no public address" in here.reason()[1]
        assert await here.cloud.vms.list() == []


async def test_an_address_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    scenario = Scenario(fault=[Fault(op="network.get", match={"name": "*-ip"}, preset="resource_not_found", times=3)])
    async with site(tmp_path, scenario) as here:
        here.wants(workers=1)
        await here.settle()
        assert here.states() == {ONE: "ready"}
        assert here.creations() == 1
