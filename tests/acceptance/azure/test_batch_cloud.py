"""Batch as a cloud: what becomes of a pilot whose node does not come, fails, or is taken back; and what requests say."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.support.cloud import Cloud, cloud

from evalfleet.azure import clients
from evalfleet.azure.batch import requests, views
from evalfleet.azure.batch.cloud import BatchCloud
from evalfleet.azure.settings import AzureSettings
from evalfleet.core.hosts.lifecycle import Power, Stage
from evalfleet.emulator.batch.formula import evaluate
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import BatchAccount, Outage, Scenario
from evalfleet.layout import Home
from evalfleet.pools.cloud.problems import Action, Cause, Refusal
from evalfleet.pools.cloud.records import MachineSpec, Pilot, Progress, Verb

PATIENCE_S = 60
SIZE = "Standard_D2s_v3"


@asynccontextmanager
async def batch(folder: Path, scenario: Scenario | None = None) -> AsyncGenerator[tuple[Cloud, BatchCloud]]:
    async with cloud(scenario, speed=1000) as here:
        reach = replace(here.settings, batch_account="evalfleet")
        async with clients.opened(reach) as opened:
            yield here, BatchCloud(opened, Home(folder))


def pilot_spec(here: Cloud, name: str = "m-1", **changes: Any) -> MachineSpec:
    return here.spec(name, size=SIZE, pilot=Pilot(command="sleep 600", secrets={"TOKEN": "t"}), **changes)


async def created(found: BatchCloud, spec: MachineSpec) -> Progress:
    """Ask for a machine, and poll until that is over."""
    made = await found.create(spec, time.time() + 3600)
    assert made.continuation is not None
    with anyio.fail_after(PATIENCE_S):
        while True:
            progress = await found.poll(Verb.CREATE, spec.name, made.continuation, spec.offering)
            if progress.done:
                return progress
            await anyio.sleep(progress.look_again_s)


async def until_off(found: BatchCloud, name: str) -> views.JobView:
    with anyio.fail_after(PATIENCE_S):
        while True:
            view = await found.view(name)
            assert view is not None
            if view.power is Power.RELEASED:
                return view
            await anyio.sleep(0.02)


@pytest.mark.anyio
async def test_a_node_whose_start_task_fails_once_is_reimaged_and_serves(tmp_path: Path):
    fault = Fault(op="node.start_task", exit=1, stderr="apt: try again", times=1)
    async with batch(tmp_path, Scenario(fault=[fault])) as (here, found):
        progress = await created(found, pilot_spec(here))
        assert progress.problem is None
        assert here.events("node.reimaging")
        assert "start-task" in await found.logs("m-1")
        assert "Python 3" in await found.read_log("m-1", "start-task", 1000)


@pytest.mark.anyio
async def test_a_node_whose_start_task_fails_again_is_removed_and_its_words_are_the_reason(tmp_path: Path):
    fault = Fault(op="node.start_task", exit=7, stderr="warming up\nno such package", times=2)
    async with batch(tmp_path, Scenario(fault=[fault])) as (here, found):
        problem = (await created(found, pilot_spec(here))).problem
        assert problem is not None
        assert (problem.cause, problem.action) == (Cause.PROVISIONING, Action.NEXT_REGION)
        assert "failed: exit status 7; it says 'no such package'" in problem.message
        assert (await here.until("node.removed"))["subject"] in problem.message


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("scenario", "cause"),
    [
        (Scenario(batch=[BatchAccount(low_priority_cores=0)]), Cause.SPOT_QUOTA),
        (Scenario(fault=[Fault(op="batch.resize", preset="core_quota_reached")]), Cause.FAMILY_QUOTA),
        (Scenario(fault=[Fault(op="batch.resize", preset="allocation_failed")]), Cause.CAPACITY),
    ],
)
async def test_resize_errors_are_judged_as_those_of_vms(tmp_path: Path, scenario: Scenario, cause: Cause):
    async with batch(tmp_path, scenario) as (here, found):
        problem = (await created(found, pilot_spec(here, spot=True))).problem
        assert problem is not None
        assert problem.cause is cause
        assert "in eastus" in problem.message


@pytest.mark.anyio
async def test_a_pilot_that_was_taken_back_is_off_and_the_nodes_follow_the_jobs(tmp_path: Path):
    async with batch(tmp_path) as (here, found):
        spec = pilot_spec(here, spot=True)
        await created(found, spec)
        assert (await here.control("POST", "evictions", {"count": 1}))["evicted"]
        await here.until("node.preempted")
        view = await until_off(found, spec.name)
        assert (view.stage, view.spot) == (Stage.MADE, True)
        assert view.problem is not None
        assert view.problem.message == "its node was taken back by the cloud"
        continuation = await found.delete(spec.name)
        assert continuation is not None
        with anyio.fail_after(PATIENCE_S):
            while not (await found.poll(Verb.DELETE, spec.name, continuation)).done:  # noqa: ASYNC110 - Batch tells nobody
                await anyio.sleep(0.02)
        await here.until("node.removed")


@pytest.mark.anyio
async def test_an_outage_and_an_account_that_is_not_there_are_refusals(tmp_path: Path):
    async with batch(tmp_path, Scenario(outage=[Outage(service="batch")])) as (here, found):
        with pytest.raises(Refusal) as caught:
            await found.list()
        assert (caught.value.problem.cause, caught.value.problem.action) == (Cause.SERVER, Action.WAIT)
        async with clients.opened(replace(here.settings, batch_account="other")) as opened:
            with pytest.raises(Refusal, match="az batch account create -n other"):
                await BatchCloud(opened, Home(tmp_path)).list()
        with pytest.raises(Refusal, match="is in eastus, not in westus2: use --regions eastus"):
            await found.prepare_region("p1", "westus2", "me")


def test_a_formula_holds_nodes_until_the_hour_after_the_last_deadline():
    text = requests.formula(3, 7000.0, spot=True)
    assert evaluate(text, 7100.0)["$TargetLowPriorityNodes"] == 3
    assert evaluate(text, 7201.0)["$TargetLowPriorityNodes"] == 0
    assert evaluate(text, 7100.0)["$NodeDeallocationOption"] == "taskcompletion"
    assert evaluate(requests.formula(2, 7000.0, spot=False), 0.0)["$TargetDedicatedNodes"] == 2


def test_homes_sizes_and_kinds_have_batch_pools_of_their_own():
    names = {
        requests.pool_id(pool, owner, size, spot=spot)
        for pool in ("p", "a_very.long name" * 6)
        for owner in ("me", "you")
        for size in (SIZE, "Standard_D4s_v3")
        for spot in (True, False)
    }
    assert len(names) == 16
    assert all(len(name) <= 64 for name in names)
    assert requests.pool_id("p", "me", SIZE, spot=True) == requests.pool_id("p", "me", SIZE.upper(), spot=True)


def test_a_pool_with_a_container_has_an_image_with_docker_and_private_nodes_where_that_is_asked_for():
    spec = MachineSpec(
        name="m-1", worker="m-1.x", pool="p", owner="me", expires_at=0.0, size=SIZE, region="eastus", login_key="",
        host_key=None, images=("acr.io/waa:1",),  # pyright: ignore[reportArgumentType] - nothing reads it here
    )  # fmt: skip
    reach = AzureSettings(subscription="s", public_ip=False, subnets={"eastus": "/subnets/a"})
    body = requests.pool_body(spec, reach)
    machine = body["virtualMachineConfiguration"]
    assert machine["containerConfiguration"] == {"type": "dockerCompatible", "containerImageNames": ["acr.io/waa:1"]}
    assert "securityProfile" not in machine  # which is Standard
    assert "docker pull acr.io/waa:1" in body["startTask"]["commandLine"]
    assert body["networkConfiguration"]["publicIPAddressConfiguration"] == {"provision": "nopublicipaddresses"}
    assert (
        "containerConfiguration"
        not in requests.pool_body(replace(spec, images=()), reach)["virtualMachineConfiguration"]
    )


@pytest.mark.parametrize(
    ("job", "task", "stage", "power", "said"),
    [
        ({"state": "deleting"}, None, Stage.DELETING, None, None),
        ({"state": "active"}, None, Stage.FAILED, None, "its job has no pilot"),
        ({"state": "active"}, {"state": "active"}, Stage.CREATING, None, None),
        ({"state": "active"}, {"state": "running"}, Stage.MADE, Power.RUNNING, None),
        ({"state": "active"}, {"state": "completed", "executionInfo": {"exitCode": 4}}, Stage.MADE, Power.RELEASED,
         "its pilot ended with exit status 4: its runner did not start"),
        ({"state": "completed", "executionInfo": {"terminateReason": "MaxWallClockTimeExpiry"}}, {"state": "completed"},
         Stage.MADE, Power.RELEASED, "it ended at its deadline"),
        ({"state": "active"}, {"state": "running", "executionInfo": {"requeueCount": 1}}, Stage.MADE, Power.RELEASED,
         "its node was taken back by the cloud"),
    ],
)  # fmt: skip
def test_what_a_job_and_its_pilot_say(job: Any, task: Any, stage: Stage, power: Power | None, said: str | None):
    plain = {"id": "m-1", "poolInfo": {"poolId": "b"}, "creationTime": "2026-01-01T00:00:00Z", "metadata": []}
    view = views.job_view({**plain, **job}, task)
    assert (view.stage, view.power) == (stage, power)
    assert (view.problem.message if view.problem else None) == said
