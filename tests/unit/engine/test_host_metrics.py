"""What hosts say of their load is written down, each answer once, for all hosts together."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from pathlib import Path

import anyio
from msgspec.structs import replace
from tests.support.store import cases

from evalfleet.core.hosts.load import Load
from evalfleet.engine.hosts.metrics import HostMetrics
from evalfleet.hosts.base import HostInfo
from evalfleet.store.open import open_store
from evalfleet.store.thread import StoreThread
from evalfleet.testing.clock import FakeClock


async def test_each_answer_is_a_sample(home: Path):
    clock = FakeClock()
    with closing(open_store(home, clock)) as store:
        infos = {
            name: HostInfo(name=name, memory_mb=None, gpus=0, price_usd_per_hour=0.0) for name in ("a", "b", "mute")
        }
        run = cases.drive(store)
        asked = 0

        def hosts() -> list[HostInfo]:
            nonlocal asked
            asked += 1
            if asked % 2 == 0:  # every second look there is a new answer, with the same figures
                clock.advance(5)
                for name in ("a", "b"):
                    infos[name] = replace(infos[name], load=Load(cpu=0.25))
            return list(infos.values())

        writes: list[int] = []
        keep = store.loads.add
        store.loads.add = lambda samples: (writes.append(len(samples)), keep(samples))[1]  # type: ignore[method-assign]
        async with anyio.create_task_group() as group:
            group.start_soon(HostMetrics(store, StoreThread(), run, hosts, 0.002).serve)
            with anyio.fail_after(20):
                while len(store.loads.of_host("a", 0, clock())) < 6:  # noqa: ASYNC110 - the store wakes nobody
                    await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        found = store.loads.of_host("a", 0, clock())
        assert {round(b.at - a.at) for a, b in pairwise(found)} == {5}
        assert store.loads.of_host("mute", 0, clock()) == []
        assert set(writes) == {2}, "both hosts in one transaction"
        assert len(writes) <= len(found), "not one for each answer"
