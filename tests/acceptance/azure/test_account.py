"""`evalfleet doctor --azure`, and the same checks before the first purchase: each finds what it is for, and says what to do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.cloud import cloud

from evalfleet import config
from evalfleet.azure.account import policies
from evalfleet.azure.provider import AzureProvider
from evalfleet.azure.sizes import DEFAULT_SIZE
from evalfleet.emulator.scenario import Policy, Role, Scenario
from evalfleet.pools.cloud.purchases import candidates
from evalfleet.pools.cloud.records import Diagnosis, Level

pytestmark = pytest.mark.anyio
NAMES = (
    *("sign-in", "subscription", "resource group", "providers", "permissions", "policies", "quota", "sizes"),
    *("addresses", "own address", "clock"),
)


async def found(
    scenario: Scenario, folder: Path, *, register: bool = False, environ: Mapping[str, str] | None = None
) -> dict[str, list[Diagnosis]]:
    """What was found, by the name of the check."""
    async with cloud(scenario) as here:
        settings = config.load(folder, environ={**here.emulator.settings(), **(environ or {})}, folder=folder)
        offerings = candidates([DEFAULT_SIZE], ["eastus", "westus2"])
        rows = await AzureProvider().diagnose(settings, offerings, 1, register=register)
    answer: dict[str, list[Diagnosis]] = {}
    for each in rows:
        answer.setdefault(each.name, []).append(each)
    return answer


async def test_a_good_account_has_no_problem_and_is_looked_at_quickly(tmp_path: Path):
    began = time.monotonic()
    rows = await found(Scenario(), tmp_path)
    assert time.monotonic() - began < 20
    assert tuple(rows) == NAMES
    assert {each.level for some in rows.values() for each in some} == {Level.OK}


@pytest.mark.parametrize(
    ("scenario", "more", "name", "level", "said", "remedy"),
    [
        (Scenario(subscription="Disabled"), {}, "subscription", "problem", "emulator is Disabled", "payment"),
        (Scenario(unregistered=["Microsoft.DevTestLab"]), {}, "providers", "warning", "DevTestLab", "--register"),
        (
            Scenario(quota={place: {"standardDDSv5Family": 4} for place in ("eastus", "westus2")}),
            {},
            "quota",
            "problem",
            "that still fit: eastus 0, westus2 0",
            "az quota update",
        ),
        (
            Scenario(restricted={"eastus": [DEFAULT_SIZE]}),
            {},
            "sizes",
            "warning",
            "not sold to you in eastus: NotAvailableForSubscription",
            "--size, --regions",
        ),
        (Scenario(address_limit=0), {}, "addresses", "problem", "eastus 0", "ask for more"),
        (
            Scenario(policy=[Policy(definition=policies.NO_PUBLIC_IP, name="no addresses")]),
            {},
            "policies",
            "problem",
            "'no addresses' forbids public addresses",
            "azure-in-a-company",
        ),
        (
            Scenario(
                policy=[
                    Policy(definition=policies.ALLOWED_LOCATIONS, parameters={"listOfAllowedLocations": ["westus2"]})
                ]
            ),
            {},
            "policies",
            "problem",
            "forbids eastus",
            "westus2",
        ),
        (Scenario(clock_ahead=5 * 3600), {}, "clock", "warning", "300 min behind Azure's", "timedatectl"),
        (
            Scenario(),
            {"EVALFLEET_AZURE_SSH_FROM": "198.51.100.7"},
            "own address",
            "problem",
            "127.0.0.1, but azure.ssh_from lets in only 198.51.100.7/32",
            "export EVALFLEET_AZURE_SSH_FROM=127.0.0.1/32",
        ),
        (
            Scenario(),
            {"EVALFLEET_AZURE_SSH_FROM": "2001:db8::1"},
            "own address",
            "problem",
            "IPv4 only",
            "EVALFLEET_AZURE_SSH_FROM",
        ),
    ],
)
async def test_what_is_wrong_is_found_with_a_remedy(
    tmp_path: Path, scenario: Scenario, more: dict[str, str], name: str, level: str, said: str, remedy: str
):
    rows = await found(scenario, tmp_path, environ=more)
    (row,) = rows[name]
    assert str(row.level) == level
    assert said in row.message
    assert remedy in (row.remedy or "")
    assert all(each.remedy for some in rows.values() for each in some if each.level is not Level.OK)


async def test_missing_permissions_are_told_by_what_they_are_for(tmp_path: Path):
    async with cloud() as here:
        here.emulator.world.roles = [Role(scope="evalfleet", actions=["*/read", "Microsoft.Compute/*"])]
        settings = config.load(tmp_path, environ=here.emulator.settings(), folder=tmp_path)
        rows = await AzureProvider().diagnose(settings, candidates([DEFAULT_SIZE], ["eastus"]), 1)
    told: dict[str, Any] = {each.message: each for each in rows if each.name == "permissions"}
    create = next(each for message, each in told.items() if message.startswith("you may not create machines"))
    assert create.level is Level.PROBLEM
    assert "docs/reference/azure.md" in create.remedy
    assert any(message.startswith("you may not set deadlines") for message in told)
    above = next(each for message, each in told.items() if message.startswith("you may not see quotas"))
    assert (above.level, "Reader" in above.remedy) == (Level.WARNING, True)


async def test_providers_are_registered_where_that_is_asked_for(tmp_path: Path):
    rows = await found(Scenario(unregistered=["Microsoft.DevTestLab", "Microsoft.Network"]), tmp_path, register=True)
    assert rows["providers"][0].level is Level.OK
