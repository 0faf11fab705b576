"""`PoolHandle.wait` in front of an emulated cloud: it does what the commands do, and buys nothing more."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.web_site import NAME, Site, site

from evalfleet.api.pools import PoolHandle

pytestmark = pytest.mark.anyio
ONE, TWO, THREE = "evalfleet-1", "evalfleet-2", "evalfleet-3"


def handle(here: Site) -> PoolHandle:
    return PoolHandle(replace(here.settings, azure=replace(here.settings.azure, speed=1.0)), NAME)


async def lose(here: Site, name: str) -> None:
    """Delete a machine as the portal does."""
    [vm] = [each for each in await here.cloud.vms.resources(NAME) if each.id.endswith(f"/virtualMachines/{name}")]
    await here.cloud.vms.delete_resource(vm)


async def test_after_stop_no_machine_is_created_before_another_order(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2)
        pool = handle(here)
        await pool.wait_async()
        assert (here.states(), here.creations()) == ({ONE: "ready", TWO: "ready"}, 2)
        await lose(here, ONE)
        assert pool.stop(TWO) == [TWO]
        for _ in range(2):
            facts = await pool.wait_async()
            assert facts is not None
            assert [(host.host, host.state) for host in facts.hosts] == [(TWO, "stopped")]
        assert here.creations() == 2, "nothing is bought for an order to stop"
        pool.start()
        await pool.wait_async()
        assert (here.states(), here.creations()) == ({TWO: "ready", THREE: "ready"}, 3)
        pool.stop()
        await handle(here).wait_async()
        assert (here.states(), here.creations()) == ({TWO: "stopped", THREE: "stopped"}, 3)
        assert (await pool.delete_async()).machines == [TWO, THREE]
        assert await pool.wait_async() is None
        assert await here.leaks() == {"leaks": [], "resources": {}}


async def test_start_lets_machines_in_quarantine_prove_themselves_again(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        mended = tmp_path / "mended"
        here.wants(workers=1, setup=f"test -e {mended}")
        pool = handle(here)
        await pool.wait_async()
        assert here.states() == {ONE: "quarantined"}
        mended.touch()
        await pool.wait_async()
        assert here.states() == {ONE: "quarantined"}, "nobody asked for it"
        pool.start()
        await pool.wait_async()
        assert (here.states(), here.creations()) == ({ONE: "ready"}, 1)
