"""Azure Budgets as an option: made, changed and deleted with the pool; they notify, and stop nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.acceptance.azure.test_account_commands import said
from tests.support.cloud import cloud
from tests.support.web_site import NAME, Site, site

from evalfleet import config
from evalfleet.azure import settings
from evalfleet.azure.account.permissions import BUDGETS, NEEDED
from evalfleet.emulator.arm.resources import BUDGET
from evalfleet.emulator.scenario import Role, Scenario
from evalfleet.errors import ConfigError

pytestmark = pytest.mark.anyio
EMAILS = ["ada@example.com"]


def notifies(here: Site) -> None:
    here.settings = replace(here.settings, azure=replace(here.settings.azure, budget_emails=EMAILS))


def budgets(here: Site) -> list[dict[str, Any]]:
    return here.cloud.emulator.world.resources.of(BUDGET)


async def test_a_budget_lives_with_its_pool(tmp_path: Path):
    async with site(tmp_path) as here:
        notifies(here)
        here.wants(workers=1, budget_usd=5.0)
        await here.settle()
        (made,) = budgets(here)
        assert (made["name"], made["properties"]["amount"]) == (f"evalfleet-{NAME}", 5.0)
        assert made["properties"]["filter"]["tags"]["values"] == [NAME]
        told = made["properties"]["notifications"].values()
        assert sorted(each["threshold"] for each in told) == [50, 80, 100]
        assert all(each["contactEmails"] == EMAILS for each in told)

        await here.settle()  # another controller: what is right is left alone
        assert len(here.cloud.exchanges("PUT", "/budgets/")) == 1
        here.wants(budget_usd=8.0)
        await here.settle()
        (changed,) = budgets(here)
        assert changed["properties"]["amount"] == 8.0
        assert changed["properties"]["timePeriod"] == made["properties"]["timePeriod"]

        here.store.pools.mark_for_deletion(NAME)
        await here.settle()
        assert budgets(here) == []


async def test_without_addresses_there_is_none(tmp_path: Path):
    async with site(tmp_path) as here:
        here.wants(workers=1, budget_usd=5.0)
        await here.settle()
        here.store.pools.mark_for_deletion(NAME)
        await here.settle()
        assert [each for each in here.cloud.emulator.world.journal.exchanges() if "/budgets" in each["path"]] == []


async def test_what_azure_refuses_stops_neither_the_machines_nor_their_deletion(tmp_path: Path):
    async with site(tmp_path) as here:
        notifies(here)
        here.cloud.emulator.world.roles = [Role(actions=["*"], not_actions=["Microsoft.Consumption/*"])]
        here.wants(workers=1, budget_usd=5.0)
        await here.settle()
        assert list(here.states().values()) == ["ready"]
        here.store.pools.mark_for_deletion(NAME)
        await here.settle()
        assert here.states() == {}
        assert (await here.leaks())["leaks"] == []


async def test_doctor_names_the_permission_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    role = Role(actions=["*"], not_actions=["Microsoft.Consumption/budgets/write"])
    async with cloud(Scenario(role=[role])) as here:
        _, out, _ = await said(here, tmp_path, "doctor", "--azure", "--regions", "eastus")
        assert BUDGETS not in out  # nobody asked for one
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "config.toml").write_text('[azure]\nbudget_emails = ["ada@example.com"]\n')
        _, out, _ = await said(here, tmp_path, "doctor", "--azure", "--regions", "eastus")
        assert f"you may not {BUDGETS}: Microsoft.Consumption/budgets/write" in " ".join(out.split())
    assert "Microsoft.Consumption/budgets/write" in NEEDED[BUDGETS]


def test_an_address_must_be_one():
    table = config.AzureTable(subscription="s", budget_emails=["ada"])
    with pytest.raises(ConfigError, match='"ada" is no e-mail address'):
        settings._company(table)  # pyright: ignore[reportPrivateUsage]
