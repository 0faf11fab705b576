"""Kill -9 of whoever keeps a pool, at seeded points of its whole life: the next one leaves nothing unknown."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.pool_kills import How, Keepers, Point, aimed, check
from tests.support.web_site import NAME, Site, site

from evalfleet.model import DesiredState

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]
SPEED = 400  # a creation takes 0.1 s: long enough to be seen on the way
# Of each part of the life: how many requests it has at least, to the cloud and to machines.
PARTS = {"create": 56, "grow": 26, "stop": 14, "start": 52, "shrink": 20, "delete": 12}


@pytest.fixture(scope="module")
def keepers() -> Iterator[Keepers]:
    made = Keepers()
    yield made
    made.close()


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_pool_survives_its_keepers(tmp_path: Path, keepers: Keepers, seed: int) -> None:
    await _life(tmp_path, keepers, seed)


@pytest.mark.parametrize("how", list(How))
@pytest.mark.parametrize("order", ["PUT virtualMachines", "command"])
async def test_a_death_at_the_order_itself_makes_no_second_machine(
    tmp_path: Path, keepers: Keepers, order: str, how: How
) -> None:
    """The VM is there, and nobody heard of it; or it has a new host key, and nobody has written that down."""
    async with site(tmp_path, speed=SPEED) as here:
        here.wants(workers=2)
        number = list(How).index(how) + 1 if order == "command" else 1
        point = Point(number, how, random.Random(3), only=order)
        with aimed(here, point):
            assert await keepers.keep(here, point) == 9, point
        await here.settle()
        check(here, await here.powers(), {"ready": 2})
        assert [event["type"] for event in here.cloud.events()].count("vm.creating") == 2
        assert all(host.made_at for host in here.hosts())
        here.store.pools.mark_for_deletion(NAME)
        await here.settle()
        assert await here.leaks() == {"leaks": [], "resources": {}}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
async def test_a_pool_survives_fifty_more(tmp_path: Path, keepers: Keepers, seed: int) -> None:
    await _life(tmp_path, keepers, seed)


async def _life(folder: Path, keepers: Keepers, seed: int) -> None:
    """From zero to nothing, with one death in each part."""
    rng = random.Random(seed)
    killed: list[str] = []
    async with site(folder, speed=SPEED) as here:
        for part, requests in PARTS.items():
            _begin(here, part)
            point = Point(rng.randint(1, requests), rng.choice(list(How)), rng)
            with aimed(here, point):
                status = await keepers.keep(here, point)
            assert status in (0, 9), f"{part}: ended by itself, with status {status}"
            killed.append(f"{part} {point.number}/{point.met}: {point.killed_at if status else 'ended before'}")
            if part != "delete" or here.store.pools.all():
                await here.settle()
            if part != "delete":
                wanted = {"create": {"ready": 3}, "grow": {"ready": 4}, "stop": {"stopped": 4}, "start": {"ready": 4}}
                check(here, await here.powers(), wanted.get(part, {"ready": 1}))
        assert here.store.pools.all() == []
        assert await here.leaks() == {"leaks": [], "resources": {}}
    print(f"seed {seed}: " + "; ".join(killed))
    assert sum("ended before" in each for each in killed) <= 1, killed


def _begin(here: Site, part: str) -> None:
    match part:
        case "create":
            here.wants(workers=3)
        case "grow":
            here.wants(workers=4)
        case "stop":
            here.set_desired(DesiredState.STOPPED)
        case "start":
            here.set_desired(DesiredState.RUNNING)
        case "shrink":
            here.wants(workers=1)
            here.set_desired(DesiredState.GONE, *[host.name for host in here.hosts()][1:])
        case _:
            here.store.pools.mark_for_deletion(NAME)
