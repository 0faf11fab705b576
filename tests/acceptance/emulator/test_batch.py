"""The emulator's Azure Batch with Azure's real client: pools, nodes that are processes, tasks, and all that goes wrong there."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.batch.models import (
    BatchJobCreateOptions,
    BatchJobUpdateOptions,
    BatchNodeRemoveOptions,
    BatchPoolEnableAutoScaleOptions,
    BatchPoolResizeOptions,
)
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.mgmt.batch import models
from tests.support.azure_bodies import by_model
from tests.support.batch import SIZE, Account, account

from evalfleet.azure.batch.client import ACCOUNT_API
from evalfleet.azure.settings import EMULATOR_SUBSCRIPTION
from evalfleet.emulator.batch.formula import FormulaError, evaluate
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.machines import processes
from evalfleet.emulator.scenario import BatchAccount, Eviction, Outage, Scenario, Times

pytestmark = pytest.mark.anyio
START = {
    "commandLine": "/bin/sh -c 'echo ready > $AZ_BATCH_NODE_SHARED_DIR/mark; echo started'",
    "waitForSuccess": True,
}
SLEEPS = "/bin/sh -c 'echo $AZ_BATCH_NODE_ID; exec sleep 300'"


def belonging(here: Account) -> set[int]:
    return processes.belonging(here.emulator.world.folder)


async def test_a_task_runs_on_a_node_that_its_start_task_prepared():
    async with account() as here:
        await here.add_pool(targetDedicatedNodes=1, startTask=START)
        await here.add_task("j1", "/bin/sh -c 'cat $AZ_BATCH_NODE_SHARED_DIR/mark; echo $NAME'", **settings(NAME="me"))
        task = await here.until_task("j1", "completed")
        assert (task.execution_info.exit_code, task.execution_info.result) == (0, "success")
        assert await here.text("j1", "stdout.txt") == "ready\nme\n"
        [node] = await here.nodes()
        assert (node.state, node.is_dedicated, node.start_task_info.result) == ("idle", True, "success")
        names = [file.name async for file in here.client.list_node_files("p1", node.id, recursive=True)]
        assert {"startup/stdout.txt", "workitems/j1/job-1/t/stdout.txt"} <= set(names)
        with pytest.raises(ResourceExistsError):
            await here.add_task("j1", "true")
        with pytest.raises(ResourceNotFoundError):
            await here.client.get_pool("p2")


async def test_an_account_is_shown_as_the_librarys_model_knows_it():
    group = f"/subscriptions/{EMULATOR_SUBSCRIPTION}/resourcegroups/evalfleet"
    sent = {"location": "eastus", "properties": {"poolAllocationMode": "BatchService"}}
    assert list(by_model(sent, models.BatchAccountCreateParameters)) == []
    async with account() as here:
        url, version = f"{here.emulator.url}{group}", f"api-version={ACCOUNT_API}"
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer any"}) as session:
            async with session.put(f"{url}?{version}", json={"location": "eastus"}, raise_for_status=True):
                pass
            url += "/providers/Microsoft.Batch/batchAccounts"
            async with session.put(f"{url}/another?{version}", json=sent, raise_for_status=True) as answer:
                made: Any = await answer.json()
            async with session.get(f"{url}?{version}", raise_for_status=True) as answer:
                listed: Any = (await answer.json())["value"]
    assert {each["name"] for each in listed} == {"evalfleet", "another"}
    for body in (made, *listed):
        assert list(by_model(body, models.BatchAccount)) == []
        assert models.BatchAccount(body)["properties"]["poolAllocationMode"] == "BatchService"
    wrong = {**made, "properties": {**made["properties"], "poolQuota": "many", "nodes": 1}}
    assert len(list(by_model(wrong, models.BatchAccount))) == 2


def settings(**values: str) -> dict[str, Any]:
    return {"environmentSettings": [{"name": name, "value": value} for name, value in values.items()]}


async def test_a_pool_grows_and_shrinks_and_what_runs_may_finish_first():
    async with account() as here:
        await here.add_pool(targetLowPriorityNodes=2)
        await here.until_states("idle", "idle")
        await here.add_task("j1", SLEEPS)
        task = await here.until_task("j1", "running")
        resize = BatchPoolResizeOptions({"targetLowPriorityNodes": 0, "nodeDeallocationOption": "taskcompletion"})
        await here.client.begin_resize_pool("p1", resize)
        await here.until_states("running")
        await here.client.terminate_task("j1", "t")
        await here.until_states()
        assert (await here.client.get_pool("p1")).allocation_state == "steady"
        assert task.node_info.node_id
        assert not belonging(here)


async def test_a_formula_sets_the_number_of_nodes_until_its_moment_and_again_after_30_seconds_only():
    # So slow that half a minute of the cloud is longer than a request on a busy machine.
    async with account(Scenario(times=Times(create=1, start=1, network=1, delete=1)), speed=60) as here:
        await here.add_pool()
        await here.client.enable_pool_auto_scale("p1", formula(2, at=time.time() + 3600))
        await here.until_states("idle", "idle")
        here.emulator.world.clock.advance(60)
        await here.client.enable_pool_auto_scale("p1", formula(2, at=time.time() + 3600))
        with pytest.raises(HttpResponseError) as caught:
            await here.client.enable_pool_auto_scale("p1", formula(1, at=time.time() + 3600))
        assert "AutoScaleTooManyRequestsToEnable" in str(caught.value.error)
        here.emulator.world.clock.advance(3700)
        await here.until_states()


def formula(nodes: int, at: float) -> BatchPoolEnableAutoScaleOptions:
    moment = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = f'$TargetDedicatedNodes = time() < time("{moment}") ? {nodes} : 0; $NodeDeallocationOption = taskcompletion;'
    return BatchPoolEnableAutoScaleOptions({"autoScaleFormula": text, "autoScaleEvaluationInterval": "PT5M"})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$A = 1 + 2 - 1;", {"$A": 2.0}),
        ("n = 3; $A = max(1, min(n, 5));", {"$A": 3.0}),
        ('$A = time() >= time("1970-01-01T00:01:00Z") ? 1 : 2;', {"$A": 1.0}),
        ('$A = (time() < time("1970-01-01T00:01:00")) ? 1 : 2; $B = requeue;', {"$A": 2.0, "$B": "requeue"}),
        ("$A = ;", None),
        ("$A = 1", None),
        ("$A = $PendingTasks.GetSample(1);", None),
        ('$A = time("soon");', None),
    ],
)
def test_formulas(text: str, found: dict[str, Any] | None):
    if found is None:
        with pytest.raises(FormulaError):
            evaluate(text, 60.0)
    else:
        assert evaluate(text, 60.0) == found


async def test_a_node_that_is_taken_back_returns_empty_and_its_task_starts_again():
    async with account(speed=500) as here:
        await here.add_pool(targetLowPriorityNodes=1, startTask=START)
        await here.add_task("j1", "/bin/sh -c 'test -e mark; echo $?; touch mark; exec sleep 300'")
        first = await here.until_task("j1", "running")
        assert here.emulator.world.journal.events(kind="task.running")
        await evict(here)
        again = await here.until(
            lambda: here.client.get_task("j1", "t"),
            lambda task: task.state == "running" and task.execution_info.requeue_count == 1,
        )
        assert again.node_info.node_id == first.node_info.node_id
        kinds = ("node.preempted", "node.creating", "node.starting", "node.waitingforstarttask", "node.idle")
        assert here.events(*kinds) == [*kinds[1:], *kinds]
        await here.until(
            lambda: here.text("j1", "stdout.txt"), lambda text: text == "1\n"
        )  # nothing was left of the first


async def evict(here: Account, **more: Any) -> None:
    import aiohttp

    url = f"{here.emulator.url}/emulator/evictions"
    async with aiohttp.ClientSession() as http, http.post(url, json=more) as answer:
        assert (await answer.json())["evicted"]


async def test_a_start_task_that_fails_and_a_reimage_that_cures_it():
    fault = Fault(op="node.start_task", exit=7, stderr="no such package", times=1)
    async with account(Scenario(fault=[fault])) as here:
        await here.add_pool(targetDedicatedNodes=1, startTask=START)
        await here.until_states("starttaskfailed")
        [node] = await here.nodes()
        info = node.start_task_info
        assert (info.exit_code, info.result, info.failure_info.code) == (7, "failure", "FailureExitCode")
        parts = await here.client.download_node_file("p1", node.id, "startup/stderr.txt")
        assert b"".join([part async for part in parts]) == b"no such package"
        await here.client.begin_reimage_node("p1", node.id, {"nodeReimageOption": "terminate"})
        await here.until_states("idle")


@pytest.mark.parametrize(
    ("scenario", "code"),
    [
        (Scenario(batch=[BatchAccount(dedicated_cores=2)]), "AccountCoreQuotaReached"),
        (Scenario(fault=[Fault(op="batch.resize", preset="allocation_failed")]), "AllocationFailed"),
    ],
)
async def test_a_resize_that_fails_says_so_in_the_pool_and_not_in_an_answer(scenario: Scenario, code: str):
    async with account(scenario) as here:
        await here.add_pool(targetDedicatedNodes=3)
        pool = await here.until(lambda: here.client.get_pool("p1"), lambda pool: pool.allocation_state == "steady")
        assert [error.code for error in pool.resize_errors] == [code]
        assert pool.current_dedicated_nodes == (1 if code == "AccountCoreQuotaReached" else 0)


async def test_a_resize_that_is_stuck_and_nodes_that_never_come():
    stuck = Fault(op="batch.resize", preset="hangs", times=1)
    async with account(Scenario(fault=[stuck, Fault(op="node.boot", exit=1, stderr="no agent")])) as here:
        await here.add_pool(targetDedicatedNodes=1)
        assert (await here.client.get_pool("p1")).allocation_state == "resizing"
        with pytest.raises(HttpResponseError):
            await here.client._resize_pool_internal("p1", BatchPoolResizeOptions({"targetDedicatedNodes": 2}))
        await here.client.begin_stop_pool_resize("p1")
        pool = await here.client.get_pool("p1")
        assert (pool.allocation_state, pool.resize_errors[0].code) == ("steady", "ResizeStopped")
        await here.client.begin_resize_pool("p1", BatchPoolResizeOptions({"targetDedicatedNodes": 1}))
        await here.until_states("unusable")
        [node] = await here.nodes()
        assert node.errors[0].message == "no agent"
        await here.client.begin_remove_nodes("p1", BatchNodeRemoveOptions({"nodeList": [node.id]}))
        await here.until_states()


async def test_the_time_of_a_job_ends_its_task_and_can_be_moved():
    async with account() as here:
        await here.add_pool(targetDedicatedNodes=1)
        limits = {"constraints": {"maxWallClockTime": "PT1H"}}
        job = {"id": "j1", "poolInfo": {"poolId": "p1"}, "metadata": [{"name": "a", "value": "b"}], **limits}
        await here.client.create_job(BatchJobCreateOptions(job))
        await here.client.create_task("j1", {"id": "t", "commandLine": SLEEPS})
        await here.until_task("j1", "running")
        await here.client.update_job("j1", BatchJobUpdateOptions({"constraints": {"maxWallClockTime": "PT3H"}}))
        here.emulator.world.clock.advance(2 * 3600)
        assert (await here.client.get_job("j1")).state == "active"
        here.emulator.world.clock.advance(2 * 3600)
        ended = await here.until(lambda: here.client.get_job("j1"), lambda job: job.state == "completed")
        assert ended.execution_info.termination_reason == "MaxWallClockTimeExpiry"
        assert [item.value for item in ended.metadata] == ["b"]
        assert (await here.client.get_task("j1", "t")).state == "completed"
        assert not belonging(here)


async def test_a_task_has_files_brought_and_a_limit_of_its_own(tmp_path: Path):
    (tmp_path / "tool").write_text("echo tool")
    file = {"httpUrl": (tmp_path / "tool").as_uri(), "filePath": "bin/tool", "fileMode": "0755"}
    async with account() as here:
        await here.add_pool(targetDedicatedNodes=1)
        await here.add_task("j1", "/bin/sh bin/tool", resourceFiles=[file])
        await here.until_task("j1", "completed")
        assert await here.text("j1", "stdout.txt") == "tool\n"
        await here.add_task("j2", "/bin/no-such-program")
        assert (await here.until_task("j2", "completed")).execution_info.failure_info.code == "CommandProgramNotFound"
        await here.add_task("j3", SLEEPS, constraints={"maxWallClockTime": "PT0.3S"})
        assert (await here.until_task("j3", "completed")).execution_info.failure_info.code == "MaxWallClockTimeExpired"
        await here.add_task("j4", "/bin/true", resourceFiles=[{**file, "httpUrl": "file:///no/such/file"}])
        assert (await here.until_task("j4", "completed")).execution_info.result == "failure"


async def test_what_is_deleted_leaves_no_process():
    async with account() as here:
        await here.add_pool(targetDedicatedNodes=1)
        await here.add_task("j1", SLEEPS)
        await here.until_task("j1", "running")
        await here.client.begin_delete_job("j1")
        await here.client.begin_delete_pool("p1")
        await here.until(lambda: listed(here), lambda left: left == [])
        assert not belonging(here)


async def listed(here: Account) -> list[str]:
    pools = [pool.id async for pool in here.client.list_pools()]
    return pools + [job.id async for job in here.client.list_jobs()]


async def test_an_outage_refuses_every_call_for_its_time():
    async with account(Scenario(outage=[Outage(service="batch", after=0, lasts=1e6)])) as here:
        with pytest.raises(HttpResponseError) as caught:
            await listed(here)
        assert caught.value.status_code == 503
        assert "ServerBusy" in str(caught.value.error)
        here.emulator.world.clock.advance(1e6)
        assert await listed(here) == []


async def test_fewer_requests_are_asked_for_and_lists_have_pages():
    throttled = Fault(op="batch.pool.list", preset="throttled", times=1, retry_after=0.01)
    async with account(Scenario(fault=[throttled], page=1), retries=2) as here:
        await here.add_pool("p1")
        await here.add_pool("p2")
        assert await listed(here) == ["p1", "p2"]
        assert [each["status"] for each in exchanges(here, "GET", "/pools")] == [429, 200, 200]


def exchanges(here: Account, method: str, end: str) -> list[dict[str, Any]]:
    found = here.emulator.world.journal.exchanges()
    return [each for each in found if each["method"] == method and each["path"].endswith(end)]


async def test_a_scenario_takes_low_priority_nodes_back_and_the_bill_counts_nodes():
    times = Times(create=1, start=1, preempted=1)
    gone = Eviction(after=0, every=200, share=1.0)
    async with account(Scenario(times=times, eviction=[gone])) as here:
        await here.add_pool(targetLowPriorityNodes=2, targetDedicatedNodes=1)
        await here.until(lambda: count(here, "node.preempted"), lambda found: found >= 2)
        bill = here.emulator.world.bill.as_json()
        assert {line["size"] for line in bill["lines"]} == {SIZE}
        assert {line["spot"] for line in bill["lines"]} == {True, False}


async def count(here: Account, kind: str) -> int:
    return len(here.events(kind))
