"""What every cloud must do for pools. A cloud's tests subclass `CloudContract` and give the fixtures `cloud` and `offering`.

Machines are really created: run it where that costs nothing, or little. Tests are async and run with anyio's plugin.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from evalfleet.core.hosts.lifecycle import Power, Stage
from evalfleet.pools.cloud.problems import Refusal
from evalfleet.pools.cloud.protocol import Cloud
from evalfleet.pools.cloud.records import (
    LABEL_EXPIRES,
    LABEL_POOL,
    LABEL_WORKER,
    MachineSpec,
    MachineView,
    Offering,
    Pilot,
    Verb,
    expires_of,
)
from evalfleet.pools.machine.keys import fresh_host_key

PATIENCE_S = 120.0
HOUR_S = 3600.0


@pytest.mark.anyio
class CloudContract:
    """The promises of `pools.cloud.protocol`, one test each."""

    deadline_s: float | None = None  # the nearest deadline that a test can wait for; None: not tested
    keeps_stopped = True  # False: a machine that is stopped is gone
    moves_deadlines = True  # False: a deadline is fixed with the request for the machine
    pilot: Pilot | None = None  # of machines that cannot be called: what runs there, until it is ended

    def spec(self, offering: Offering, name: str = "contract-1", pool: str = "contract") -> MachineSpec:
        key = fresh_host_key()
        return MachineSpec(
            name=name,
            worker=f"{name}.mark",
            pool=pool,
            owner="contract",
            expires_at=time.time() + HOUR_S,
            size=offering.size,
            region=offering.region,
            spot=offering.spot,
            login_key=key.public,
            host_key=key,
            pilot=self.pilot,
        )

    async def created(self, cloud: Cloud, spec: MachineSpec, stops_at: float | None = None) -> MachineView:
        await cloud.prepare_region(spec.pool, spec.region, spec.owner)
        made = await cloud.create(spec, stops_at or time.time() + HOUR_S)
        assert made.continuation is not None
        assert made.deadline_problem is None
        await self.finished(cloud, Verb.CREATE, spec.name, made.continuation)
        return await self.until(cloud, spec.name, Power.RUNNING)

    async def finished(self, cloud: Cloud, verb: Verb, name: str, continuation: str | None) -> None:
        with anyio.fail_after(PATIENCE_S):
            while continuation is not None:
                progress = await cloud.poll(verb, name, continuation)
                assert progress.problem is None, progress.problem
                if progress.done:
                    return
                await anyio.sleep(max(0.01, progress.look_again_s))

    async def until(self, cloud: Cloud, name: str, power: Power) -> MachineView:
        with anyio.fail_after(PATIENCE_S):
            while True:
                view = await cloud.view(name)
                assert view is not None
                if view.power is power:
                    return view
                await anyio.sleep(cloud.poll_s)

    @asynccontextmanager
    async def machine(self, cloud: Cloud, spec: MachineSpec) -> AsyncGenerator[MachineView]:
        """A machine that is deleted afterwards, with all its resources."""
        try:
            yield await self.created(cloud, spec)
        finally:
            await self.deleted(cloud, spec)

    async def deleted(self, cloud: Cloud, spec: MachineSpec) -> None:
        await self.finished(cloud, Verb.DELETE, spec.name, await cloud.delete(spec.name))
        await cloud.drop_deadline(spec.name)
        await cloud.clean_region(spec.pool, spec.region)

    async def test_a_machine_is_created_with_its_labels_and_its_deadline(
        self, cloud: Cloud, offering: Offering
    ) -> None:
        spec, stops_at = self.spec(offering), time.time() + HOUR_S
        try:
            view = await self.created(cloud, spec, stops_at)
            assert (view.name, view.region, view.size, view.spot) == (spec.name, spec.region, spec.size, spec.spot)
            assert view.stage is Stage.MADE
            assert view.labels[LABEL_POOL] == "contract"
            assert view.labels[LABEL_WORKER] == spec.worker
            assert await cloud.has_deadline(spec.name, stops_at)
        finally:
            await self.deleted(cloud, spec)

    async def test_it_answers_where_its_endpoint_says(self, cloud: Cloud, offering: Offering) -> None:
        if self.pilot is not None:
            pytest.skip("its machines cannot be called")
        spec = self.spec(offering)
        async with self.machine(cloud, spec):
            with anyio.fail_after(PATIENCE_S):
                endpoint = await cloud.endpoint(spec.name)
                assert endpoint is not None
                async with await anyio.connect_tcp(endpoint.address, endpoint.port) as stream:
                    assert (await stream.receive(8)).startswith(b"SSH-")
            assert isinstance(await cloud.log(spec.name), str)

    async def test_creating_again_changes_nothing(self, cloud: Cloud, offering: Offering) -> None:
        """A machine of that name may belong to another home: neither it nor its deadline is changed."""
        spec, first = self.spec(offering), time.time() + HOUR_S
        try:
            await self.created(cloud, spec, first)
            other = self.spec(offering, pool="other")
            assert (await cloud.create(other, first + HOUR_S)).continuation is None
            view = await cloud.view(spec.name)
            assert view is not None
            assert view.labels[LABEL_POOL] == "contract"
            assert await cloud.has_deadline(spec.name, first)
        finally:
            await self.deleted(cloud, spec)

    async def test_a_pool_lists_its_own(self, cloud: Cloud, offering: Offering) -> None:
        spec = self.spec(offering)
        async with self.machine(cloud, spec):
            assert [view.name for view in await cloud.list("contract")] == [spec.name]
            assert spec.name in {view.name for view in await cloud.list()}
            assert list(await cloud.list("other")) == []
            owned = await cloud.resources("contract")
            assert spec.name in {one.machine for one in owned}
            assert all(one.labels[LABEL_POOL] == "contract" for one in owned)

    async def test_it_stops_and_starts(self, cloud: Cloud, offering: Offering) -> None:
        if not self.keeps_stopped:
            pytest.skip("its machines are deleted, not stopped")
        spec = self.spec(offering)
        async with self.machine(cloud, spec):
            await self.finished(cloud, Verb.STOP, spec.name, await cloud.stop(spec.name))
            await self.until(cloud, spec.name, Power.RELEASED)
            await self.finished(cloud, Verb.START, spec.name, await cloud.start(spec.name))
            await self.until(cloud, spec.name, Power.RUNNING)

    async def test_what_is_deleted_is_gone_and_leaves_nothing(self, cloud: Cloud, offering: Offering) -> None:
        spec = self.spec(offering)
        await self.created(cloud, spec)
        await self.finished(cloud, Verb.DELETE, spec.name, await cloud.delete(spec.name))
        assert await cloud.view(spec.name) is None
        assert list(await cloud.list("contract")) == []
        await cloud.drop_deadline(spec.name)
        await cloud.clean_region(spec.pool, spec.region)
        assert list(await cloud.resources("contract")) == []
        assert await cloud.delete(spec.name) is None
        await cloud.drop_deadline(spec.name)

    async def test_a_deadline_moves(self, cloud: Cloud, offering: Offering) -> None:
        spec, later = self.spec(offering), time.time() + 3 * HOUR_S
        async with self.machine(cloud, spec) as view:
            if not self.moves_deadlines:
                with pytest.raises(Refusal):
                    await cloud.set_deadline(spec.name, spec.region, view.labels, later)
                assert not await cloud.has_deadline(spec.name, later)
                return
            await cloud.set_deadline(spec.name, spec.region, view.labels, later)
            assert await cloud.has_deadline(spec.name, later)
            assert not await cloud.has_deadline(spec.name, later - HOUR_S)

    async def test_a_deadline_stops_a_machine_without_us(self, cloud: Cloud, offering: Offering) -> None:
        if self.deadline_s is None:
            pytest.skip("its deadlines are too far to wait for")
        spec = self.spec(offering)
        async with self.machine(cloud, spec) as view:
            await cloud.set_deadline(spec.name, spec.region, view.labels, time.time() + self.deadline_s)
            await self.until(cloud, spec.name, Power.RELEASED)

    async def test_the_moment_for_reapers_moves(self, cloud: Cloud, offering: Offering) -> None:
        spec = self.spec(offering)
        async with self.machine(cloud, spec) as view:
            await cloud.extend(view, 2_000_000_000)
            moved = await cloud.view(spec.name)
            assert moved is not None
            assert expires_of(moved.labels) == 2_000_000_000
            assert {**moved.labels, LABEL_EXPIRES: ""} == {**view.labels, LABEL_EXPIRES: ""}

    async def test_what_is_not_there_is_none(self, cloud: Cloud) -> None:
        assert await cloud.view("contract-9") is None
        assert await cloud.endpoint("contract-9") is None
        assert await cloud.delete("contract-9") is None
        assert not await cloud.has_deadline("contract-9", time.time())
        await cloud.drop_deadline("contract-9")
        with pytest.raises(Refusal):
            await cloud.start("contract-9")

    async def test_it_knows_what_it_costs(self, cloud: Cloud, offering: Offering) -> None:
        price = cloud.price(offering, 64)
        assert price.usd_per_hour is None or price.usd_per_hour >= 0
        assert price.kept_usd_per_hour >= 0
        counted = await cloud.quota(offering)
        assert counted is None or 0 <= counted.used <= max(counted.used, counted.limit)
