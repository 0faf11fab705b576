"""Azure Machine Learning in the emulator: clusters, compute instances, jobs that really run, and what goes wrong with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from azure.core.exceptions import HttpResponseError
from tests.support.ml import workspace

from evalfleet.azure.ml import requests
from evalfleet.azure.ml.requests import API
from evalfleet.emulator.scenario import Scenario

pytestmark = pytest.mark.anyio
FAMILY = "Standard DDSv5 Family Cluster Dedicated vCPUs"


async def test_a_job_brings_its_node_and_an_idle_node_goes():
    async with workspace(speed=300) as here:
        await here.cluster()
        assert await here.nodes() == []
        await here.submit("j1", 'echo "hello $WORD"; sleep 0.5', variables={"WORD": "there"})
        await here.until("j1", "Running")
        assert [(node["nodeState"], node["runId"]) for node in await here.nodes()] == [("running", "j1")]
        assert await here.ended("j1") == "Completed"
        logs = await here.logs("j1")
        assert logs["user_logs/std_log.txt"] == "hello there\n"
        assert f"pulled {requests.environment_body('python:3.11', {})['properties']['image']}" in str(logs)
        await here.wait(_not(here.nodes))
        assert (await here.compute())["currentNodeCount"] == 0


async def test_a_command_that_fails_and_one_that_is_cancelled():
    async with workspace() as here:
        await here.cluster(most=3)
        await here.submit("bad", "echo why >&2; exit 3")
        await here.submit("long", "sleep 600 & sleep 600")
        assert await here.ended("bad") == "Failed"
        assert (await here.logs("bad"))["user_logs/std_log.txt"] == "why\n"
        await here.until("long", "Running")
        await here.cancel("long")
        assert await here.ended("long") == "Canceled"
        left = await here.here.control("GET", "leaks")
        assert left["leaks"] == [], "processes of the job are gone, also those in the background"


async def test_more_jobs_than_nodes_wait_for_their_turn():
    async with workspace() as here:
        await here.cluster(most=1)
        for number in range(3):
            await here.submit(f"j{number}", "sleep 0.1")
        assert [await here.ended(f"j{number}") for number in range(3)] == ["Completed"] * 3
        running = [one for one in (await here.here.control("GET", "events"))["events"] if one["type"] == "node.running"]
        assert len(running) == 1


async def test_a_job_ends_at_its_limit_without_us():
    async with workspace() as here:
        await here.cluster()
        await here.submit("j1", "sleep 600", timeout_s=7200.0)
        await here.until("j1", "Running")
        await here.here.control("POST", "clock", {"seconds": 7300})
        assert await here.ended("j1") == "Canceled"
        assert "exceeded its timeout" in str(await here.logs("j1"))


async def test_a_preempted_node_sends_its_job_back_to_the_queue():
    async with workspace() as here:
        await here.cluster(spot=True)
        await here.submit("j1", "sleep 600")
        await here.until("j1", "Running")
        (first,) = await here.nodes()
        assert (await here.here.control("POST", "evictions", {"count": 1}))["evicted"] == [first["nodeId"]]

        async def is_another() -> bool:
            return [first["nodeId"]] != [node["nodeId"] for node in await here.nodes()] != []

        await here.wait(is_another)
        await here.until("j1", "Running")
        await here.cancel("j1")
        await here.ended("j1")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"match": {"command": "pull *"}, "preset": "pull_denied"}, "pull access denied for python:3.11"),
        (
            {"match": {"command": "run *"}, "exit": 125, "stderr": "OCI runtime create failed"},
            "OCI runtime create failed",
        ),
    ],
)
async def test_a_container_that_cannot_start_fails_its_job(fault: dict[str, Any], said: str):
    async with workspace() as here:
        await here.here.fault(op="host.docker", **fault)
        await here.cluster()
        await here.submit("j1", "true")
        assert await here.ended("j1") == "Failed"
        assert said in str(await here.logs("j1"))


async def test_container_arguments_are_honoured():
    async with workspace() as here:
        await here.here.fault(op="host.boot", preset="no_kvm", times=1)
        await here.cluster(most=1)
        await here.submit("j1", "true", docker_args="--device=/dev/kvm")
        assert await here.ended("j1") == "Failed"
        assert "/dev/kvm" in str(await here.logs("j1"))
        await here.submit("j2", 'echo "$A-$B"', docker_args="--cap-add NET_ADMIN -e A=1 --env B=2")
        assert await here.ended("j2") == "Completed"
        assert (await here.logs("j2"))["user_logs/std_log.txt"] == "1-2\n"


async def test_a_private_image_needs_an_identity():
    async with workspace() as here:
        await here.cluster()
        await here.arm.put(
            f"{here.path}/computes/bare",
            API,
            {
                k: v
                for k, v in requests.cluster_body(
                    region="eastus", size="Standard_D4ds_v5", spot=False, most=1, labels={}
                ).items()
                if k != "identity"
            },
        )
        await here.submit("j1", "true", image="mine.azurecr.io/waa:1", compute="bare")
        await here.submit("j2", "true", image="mine.azurecr.io/waa:1")
        assert [await here.ended("j1"), await here.ended("j2")] == ["Failed", "Completed"]
        assert "unauthorized" in str(await here.logs("j1"))


async def test_a_job_can_be_running_and_silent():
    """Both ways: its container never starts; or all that runs on the nodes stops."""
    async with workspace() as here:
        await here.here.fault(op="host.docker", match={"command": "run *"}, hang=True, times=1)
        await here.cluster()
        await here.submit("stuck", "echo never")
        await here.submit("frozen", "while :; do echo x; sleep 0.02; done")
        await here.until("stuck", "Running")

        async def speaks() -> bool:
            return "x" in (await here.logs("frozen")).get("user_logs/std_log.txt", "")

        async def says_more() -> bool:
            return await here.logs("frozen") != before

        await here.wait(speaks)
        await here.here.control("POST", "ml/silence", {"silent": True})
        before = await here.logs("frozen")
        await anyio.sleep(0.3)
        assert await here.logs("frozen") == before
        assert [(await here.job(name))["status"] for name in ("stuck", "frozen")] == ["Running"] * 2
        await here.here.control("POST", "ml/silence", {"silent": False})
        await here.wait(says_more)
        for name in ("stuck", "frozen"):
            await here.cancel(name)
            assert await here.ended(name) == "Canceled"


async def test_a_cluster_can_be_stuck_in_resizing():
    async with workspace() as here:
        await here.here.fault(op="ml.resize", hang=True)
        await here.cluster()
        await here.submit("j1", "true")

        async def resizes() -> bool:
            return (await here.compute())["allocationState"] == "Resizing"

        await here.wait(resizes)
        assert (await here.job("j1"))["status"] == "Queued"
        await here.drop()
        assert await here.arm.get(f"{here.path}/computes/c1", API) is None


async def test_without_quota_the_cluster_says_so_and_the_job_waits():
    async with workspace(Scenario(quota={"eastus": {FAMILY: 4}})) as here:
        await here.cluster()
        await here.submit("j1", "sleep 600")
        await here.submit("j2", "sleep 600")

        async def complains() -> bool:
            return bool((await here.compute())["errors"])

        await here.wait(complains)
        (error,) = (await here.compute())["errors"]
        assert error["error"]["code"] == "ClusterCoreQuotaReached"
        assert sorted([(await here.job(name))["status"] for name in ("j1", "j2")]) == ["Queued", "Running"]
        listed = await here.arm.list(
            f"/subscriptions/{here.here.settings.subscription}/providers/Microsoft.MachineLearningServices/locations/eastus/usages",
            API,
        )
        found = {row["name"]["value"]: (row["currentValue"], row["limit"]) for row in listed}
        assert found[FAMILY] == (4, 4)


async def test_a_cluster_that_is_deleted_by_hand_fails_its_jobs():
    async with workspace() as here:
        await here.cluster()
        await here.submit("j1", "sleep 600")
        await here.until("j1", "Running")
        await here.drop()
        assert await here.ended("j1") == "Failed"
        with pytest.raises(HttpResponseError):
            await here.submit("j2", "true")


async def test_an_outage_refuses_everything_and_ends():
    async with workspace(speed=1) as here:
        url = f"{here.here.settings.arm_url}{here.path}/computes?api-version={API}"

        async def status() -> int:
            async with here.here.http.get(url, headers={"Authorization": "Bearer any"}) as answer:
                return answer.status

        assert await status() == 200
        await here.here.control("POST", "outages", {"service": "ml", "lasts": 3600})

        async def is_out() -> bool:
            return await status() == 503

        await here.wait(is_out)
        await here.here.control("POST", "clock", {"seconds": 3700})
        await here.wait(_not(is_out))
        assert await status() == 200
        assert "error" in await here.here.control("POST", "outages", {"lasts": 30})


def _not(ask: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return not await ask()

    return holds


async def test_a_compute_instance_starts_stops_and_keeps_its_disk():
    async with workspace() as here:
        script = 'echo boot >> "$HOME/boots"; nohup sleep 600 >/dev/null 2>&1 &'
        stops_at = here.here.emulator.world.clock.now() + 7200
        body = requests.instance_body(
            region="eastus", size="Standard_D8_v3", labels={"a": "b"}, script=script, stops_at=stops_at
        )
        await here.arm.put(f"{here.path}/computes/i1", API, body)
        assert (await here.compute("i1"))["state"] == "Running"
        await here.submit("j1", 'wc -l < "$HOME/boots"', compute="i1")
        assert await here.ended("j1") == "Completed"
        assert (await here.logs("j1"))["user_logs/std_log.txt"].strip() == "1"
        for action, state in (("stop", "Stopped"), ("start", "Running")):
            await here.arm.post(f"{here.path}/computes/i1/{action}", API)
            await here.until_state("i1", state)
        await here.submit("j2", 'wc -l < "$HOME/boots"', compute="i1")
        assert await here.ended("j2") == "Completed"
        assert (await here.logs("j2"))["user_logs/std_log.txt"].strip() == "2"
        await here.here.control("POST", "clock", {"seconds": 7300})
        await here.until_state("i1", "Stopped")
        await here.drop("i1")
        left = await here.here.control("GET", "leaks")
        assert left["leaks"] == []


async def test_jobs_are_listed_by_tag_until_they_are_archived():
    async with workspace() as here:
        await here.cluster()
        await here.submit("j1", "true", labels={"evalfleet-pool": "p1"})
        await here.submit("j2", "true")
        jobs = f"{here.path}/jobs"

        async def listed(view: str) -> list[str]:
            found = await here.arm.list(jobs, API, {"tag": "evalfleet-pool=p1", "listViewType": view})
            return [each["name"] for each in found]

        assert await listed("ActiveOnly") == ["j1"]
        await here.ended("j1")
        body = await here.arm.get(f"{jobs}/j1", API)
        kept = {name: value for name, value in body["properties"].items() if name not in ("status", "services")}
        await here.arm.put(f"{jobs}/j1", API, {"properties": {**kept, "isArchived": True}})
        assert await listed("ActiveOnly") == []
        assert await listed("ArchivedOnly") == ["j1"]
