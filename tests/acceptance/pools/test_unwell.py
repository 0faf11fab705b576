"""Machines that come up and are not as they must be: found by the check that fails, replaced or set aside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.web_site import NAME, Site, site

from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import Scenario

pytestmark = pytest.mark.anyio
SOON = {"ssh": 0.5, "host_key": 5.0}


def always(preset: str, **more: Any) -> Scenario:
    return Scenario(fault=[Fault(op="host.boot", preset=preset, **more)])


async def cost_is_right(here: Site) -> None:
    """What is shown is what the cloud asks for, after some hours as well."""
    here.advance(3 * 3600)
    billed = await here.billed_usd()
    assert here.shown_usd() == pytest.approx(billed, rel=0.05)


@pytest.mark.parametrize("preset", ["no_ssh", "mute_ssh"])
async def test_a_machine_that_never_answers_is_replaced_in_another_region(tmp_path: Path, preset: str) -> None:
    async with site(tmp_path, always(preset, times=1)) as here:
        here.wants(workers=2, regions=("eastus", "westus2"), deadline=SOON)
        await here.settle()
        assert here.states() == {"evalfleet-1": "ready", "evalfleet-2": "ready"}
        assert here.creations() == 3
        assert sorted(here.facts(name).region for name in here.states()) == ["eastus", "westus2"]
        assert here.told("worker.readied") == ["worker.readied"] * 2
        assert here.reason() == ("", "")
        await cost_is_right(here)


async def test_one_that_never_answers_anywhere_is_given_up_after_three_tries(tmp_path: Path) -> None:
    async with site(tmp_path, always("no_ssh")) as here:
        here.wants(workers=1, deadline=SOON)
        await here.settle()
        assert here.states() == {}
        assert here.creations() == 3
        [host] = here.hosts(gone=True)
        assert host.reason is not None
        assert "after 3 tries: ssh: does not hold after 0.5 s" in host.reason
        cause, message = here.reason()
        assert (cause, message) == ("provisioning", host.reason)
        assert await here.cloud.vms.list() == []


async def test_a_machine_with_a_key_that_is_not_ours_gets_nothing(tmp_path: Path) -> None:
    async with site(tmp_path, always("wrong_host_key", times=1)) as here:
        here.wants(workers=1, deadline=SOON)
        await here.settle()
        assert here.states() == {"evalfleet-1": "ready"}
        assert here.creations() == 2
        plan = here.facts("evalfleet-1").plan
        assert plan is not None
        [problem] = plan.problems
        assert problem.message.startswith("host_key: ")
        assert "its key has changed" in problem.message


async def test_a_machine_without_kvm_is_replaced_and_the_rung_named(tmp_path: Path) -> None:
    async with site(tmp_path, always("no_kvm")) as here:
        here.wants(workers=1, kvm=True, deadline=SOON)
        await here.settle()
        assert here.states() == {}
        assert here.creations() == 3
        assert "kvm: KVM is not usable" in here.reason()[1]
        assert "evalfleet sizes" in here.reason()[1]
        await here.cloud.control("DELETE", "faults")
        await here.settle()
        assert here.count("ready") == 1


async def test_a_full_disk_is_tidied_once_and_then_set_aside(tmp_path: Path) -> None:
    async with site(tmp_path, always("disk_full", match={"name": "evalfleet-1"})) as here:
        here.wants(workers=2)
        await here.settle()
        assert here.states() == {"evalfleet-1": "quarantined", "evalfleet-2": "ready"}
        reason = here.host("evalfleet-1").reason or ""
        assert reason.startswith("disk: 0 GB free, 2 needed, and tidying up did not help")
        assert here.told("worker.quarantined") == ["worker.quarantined"]
        assert here.creations() == 2
        await here.settle()  # it waits for a person: nothing is tried again, nothing replaced
        assert here.states() == {"evalfleet-1": "quarantined", "evalfleet-2": "ready"}
        assert here.creations() == 2
        await cost_is_right(here)


async def test_a_disk_full_of_leftovers_is_tidied(tmp_path: Path) -> None:
    async with site(tmp_path, always("disk_full_of_images")) as here:
        here.wants(workers=1)
        await here.settle()
        assert here.states() == {"evalfleet-1": "ready"}


async def test_a_clock_that_is_ten_minutes_ahead_harms_nothing(tmp_path: Path) -> None:
    async with site(tmp_path, always("clock_skew", seconds=600)) as here:
        here.wants(workers=2)
        await here.settle()
        assert here.states() == {"evalfleet-1": "ready", "evalfleet-2": "ready"}
        assert here.creations() == 2
        await cost_is_right(here)


async def test_a_setup_that_fails_sets_the_machine_aside_with_its_last_words(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=1, setup="echo no such package >&2; exit 3")
        await here.settle()
        assert here.states() == {"evalfleet-1": "quarantined"}
        reason = "setup: exit status 3: no such package; its logs are in pools/p1/machines/evalfleet-1/1"
        assert here.host("evalfleet-1").reason == reason
        here.store.pools.mark_for_deletion(NAME)
        await here.settle()
        assert await here.leaks() == {"leaks": [], "resources": {}}
