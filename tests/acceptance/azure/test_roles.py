"""What a principal may do: the documented role is enough for everything, and one without a permission is told which."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.support.cloud import cloud
from tests.support.web_site import NAME, Site, site

from evalfleet.azure.account.permissions import NEEDED, NEEDED_ABOVE, REQUIRED, Grant, missing, role_definition
from evalfleet.emulator.scenario import Role, Scenario
from evalfleet.layout import Home
from evalfleet.pools.cloud.problems import Action, Cause, Refusal
from evalfleet.pools.cloud.records import ImageRequest
from evalfleet.pools.kinds.registry import clouds

pytestmark = pytest.mark.anyio
GROUP = "evalfleet"
DOCS = Path(__file__).parents[3] / "docs" / "reference" / "azure.md"


def least(*without: str) -> Role:
    """The documented role on the group, and nothing on the subscription."""
    actions = role_definition("S", GROUP)["Actions"]
    return Role(scope=GROUP, actions=[action for action in actions if action not in without])


async def bake(here: Site) -> None:
    kind = next(one for one in clouds() if one.name == "azure-vm")
    async with kind.provider.open(here.settings, Home(here.settings.home)) as opened:

        async def sync() -> None: ...

        request = ImageRequest(name="golden", owner="me", machine="evalfleet-1", regions=("eastus",), disk_gb=128)
        await opened.bake(request, sync, lambda _: None)  # pyright: ignore[reportAttributeAccessIssue]


async def test_the_documented_role_on_the_group_alone_is_enough_for_the_whole_story(tmp_path: Path):
    async with site(tmp_path) as here:  # the group is there: it is made by who may make groups
        here.cloud.emulator.world.roles = [least()]
        here.wants(workers=2)
        await here.settle()
        assert list(here.states().values()) == ["ready", "ready"]
        await bake(here)
        here.store.pools.mark_for_deletion(NAME)
        await here.settle()
        assert (await here.leaks())["leaks"] == []
        refused = [each for each in here.cloud.emulator.world.journal.exchanges() if each["status"] == 403]
        assert {each["path"].rpartition("/")[2] for each in refused} <= {"usages"}  # what is only nice to know


async def test_states_are_seen_with_a_role_on_the_group_however_many_machines_there_are(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("evalfleet.azure.cloud.ONE_BY_ONE", 1)
    async with cloud() as here:
        for number in (1, 2):
            await here.made(here.spec(f"evalfleet-{number}"))
        everywhere = f"/subscriptions/{here.settings.subscription}/providers/Microsoft.Compute/virtualMachines"
        assert [view.power for view in await here.vms.list()] == ["running"] * 2
        assert here.exchanges("GET", everywhere)[-1]["status"] == 200
        here.emulator.world.roles = [least()]
        assert [view.power for view in await here.vms.list()] == ["running"] * 2
        assert here.exchanges("GET", everywhere)[-1]["status"] == 403


@pytest.mark.parametrize(
    "action",
    [
        "Microsoft.Compute/virtualMachines/write",
        "Microsoft.Network/virtualNetworks/subnets/join/action",
        "Microsoft.Network/publicIPAddresses/write",
    ],
)
async def test_a_missing_permission_is_named_with_its_scope(action: str):
    async with cloud() as here:
        here.emulator.world.roles = [least(action)]
        with pytest.raises(Refusal) as caught:
            await here.vms.order(here.spec(), here.network)
        problem = caught.value.problem
        assert (problem.cause, problem.action) == (Cause.AUTH, Action.GIVE_UP)
        assert f"you lack the permission {action} on {here.settings.group_path()}" in problem.message


async def test_the_permissions_api_tells_what_the_roles_allow():
    async with cloud(Scenario()) as here:
        here.emulator.world.roles = [least(), Role(actions=["*/read"], not_actions=["Microsoft.Compute/skus/read"])]
        path = f"{here.settings.group_path()}/providers/Microsoft.Authorization/permissions"
        found = await here.vms._arm.list(path, "2022-04-01")  # pyright: ignore[reportPrivateUsage]
        grants = [Grant(actions=tuple(each["actions"]), not_actions=tuple(each["notActions"])) for each in found]
        assert missing(grants, [action for what in REQUIRED for action in NEEDED[what]]) == []
        assert missing(grants, NEEDED_ABOVE["see quotas and sizes"]) == ["Microsoft.Compute/skus/read"]


def test_the_role_in_the_documentation_is_the_one_that_is_tried_here():
    (text,) = re.findall(r"```json\n(\{\n  \"Name\".*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    assert json.loads(text) == role_definition("SUBSCRIPTION", GROUP)
