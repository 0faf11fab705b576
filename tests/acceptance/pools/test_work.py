"""Who keeps a pool heeds the work of every run on it: nothing with work is stopped or deleted unless a person forces it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from tests.support.store import cases
from tests.support.web_site import NAME, Site, site

from evalfleet.core.hosts.lifecycle import HOUR_S
from evalfleet.model import Attempt, DesiredState, Policy, Run
from evalfleet.operations.machines import pools as commands

pytestmark = pytest.mark.anyio
ONE, TWO = "evalfleet-1", "evalfleet-2"


def begun(here: Site, workers: int = 1, tasks: int = 1) -> Run:
    """Another run on the pool; its controller is this process."""
    return cases.drive(here.store, tasks, Policy(pool=NAME, workers=workers))


def claimed(here: Site, run: Run, host: str, task: int = 1) -> Attempt:
    found = here.store.attempts.claim(run, replace(cases.new_claim(task), host=host))
    assert found is not None
    return found.attempt


def collected(here: Site, run: Run, attempt: Attempt) -> None:
    here.store.attempts.finish(run, cases.with_verdict(attempt))
    here.store.attempts.collect(run, attempt, [])


@asynccontextmanager
async def settling(here: Site, *, makes: bool = True) -> AsyncGenerator[anyio.Event]:
    """A command such as `pool stop`, which waits in the background; the event is set when it is done."""
    done = anyio.Event()
    async with here.controller(creates=makes) as controller, anyio.create_task_group() as tasks:

        async def settle() -> None:
            await controller.settle()
            done.set()

        tasks.start_soon(settle)
        yield done
        tasks.cancel_scope.cancel()


def stop(here: Site, *, force: bool = False) -> None:
    commands.stop(here.store, here.store.pools.get(NAME), None, force=force)


async def test_stop_waits_for_work_of_any_run_until_it_is_collected_and_says_for_what(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2)
        await here.settle()
        run = begun(here)
        attempt = claimed(here, run, ONE)
        stop(here)
        async with settling(here, makes=False) as done:
            await here.until(lambda: here.states() == {ONE: "draining", TWO: "stopped"})
            assert f"waits for task_1 of run {run.id}" in (here.host(ONE).reason or "")
            assert "--force" in (here.host(ONE).reason or "")
            here.store.attempts.finish(run, cases.with_verdict(attempt))  # it has ended; its files are still there
            await here.until(lambda: "not collected yet" in (here.host(ONE).reason or ""))
            assert (await here.powers())[ONE] == "running"
            assert not done.is_set()
            here.store.attempts.collect(run, attempt, [])
            await here.until(done.is_set)
        assert here.states() == {ONE: "stopped", TWO: "stopped"}


async def test_who_waits_for_a_run_that_nobody_drives_is_told_how_it_ends(tmp_path: Path) -> None:
    """Its controller died: what has ended there is known to nobody yet."""
    async with site(tmp_path) as here:
        here.wants(workers=1)
        await here.settle()
        run = begun(here)
        claimed(here, run, ONE)
        here.store.runs.leave(run)
        here.wants(workers=0)
        here.set_desired(DesiredState.GONE, ONE)
        async with settling(here) as done:
            await here.until(lambda: here.count("draining") == 1)
            assert f"no controller drives it: `evalfleet resume {run.id}` collects its results" in (
                here.host(ONE).reason or ""
            )
            await here.looked()
            assert not done.is_set()
            assert await here.powers() == {ONE: "running"}
            here.store.hosts.set_desired(NAME, [ONE], DesiredState.GONE, "a person insists", force=True)
            await here.until(done.is_set)
        assert here.states() == {}


async def test_a_deadline_that_stopped_a_machine_does_not_make_its_results_worthless(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=1, max_hours=4)
        await here.settle()
        claimed(here, begun(here), ONE)
        here.advance(6 * HOUR_S)
        await here.cloud.until("vm.deallocated")
        here.wants(workers=0)
        here.set_desired(DesiredState.GONE, ONE)
        async with settling(here) as done:
            await here.until(lambda: here.count("draining") == 1)
            await here.looked()
            assert not done.is_set()
            assert await here.powers() == {ONE: "released"}


async def test_stop_by_force_does_not_wait(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=1)
        await here.settle()
        claimed(here, begun(here), ONE)
        stop(here, force=True)
        await here.settle()
        assert here.states() == {ONE: "stopped"}


async def test_a_pool_at_its_budget_waits_for_the_work_of_other_runs(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2)
        async with here.served() as served:
            await here.until(lambda: here.count("ready") == 2)
            run = begun(here)
            attempt = claimed(here, run, ONE)
            here.advance(1.2 * HOUR_S)
            here.wants(budget_usd=1.0)
            served.say()
            await here.until(lambda: here.states() == {ONE: "draining", TWO: "stopped"})
            assert (await here.powers())[ONE] == "running"
            collected(here, run, attempt)
            await here.until(lambda: here.count("stopped") == 2)


async def test_a_pool_follows_all_its_runs_and_sheds_nothing_that_works_for_another(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=4, min=0, max=4, idle=600.0, idle_action="delete")
        other = begun(here, workers=2, tasks=3)
        async with here.served() as served:
            served.say(run="own", wanted=1)
            served.say()
            await here.until(lambda: here.count("ready") == 3)  # one for our own run, two for the other
            attempts = [claimed(here, other, host, task) for task, host in enumerate((ONE, "evalfleet-3"), 1)]
            served.say(run="own", wanted=0)
            here.store.runs.leave(other)  # its controller dies; its tasks go on
            served.say()
            await here.looked()
            here.advance(700)
            await here.until(lambda: set(here.states()) == {ONE, "evalfleet-3"})
            await here.looked()
            here.advance(700)
            await here.looked()
            assert set(here.states().values()) == {"ready"}
            taken = here.store.runs.take(other.id, "the next controller")
            for attempt in attempts:
                collected(here, taken, attempt)
            here.store.runs.leave(taken)
            await here.looked()
            here.advance(700)
            await here.until(lambda: here.states() == {})


async def test_a_machine_that_is_to_go_gets_no_more_work(tmp_path: Path) -> None:
    """Another run has not seen the wish yet: its claim is refused, so that nothing starts there that would be lost."""
    async with site(tmp_path) as here:
        here.wants(workers=1)
        await here.settle()
        run = begun(here, tasks=2)
        here.set_desired(DesiredState.STOPPED)
        assert here.store.attempts.claim(run, replace(cases.new_claim(1), host=ONE)) is None
        here.set_desired(DesiredState.RUNNING)
        assert here.store.attempts.claim(run, replace(cases.new_claim(1), host=ONE)) is not None


async def test_scale_takes_machines_without_work_first_also_where_others_are_stopped(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2)
        await here.settle()
        claimed(here, begun(here), TWO)
        here.set_desired(DesiredState.STOPPED, TWO)
        assert commands.scale(here.store, here.store.pools.get(NAME), {"workers": 1}).machines == [ONE]


async def test_stop_buys_no_machine(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2, spot=True)
        await here.settle()
        await here.cloud.control("POST", f"vms/{ONE}/evict", {"silent": True})
        await here.cloud.until("vm.deleted")
        stop(here)
        async with settling(here, makes=False) as done:
            await here.until(done.is_set)
        assert here.states() == {TWO: "stopped"}
        await here.settle()  # nor does whoever looks after it next
        assert here.states() == {TWO: "stopped"}
        assert here.creations() == 2
        commands.start(here.store, here.store.pools.get(NAME), None)
        await here.settle()
        assert list(here.states().values()) == ["ready"] * 2


async def test_stop_of_one_machine_buys_no_other(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=1)
        await here.settle()
        here.wants(workers=2)
        commands.stop(here.store, here.store.pools.get(NAME), ONE)
        async with settling(here, makes=False) as done:
            await here.until(done.is_set)
        assert here.states() == {ONE: "stopped"}


async def test_a_scaling_pool_that_is_stopped_stays_so_but_for_a_run_that_comes_later(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2, min=1, max=2)
        async with here.served() as served:
            served.say(run="own", wanted=2)
            await here.until(lambda: here.count("ready") == 2)
            stop(here)
            served.say()
            await here.until(lambda: here.count("stopped") == 2)
            await here.looked()
            assert here.count("stopped") == 2
        stopped_at = here.store.pools.get(NAME).settings["stopped_at"]  # as a run that comes now finds it
        async with here.served(stopped_at=stopped_at) as served:
            served.say(run="later", wanted=1)
            await here.until(lambda: here.count("ready") == 1)
        assert here.creations() == 2


async def test_a_stop_that_comes_while_the_keeper_looks_is_not_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read the pool before, and the machines after: that they are to stop looks as if some were missing."""
    async with site(tmp_path) as here:
        here.wants(workers=2, min=1, max=2)
        async with here.served() as served:
            served.say(run="own", wanted=2)
            await here.until(lambda: here.count("ready") == 2)
            context = served.controller._context  # pyright: ignore[reportPrivateUsage]
            read = context.refresh

            async def read_and_be_late() -> object:
                pool = await read()
                if here.store.pools.get(NAME).settings.get("stopped_at") is None:
                    stop(here)
                return pool

            monkeypatch.setattr(context, "refresh", read_and_be_late)
            served.say()
            await here.until(lambda: here.count("stopped") == 2)
            await here.looked()
            assert here.count("stopped") == 2
