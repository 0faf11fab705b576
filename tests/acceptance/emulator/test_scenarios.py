"""The scenario files of the examples, each loaded and seen at work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import pytest
from tests.support.cloud import Cloud, cloud

from evalfleet.azure import clients
from evalfleet.emulator import scenario
from evalfleet.emulator.scenario import Scenario
from evalfleet.pools.cloud.problems import Action, Cause, Problem, Refusal
from evalfleet.pools.cloud.records import MachineSpec, Verb

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parents[3] / "examples" / "scenarios"
REGIONS = ("eastus", "westus2", "centralus", "eastus2")


def named(name: str) -> Scenario:
    return scenario.load(FOLDER / f"{name}.toml")


def running(name: str, *, speed: float = 0) -> AbstractAsyncContextManager[Cloud]:
    return cloud(named(name), speed=speed)


async def tried(here: Cloud, spec: MachineSpec) -> Problem | None:
    """Create a VM, and return why that failed; its record is deleted."""
    network = await here.networks.ensure("p1", spec.region, "me")
    try:
        continuation = await here.vms.order(spec, network)
    except Refusal as refusal:
        return refusal.problem
    progress = await here.done(Verb.CREATE, spec.name, continuation, spec)
    if progress.problem is not None:
        gone = await here.vms.delete(spec.name)
        await here.done(Verb.DELETE, spec.name, gone)
    return progress.problem


async def quota() -> None:
    async with running("quota") as here:
        problems = [await tried(here, here.spec(f"vm-{number}")) for number in range(3)]
        assert problems[:2] == [None, None]
        assert problems[2] is not None
        assert (problems[2].action, problems[2].quota.missing if problems[2].quota else 0) == (Action.ASK_QUOTA, 8)
        for region in REGIONS[1:]:
            problem = await tried(here, here.spec(f"vm-{region}", region=region))
            assert problem is not None
            assert problem.cause is Cause.REGION_QUOTA


async def two_regions() -> None:
    async with running("two-regions") as here:
        causes = [await tried(here, here.spec(f"vm-{region}", region=region)) for region in REGIONS[:3]]
        assert [problem and problem.cause for problem in causes] == [Cause.SKU, Cause.CAPACITY, None]
        assert (await here.control("GET", "leaks"))["leaks"] == []


async def storm() -> None:
    async with running("storm") as here:
        problem, asked = Problem(cause=Cause.THROTTLED, action=Action.WAIT, message=""), 0
        while problem is not None:
            problem = await tried(here, here.spec())
            asked += 1
            assert problem is None or (problem.cause, problem.wait_s) == (Cause.THROTTLED, 0.1)
        assert asked == 20 // (clients.RETRIES + 1) + 1
        assert len(here.events("fault.hit")) == 20


async def all_regions_down() -> None:
    async with running("all-regions-down") as here:
        for region in REGIONS:
            problem = await tried(here, here.spec(f"vm-{region}", region=region))
            assert problem is not None
            assert problem.cause is Cause.CAPACITY
        assert (await here.control("GET", "leaks"))["leaks"] == []


async def broken_hosts() -> None:
    async with running("broken-hosts") as here:
        specs = [here.spec(f"evalfleet-{number}") for number in range(1, 8)]
        views = [await here.made(spec) for spec in specs]
        hit = {event["subject"]: event["data"]["preset"] for event in here.events("fault.hit")}
        assert hit == {
            "evalfleet-1": "no_ssh",
            "evalfleet-2": "no_kvm",
            "evalfleet-3": "disk_full",
            "evalfleet-4": "clock_skew",
            "evalfleet-5": "slow_host",
        }
        with pytest.raises(ConnectionRefusedError):
            await here.ssh(specs[0], views[0], "true")
        healthy = "kvm-ok >/dev/null && [ $(df -Pk . | awk 'NR == 2 {print $4}') -gt 0 ] && docker pull a/b >/dev/null"
        assert (await here.ssh(specs[1], views[1], healthy))[0] == 1
        assert (await here.ssh(specs[2], views[2], healthy))[0] == 1
        async with here.login(specs[5], views[5]) as connection:
            with pytest.raises(TimeoutError):
                await connection.run(healthy, timeout=0.5)
        assert (await here.ssh(specs[6], views[6], healthy))[0] == 0


async def evictions() -> None:
    # Ten minutes are long enough here for all ten to be there, also on a machine that is busy.
    async with running("evictions", speed=400) as here:
        here.emulator.world.times.create = 0
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(here.made, here.spec(f"vm-{number}", spot=True))
        seen: list[dict[str, object]] = []
        while len(seen) < 4:
            seen.append(await here.until("vm.evicted", after=int(str(seen[-1]["number"])) if seen else 0))
        assert [event["data"]["silent"] for event in here.events("vm.evicted")][:4] == [True, True, True, False]


async def partition() -> None:
    async with running("partition", speed=1000) as here:
        here.emulator.world.times.create = 0
        await here.made(here.spec("vm-1"))
        await here.made(here.spec("vm-2"))
        cut = await here.until("link.changed")
        healed = await here.until("link.changed", after=cut["number"])
        assert [(event["subject"], event["data"]["blocked"]) for event in (cut, healed)] == [
            ("vm-1", True),
            ("vm-1", False),
        ]


async def friday_evening() -> None:
    async with running("friday-evening") as here:
        made = 0
        for number in range(4):
            for region in REGIONS:
                problem = await tried(here, here.spec(f"vm-{number}", region=region))
                if problem is None:
                    made += 1
                    break
                assert problem.action in (Action.ASK_QUOTA, Action.NEXT_SIZE, Action.NEXT_REGION)
        assert made == 4
        assert {view.region for view in await here.vms.list()} == {"eastus", "eastus2"}
        assert (await here.control("GET", "leaks"))["leaks"] == []


@pytest.mark.parametrize(
    "works",
    [quota, two_regions, storm, all_regions_down, broken_hosts, evictions, partition, friday_evening],
    ids=lambda works: works.__name__,
)
async def test_a_scenario_does_what_it_says(works: Callable[[], Awaitable[None]]):
    await works()


def test_every_file_is_among_them():
    (parameters,) = [mark for mark in test_a_scenario_does_what_it_says.pytestmark if mark.name == "parametrize"]  # pyright: ignore[reportFunctionMemberAccess]
    tested = {works.__name__.replace("_", "-") for works in parameters.args[1]}
    assert {path.stem for path in FOLDER.glob("*.toml")} == tested
