"""Machines that are of no use are stopped, so that nobody pays for them, and replaced within limits; paused runs pay for none."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest
from tests.acceptance.pools.test_work import begun, claimed
from tests.support.store import cases
from tests.support.web_site import NAME, Site, site

from evalfleet.emulator.scenario import Scenario
from evalfleet.model import HostWork
from evalfleet.operations.machines import pools as commands

pytestmark = pytest.mark.anyio
ONE, TWO, THREE = "evalfleet-1", "evalfleet-2", "evalfleet-3"
SILENT = "it does not answer, and run r has given it up"


def is_replaced(here: Site) -> bool:
    return here.states() == {ONE: "stopped", TWO: "ready", THREE: "ready"}


async def test_a_machine_that_the_run_has_given_up_is_stopped_and_replaced(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2)
        async with here.served() as served:
            served.say(run="r", wanted=2)
            await here.until(lambda: here.count("ready") == 2)
            served.say(given_up={ONE: SILENT})
            served.say()
            await here.until(lambda: is_replaced(here))
            assert (await here.powers())[ONE] == "released"
            assert here.host(ONE).reason == f"{SILENT}; its logs are in pools/{NAME}/machines/{ONE}/1"
            await here.looked()
            assert is_replaced(here)  # no run starts it again
        commands.start(here.store, here.store.pools.get(NAME), ONE)  # a person has seen to it
        await here.settle()
        assert here.states()[ONE] == "ready"


async def test_what_has_ended_there_and_is_not_collected_stays_on_its_disk(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2)
        async with here.served() as served:
            await here.until(lambda: here.count("ready") == 2)
            run = begun(here)
            here.store.attempts.finish(run, cases.with_verdict(claimed(here, run, ONE)))
            served.say(given_up={ONE: SILENT})
            served.say()
            await here.until(lambda: is_replaced(here))
            assert here.cloud.events("vm.deleted") == []


async def test_a_machine_on_which_another_run_works_is_left(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=1)
        async with here.served() as served:
            await here.until(lambda: here.count("ready") == 1)
            claimed(here, begun(here), ONE)
            served.say(given_up={ONE: SILENT})
            served.say()
            await here.looked()
            assert here.states() == {ONE: "ready"}


async def test_a_claim_that_comes_while_the_work_is_read_holds_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=1)
        async with here.served() as served:
            await here.until(lambda: here.count("ready") == 1)
            run = begun(here)
            is_read, may_go_on = Event(), Event()
            work = here.kept.hosts.work

            def read_early() -> dict[str, list[HostWork]]:
                found = work()
                is_read.set()
                assert may_go_on.wait(30)
                return found

            monkeypatch.setattr(here.kept.hosts, "work", read_early)
            await here.until(is_read.is_set)
            claimed(here, run, ONE)
            served.say(given_up={ONE: SILENT})
            served.say()
            may_go_on.set()
            await here.looked()
            assert here.states() == {ONE: "ready"}


async def test_machines_in_quarantine_are_replaced_but_not_without_end(tmp_path: Path) -> None:
    """Its setup fails everywhere: what made one unwell makes the next one so, too."""
    async with site(tmp_path, Scenario()) as here:
        here.wants(workers=1, setup="exit 1", idle=600.0)
        async with here.served() as served:
            served.say(run="r", wanted=1)
            await here.until(lambda: here.states() == {ONE: "stopped", TWO: "stopped", THREE: "quarantined"})
            await here.looked()
            assert here.count("quarantined") == 1
            assert here.creations() == 3
            here.advance(700)  # nobody has looked at it: it is not paid for any longer
            await here.until(lambda: here.count("stopped") == 3)
            assert here.creations() == 3
        assert all("setup: exit status 1" in (host.reason or "") for host in here.hosts())


async def test_a_person_finds_a_machine_in_quarantine_as_it_is(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=1, setup="exit 1")
        await here.settle()
        assert here.states() == {ONE: "quarantined"}


async def test_machines_of_a_paused_run_stop_and_start_again_with_it(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2, idle=600.0)
        async with here.served() as served:
            served.say(run="r", wanted=2)
            await here.until(lambda: here.count("ready") == 2)
            served.say(run="r", wanted=0)
            await here.looked()
            here.advance(500)
            await here.looked()
            assert here.count("ready") == 2
            here.advance(200)
            await here.until(lambda: here.count("stopped") == 2)
            served.say(run="r", wanted=1)
            served.say()
            await here.until(lambda: here.count("ready") == 1)
        assert here.creations() == 2
