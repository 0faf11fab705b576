"""What happens to a pool while it lives: evictions, deadlines, other hands, money, demand."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from msgspec import to_builtins
from tests.support.cloud import Cloud
from tests.support.web_site import NAME, ServedRun, Site, site

from evalfleet.azure import prices
from evalfleet.cli.pools.shared.table import page
from evalfleet.core.hosts.lifecycle import HOUR_S
from evalfleet.emulator.scenario import Scenario, Times
from evalfleet.layout import Home
from evalfleet.model import DesiredState
from evalfleet.report.pools import pool_facts

pytestmark = pytest.mark.anyio
USD = 0.452  # an hour of the default size in eastus
KEPT = 19.71 / 730 + 0.005  # of its disk and its address


async def cost_is_right(here: Site) -> None:
    assert here.shown_usd() == pytest.approx(await here.billed_usd(), rel=0.05)


async def gone_without_a_trace(here: Site) -> None:
    here.store.pools.mark_for_deletion(NAME)
    await here.settle()
    assert await here.leaks() == {"leaks": [], "resources": {}}


def know_spot_prices(here: Site, cloud: Cloud) -> None:
    rows = prices.refresh(cloud.settings.prices_url, ["eastus"], "2026-11-01")
    prices.store(Home(here.settings.home).prices, rows)


@pytest.mark.parametrize("silent", [False, True])
async def test_evicted_machines_are_replaced_while_somebody_serves(tmp_path: Path, silent: bool) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=5, spot=True)
        async with here.served():
            await here.until(lambda: here.count("ready") == 5)
            body = {"share": 0.6, "silent": silent}
            taken = (await here.cloud.control("POST", "evictions", body))["evicted"]
            assert len(taken) == 3
            await here.until(lambda: here.count("ready") == 5 and not set(taken) & set(here.states()))
        assert here.creations() == 8
        assert all(here.facts(name).preempted for name in taken)
        assert {here.host(name).reason for name in taken} == {"taken back by the cloud"}
        assert here.told("worker.lost") == ["worker.lost"] * 3
        assert not any(host.reason for host in here.hosts())
        await gone_without_a_trace(here)


async def test_the_cost_of_spot_machines_is_that_of_the_bill(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await anyio.to_thread.run_sync(know_spot_prices, here, here.cloud)
        here.wants(workers=3, spot=True)
        await here.settle()
        here.advance(2 * HOUR_S)
        await cost_is_right(here)
        assert here.shown_usd() < 3 * 2 * USD / 2


async def test_a_spot_machine_whose_price_is_not_known_is_shown_with_the_most_that_it_can_cost(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=1, spot=True)
        await here.settle()
        shown = page(pool_facts(here.store, here.store.pools.get(NAME)))
        assert "at most 0.452 $/h (on-demand price)" in shown
        assert "now at most $0.4" in shown
        await anyio.to_thread.run_sync(know_spot_prices, here, here.cloud)
        here.wants(workers=2)
        await here.settle()
        [_, second] = to_builtins(pool_facts(here.store, here.store.pools.get(NAME)))["hosts"]
        assert (second["price"], second["price_usd_per_hour"]) == ("known", pytest.approx(0.452 * 0.2, rel=0.01))


async def test_a_machine_whose_order_nobody_followed_is_shown_with_its_price(tmp_path: Path) -> None:
    async with site(tmp_path, Scenario(times=Times(create=600)), speed=10) as here:
        here.wants(workers=1)
        async with here.controller() as controller, anyio.create_task_group() as tasks:
            tasks.start_soon(controller.settle)
            await here.until(lambda: any(host.facts.get("deadline_at") for host in here.hosts()))
            tasks.cancel_scope.cancel()
        answer = to_builtins(pool_facts(here.store, here.store.pools.get(NAME), 10))
        assert [row["state"] for row in answer["hosts"]] == ["creating"]
        assert answer["usd_per_hour"] == pytest.approx(USD + KEPT, rel=0.01)
        assert answer["hosts"][0]["deadline_at"] is not None


async def test_a_pool_that_loses_machine_after_machine_stops_replacing_them(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=1, spot=True)
        async with here.served():
            for number in range(1, 4):
                await here.until(lambda n=number: here.states() == {f"evalfleet-{n}": "ready"})
                await here.cloud.control("POST", f"vms/evalfleet-{number}/evict")
            await here.until(lambda: here.reason()[0] == "replaced")
        assert here.creations() == 3
        assert "3 machines were lost within an hour, of a pool of 1" in here.reason()[1]
        assert f"evalfleet events pool:{NAME}" in here.reason()[1]


async def test_a_deadline_stops_a_machine_with_nobody_there(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2, max_hours=4)
        await here.settle()
        here.advance(6 * HOUR_S)  # the controller is off
        while set((await here.powers()).values()) != {"released"}:
            await here.cloud.until("vm.deallocated")
        assert set(here.states().values()) == {"ready"}  # nobody has looked
        await here.settle()
        assert set(here.states().values()) == {"ready"}
        assert set((await here.powers()).values()) == {"running"}
        assert here.creations() == 2
        assert here.told("worker.stopped") == ["worker.stopped"] * 2
        # The emulator's clock jumped over the deadline, so that its bill has all six hours; Azure's would have four.
        shown = here.shown_usd()
        assert shown == pytest.approx(2 * (4 * USD + 6 * KEPT), rel=0.02)
        here.advance(3 * HOUR_S)
        assert here.shown_usd() - shown == pytest.approx(2 * 3 * (USD + KEPT), rel=0.02)
        assert (await here.leaks())["leaks"] == []
        await gone_without_a_trace(here)


async def test_a_deadline_is_moved_while_somebody_serves(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=1, max_hours=4)
        async with here.served():
            await here.until(lambda: here.count("ready") == 1)
            for _ in range(4):
                before = here.facts("evalfleet-1").deadline_at
                here.advance(1.5 * HOUR_S)
                await here.until(lambda at=before: here.facts("evalfleet-1").deadline_at != at)
        assert here.cloud.events("vm.deallocated") == []
        assert here.cloud.events("schedule.due") == []


async def test_who_leaves_lets_machines_stop_soon_and_who_comes_back_does_not(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=1, max_hours=4)
        async with here.controller() as controller:
            await controller.settle()
            await controller.part()
        left = here.facts("evalfleet-1").deadline_at
        assert left is not None
        assert left - here.store.now() == pytest.approx(1800, abs=60)
        async with here.served():
            await here.until(lambda: (here.facts("evalfleet-1").deadline_at or 0) > here.store.now() + 3.9 * HOUR_S)
        here.advance(HOUR_S)
        assert await here.powers() == {"evalfleet-1": "running"}


async def test_a_machine_deleted_by_another_hand_is_replaced_and_said_so(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2)
        await here.settle()
        [vm] = [
            each for each in await here.cloud.vms.resources(NAME) if each.id.endswith("/virtualMachines/evalfleet-1")
        ]
        await here.cloud.vms.delete_resource(vm)  # as the portal does: the schedule stays
        await here.settle()
        assert here.states() == {"evalfleet-2": "ready", "evalfleet-3": "ready"}
        assert here.host("evalfleet-1").reason == "deleted outside evalfleet"
        assert here.told("worker.lost") == ["worker.lost"]
        here.advance(HOUR_S)
        await cost_is_right(here)
        await gone_without_a_trace(here)


async def test_at_its_budget_a_pool_stops(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2, budget_usd=1.0)
        async with here.served():
            await here.until(lambda: here.count("ready") == 2)
            here.advance(1.07 * HOUR_S)
            await here.until(lambda: here.count("stopped") == 2)
        assert here.reason()[0] == "budget"
        assert here.reason()[1].startswith("spent $1.")
        assert "of $1.00" in here.reason()[1]
        assert here.told("pool.paused") == ["pool.paused"]
        await cost_is_right(here)
        here.wants(workers=4)  # more are not made, by the next command either
        here.set_desired(DesiredState.RUNNING)
        await here.settle()
        assert set(here.states().values()) == {"stopped"}
        assert here.creations() == 2
        here.wants(budget_usd=100.0)
        here.set_desired(DesiredState.RUNNING)
        await here.settle()
        assert list(here.states().values()) == ["ready"] * 4
        assert here.reason() == ("", "")


async def test_a_pool_grows_and_shrinks(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2)
        await here.settle()
        here.wants(workers=6)
        await here.settle()
        assert here.count("ready") == 6
        here.advance(HOUR_S)
        here.wants(workers=1)
        here.set_desired(DesiredState.GONE, *list(here.states())[1:])
        await here.settle()
        assert here.states() == {"evalfleet-1": "ready"}
        assert here.creations() == 6
        assert await here.powers() == {"evalfleet-1": "running"}
        here.advance(HOUR_S)
        await cost_is_right(here)
        await gone_without_a_trace(here)


async def test_stopped_machines_cost_their_disk(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2)
        await here.settle()
        here.advance(HOUR_S)
        here.set_desired(DesiredState.STOPPED)
        await here.settle()
        spent = here.shown_usd()
        assert spent == pytest.approx(2 * (USD + KEPT), rel=0.02)
        here.advance(24 * HOUR_S)
        await cost_is_right(here)
        assert 0.5 < here.shown_usd() - spent < 2.0


async def test_a_scaling_pool_follows_its_run_and_sheds_what_is_idle(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=4, min=1, max=4, idle=600.0)
        async with here.served() as served:
            _need(served, 9)
            await here.until(lambda: here.count("ready") == 4)
            served.say(busy={"evalfleet-1": 1, "evalfleet-4": 1})
            _need(served, 2)
            await here.looked()
            here.advance(500)
            await here.looked()
            assert here.count("ready") == 4
            here.advance(200)
            await here.until(lambda: here.count("stopped") == 2)
            assert {name for name, state in here.states().items() if state == "ready"} == {"evalfleet-1", "evalfleet-4"}
            _need(served, 3)
            await here.until(lambda: here.count("ready") == 3)
            assert here.creations() == 4  # one that was stopped is started before a new one is made
            served.say(busy={})
            _need(served, 0)
            await here.looked()
            here.advance(700)
            await here.until(lambda: here.count("ready") == 1)
        assert here.creations() == 4


async def test_work_ends_before_its_machine_is_stopped(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2)
        async with here.served() as served:
            await here.until(lambda: here.count("ready") == 2)
            served.say(busy={"evalfleet-1": 1})
            here.set_desired(DesiredState.STOPPED)
            served.say()
            await here.until(lambda: here.states() == {"evalfleet-1": "draining", "evalfleet-2": "stopped"})
            assert (await here.powers())["evalfleet-1"] == "running"
            served.say(busy={})
            served.say()
            await here.until(lambda: here.count("stopped") == 2)


def _need(served: ServedRun, workers: int) -> None:
    served.say(wanted=workers)
