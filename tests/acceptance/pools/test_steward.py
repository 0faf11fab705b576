"""Pools of VMs from zero to nothing, on the emulator, with the real SDKs and real SSH."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.web_site import NAME, site

from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import Scenario
from evalfleet.model import DesiredState

pytestmark = pytest.mark.anyio


async def test_from_zero_to_nothing(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=3)
        await here.settle()
        assert here.states() == {"evalfleet-1": "ready", "evalfleet-2": "ready", "evalfleet-3": "ready"}
        first = here.facts("evalfleet-1")
        assert first.host_key not in first.keys.values()  # the one that we made is not in use any more
        here.set_desired(DesiredState.STOPPED)
        await here.settle()
        assert set(here.states().values()) == {"stopped"}
        assert set((await here.powers()).values()) == {"released"}
        here.set_desired(DesiredState.RUNNING)
        await here.settle()
        assert set(here.states().values()) == {"ready"}
        here.store.pools.mark_for_deletion(NAME)
        await here.settle()
        assert here.store.pools.all() == []
        assert await here.cloud.vms.list() == []
        assert await here.leaks() == {"leaks": [], "resources": {}}
        assert here.creations() == 3


async def test_a_climb_whose_connection_breaks_goes_on_over_a_new_one(tmp_path: Path) -> None:
    """All checks share one connection: at each script in turn it is cut once."""
    cuts = [Fault(op="host.exec", match={"command": "exec sh -s"}, drop=True, times=1, skip=at) for at in range(3)]
    async with site(tmp_path, Scenario(fault=cuts)) as here:
        here.wants(workers=1, setup="true", deadline={"host_key": 20, "disk": 20, "setup": 20})
        await here.settle()
        assert here.states() == {"evalfleet-1": "ready"}
        assert len(here.cloud.exchanges("PUT", "virtualMachines/")) == 1
        assert len(here.cloud.events("fault.hit")) == 3
