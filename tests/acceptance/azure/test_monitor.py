"""Azure Monitor in front of the emulator: machines that tell nothing themselves are measured by their cloud."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.cloud import Cloud, cloud
from tests.support.web_site import Site, site

from evalfleet.azure import monitor
from evalfleet.core.hosts.load import Load, Sample
from evalfleet.emulator.faults import Fault
from evalfleet.pools.cloud.problems import Refusal

pytestmark = pytest.mark.anyio
ONE, TWO = "evalfleet-1", "evalfleet-2"


def asked(here: Cloud) -> list[dict[str, Any]]:
    return here.exchanges("POST", "metrics:getBatch")


async def test_the_libraries_models_read_what_the_emulator_answers() -> None:
    async with cloud() as here:
        vms = [await here.made(here.spec(name)) for name in (ONE, TWO)]
        await here.control("POST", f"vms/{ONE}/condition", {"cpu_percent": 60, "free_memory_gb": 8, "traffic_mb": 6})
        here.emulator.world.clock.advance(180)
        now = here.emulator.world.clock.now()
        found = await here.vms.loads(vms, now - 300, now)
        assert set(found) == {ONE, TWO}
        last = found[ONE][-1]
        bps = 100_000.0
        assert last.load == Load(
            cpu=0.6, memory=0.75, net_in_bps=bps, net_out_bps=bps, disk_read_bps=bps, disk_write_bps=bps
        )
        assert last.from_cloud
        assert {round(later.at - one.at) for one, later in zip(found[ONE], found[ONE][1:], strict=False)} == {60}
        [exchange] = asked(here)  # one request for both

        from azure.monitor.querymetrics.models import _models as models

        items: Any = models.MetricResultsResponse(exchange["answer"]).values_property
        assert [item.value[0].name.value for item in items] == ["Percentage CPU"] * 2
        assert items[0].value[0].timeseries[0].data[-1].average == 60


async def test_requests_are_few_however_many_machines_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "AT_A_TIME", 2)
    async with cloud() as here:
        vms = [await here.made(here.spec(f"evalfleet-{number}")) for number in range(1, 6)]
        now = here.emulator.world.clock.now()
        assert len(await here.vms.loads(vms, now - 300, now)) == 5
        assert [len(each["request"]["resourceids"]) for each in asked(here)] == [2, 2, 1]


async def test_a_refusal_is_judged_as_any_other_of_azure() -> None:
    async with cloud() as here:
        vm = await here.made(here.spec(ONE))
        await here.fault(op="monitor.metrics", preset="authorization_failed")
        with pytest.raises(Refusal, match="does not have authorization"):
            await here.vms.loads([vm], 0, 60)


async def settled(here: Site) -> None:
    here.wants(workers=2)
    await here.settle()


async def test_only_silent_machines_are_asked_for_and_shown_as_measured_by_the_cloud(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await settled(here)
        async with here.served():
            await here.looked()
            assert asked(here.cloud) == []  # a short life of a controller asks for nothing
            now = here.store.now()
            here.advance(200)
            own = Sample(at=here.store.now(), load=Load(cpu=0.9))
            here.store.loads.add({TWO: [own]})
            await here.until(lambda: bool(here.store.loads.of_host(ONE, now, here.store.now() + 1)))
            await here.looked()
            [exchange] = asked(here.cloud)
            assert [one.rpartition("/")[2] for one in exchange["request"]["resourceids"]] == [ONE]
            samples = here.store.loads.of_host(ONE, now - 300, here.store.now() + 1)
            assert all(one.from_cloud and one.load.cpu == pytest.approx(0.15) for one in samples)
            shown = here.store.loads.recent(here.store.now() - 10)
            assert [one.load.cpu for one in shown[TWO]] == [0.9]
            assert not shown[TWO][0].from_cloud


async def test_a_role_that_may_not_read_metrics_stops_nothing_and_is_asked_seldom(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await settled(here)
        fault = Fault(op="monitor.metrics", preset="authorization_failed")
        here.cloud.emulator.world.faults.add(fault)
        async with here.served():
            await here.looked()
            here.advance(61)
            await here.until(lambda: len(asked(here.cloud)) == 1)
            here.advance(301)
            await here.looked()
            assert len(asked(here.cloud)) == 1
            assert here.states() == {ONE: "ready", TWO: "ready"}
            here.advance(400)
            await here.until(lambda: len(asked(here.cloud)) == 2)
