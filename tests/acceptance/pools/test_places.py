"""Where a pool's machines are is part of the pool, and "not found" is no proof that they are gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.cloud import cloud
from tests.support.web_site import NAME, Site, opened, site

from evalfleet.azure import clients
from evalfleet.azure.cloud import AzureCloud
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import Scenario, Times
from evalfleet.errors import InputError, WrongState
from evalfleet.layout import Home
from evalfleet.operations.machines import pools as commands
from evalfleet.pools.cloud.problems import Refusal

pytestmark = pytest.mark.anyio
WANTED = {"workers": 1, "regions": ("eastus",)}


def elsewhere(here: Site, **azure: str) -> Site:
    """The same home, in another shell."""
    return Site(
        here.cloud,
        replace(here.settings, azure=replace(here.settings.azure, **azure)),
        here.store,
        here.kept,
        here.thread,
    )


@pytest.mark.parametrize(
    "other", [{"resource_group": "theirs"}, {"subscription": "00000000-0000-0000-0000-000000000bad"}]
)
async def test_a_command_in_another_shell_is_refused_and_names_both_places(
    tmp_path: Path, other: dict[str, str]
) -> None:
    async with site(tmp_path) as here:
        commands.create(here.settings, here.store, NAME, WANTED, backend="azure-vm")
        await here.settle()
        stranger = elsewhere(here, **other)
        commands.delete(here.store, here.store.pools.get(NAME), None)
        with pytest.raises(InputError, match="resource group evalfleet; this shell names") as caught:
            await stranger.settle()
        assert next(iter(other.values())) in str(caught.value)
        assert await here.powers() == {"evalfleet-1": "running"}
        with pytest.raises(InputError, match="this shell names"):
            commands.create(stranger.settings, here.store, NAME, WANTED, backend="azure-vm")
        await here.settle()
        assert here.store.pools.all() == []


async def test_a_pool_is_ordered_again_as_it_is_however_it_stands(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        commands.create(here.settings, here.store, NAME, WANTED, backend="azure-vm")
        commands.stop(here.store, here.store.pools.get(NAME), None)
        commands.create(here.settings, here.store, NAME, WANTED, backend="azure-vm")
        with pytest.raises(WrongState, match="it is another"):
            commands.create(here.settings, here.store, NAME, {**WANTED, "workers": 2}, backend="azure-vm")


async def test_a_subscription_that_is_not_found_is_no_empty_one() -> None:
    async with cloud() as here:
        await here.made(here.spec())
        wrong = replace(here.settings, subscription="00000000-0000-0000-0000-000000000bad")
        async with clients.opened(wrong) as opened_there:
            vms = AzureCloud(opened_there, Home(Path("/nowhere")))
            for ask in (vms.list(), vms.resources(), vms.view("evalfleet-1"), vms.delete("evalfleet-1")):
                with pytest.raises(Refusal, match="SubscriptionNotFound"):
                    await ask


async def test_a_group_that_is_not_found_is_gone_only_if_a_list_of_groups_says_so() -> None:
    async with cloud() as here:
        await here.made(here.spec())
        await here.fault(op="vm.*", preset="group_not_found")
        for ask in (here.vms.list(), here.vms.view("evalfleet-1"), here.vms.delete("evalfleet-1")):
            with pytest.raises(Refusal, match="ResourceGroupNotFound"):
                await ask
        async with clients.opened(replace(here.settings, resource_group="never-made")) as opened_there:
            assert await AzureCloud(opened_there, Home(Path("/nowhere"))).list() == []
            assert await AzureCloud(opened_there, Home(Path("/nowhere"))).view("evalfleet-1") is None


async def test_a_machine_that_is_not_found_at_first_is_not_abandoned(tmp_path: Path) -> None:
    async with site(tmp_path, Scenario(times=Times(lag=0.6))) as here:
        here.wants(workers=2)
        await here.settle()
        assert list(here.states().values()) == ["ready"] * 2
        assert here.creations() == 2
        assert here.told("worker.lost") == []


async def test_who_deletes_a_machine_that_is_not_found_yet_waits_for_it(tmp_path: Path) -> None:
    async with site(tmp_path, Scenario(times=Times(lag=0.6))) as here:
        here.wants(workers=1)
        async with here.controller() as controller:
            await _ordered(here, controller)
        here.store.pools.mark_for_deletion(NAME)
        await here.settle()
        assert here.store.pools.all() == []
        assert await here.cloud.vms.list() == []
        assert await here.leaks() == {"leaks": [], "resources": {}}


async def _ordered(here: Site, controller: object) -> None:
    import anyio

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(controller.settle)  # pyright: ignore[reportAttributeAccessIssue]
        await here.cloud.until("vm.creating")
        tasks.cancel_scope.cancel()


async def test_a_new_group_that_is_not_found_at_once_costs_no_machine(tmp_path: Path) -> None:
    async with site(tmp_path, Scenario(times=Times(group_lag=0.6))) as here:
        here.wants(workers=2)
        await here.settle()
        assert list(here.states().values()) == ["ready"] * 2
        assert here.reason() == ("", "")


async def test_one_group_not_found_on_the_first_request_costs_no_machine(tmp_path: Path) -> None:
    fault = Fault(op="vm.create", preset="group_not_found", times=1)
    async with site(tmp_path, Scenario(fault=[fault])) as here:
        here.wants(workers=2)
        await here.settle()
        assert list(here.states().values()) == ["ready"] * 2


async def test_another_home_sees_its_own_place(tmp_path: Path) -> None:
    async with site(tmp_path) as here, opened(here.cloud, tmp_path / "other") as other:
        commands.create(here.settings, here.store, NAME, WANTED, backend="azure-vm")
        assert here.store.pools.get(NAME).settings["account"]["resource_group"] == "evalfleet"
        commands.create(other.settings, other.store, NAME, {**WANTED, "name_prefix": "other"}, backend="azure-vm")
