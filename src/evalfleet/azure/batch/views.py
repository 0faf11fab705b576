"""What Batch says about a job and its pilot, read into a machine. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from evalfleet.azure.batch.duration import limit_s
from evalfleet.azure.batch.requests import REGION, SIZE, SPOT
from evalfleet.azure.error_causes import ErrorFacts, classify
from evalfleet.azure.responses import inside
from evalfleet.core.hosts.lifecycle import Power, Stage
from evalfleet.pools.cloud.problems import Action, Cause, Problem
from evalfleet.pools.cloud.records import LABEL_OWNER, LABEL_POOL, Kind, MachineView, Resource

BROKEN = ("starttaskfailed", "unusable")  # states of nodes that no task can use
_OVER = ("terminating", "completed")
_OURS = (SIZE, REGION, SPOT)
_EXITS = {
    2: "its command line was wrong",
    3: "its box refused it, or belongs to another pilot",
    4: "its runner did not start",
}


class JobView(MachineView, frozen=True, kw_only=True):
    """A machine, with the Batch pool that it is in and its node."""

    batch_pool: str
    node: str | None
    made_at: float
    limit_s: float
    extra: Mapping[str, str]  # metadata besides the labels


def job_view(job: Mapping[str, Any], task: Mapping[str, Any] | None) -> JobView:
    """Read a job and its pilot; None: the pilot is not there."""
    metadata = pairs(job.get("metadata"))
    stage, power, problem = _state(str(job["state"]), str(_ran(job).get("terminateReason") or ""), task)
    spot = metadata.get(SPOT) == "true"
    return JobView(
        name=str(job["id"]),
        region=metadata.get(REGION, ""),
        size=metadata.get(SIZE, ""),
        spot=spot,
        labels={name: value for name, value in metadata.items() if name not in _OURS},
        stage=stage,
        power=power,
        problem=problem,
        batch_pool=str(job["poolInfo"]["poolId"]),
        node=inside(task, "nodeInfo", "nodeId"),
        made_at=moment(str(job["creationTime"])),
        limit_s=limit_s(job),
        extra={name: value for name, value in metadata.items() if name in _OURS},
    )


def _state(job: str, why: str, task: Mapping[str, Any] | None) -> tuple[Stage, Power | None, Problem | None]:
    if job == "deleting":
        return Stage.DELETING, None, None
    if task is None:
        over = job in _OVER
        said = "its job ended before its pilot began" if over else "its job has no pilot"
        return (Stage.MADE if over else Stage.FAILED), Power.RELEASED if over else None, _problem(said)
    state, ran = str(task["state"]), _ran(task)
    if job in _OVER or state == "completed":
        return Stage.MADE, Power.RELEASED, _problem(_end_of(why, ran))
    if ran.get("requeueCount"):
        return Stage.MADE, Power.RELEASED, _problem("its node was taken back by the cloud")
    if state == "running":
        return Stage.MADE, Power.RUNNING, None
    return Stage.CREATING, None, None


def _end_of(why: str, ran: Mapping[str, Any]) -> str:
    if "MaxWallClockTime" in why:
        return "it ended at its deadline"
    code, failure = ran.get("exitCode"), _part(ran, "failureInfo")
    if code:
        meaning = _EXITS.get(int(code))
        return f"its pilot ended with exit status {code}" + (f": {meaning}" if meaning else "")
    if code is None and failure:
        return f"its pilot did not run: {failure.get('code')}: {failure.get('message') or ''}".rstrip(": ")
    return "its pilot has ended"


def resize_problem(pool: Mapping[str, Any], *, region: str, size: str, spot: bool) -> Problem | None:
    """Why the pool has not the nodes that it should have; None where it does not say."""
    for error in pool.get("resizeErrors") or ():
        facts = ErrorFacts(code=str(error.get("code") or ""), message=str(error.get("message") or ""), status=200)
        return classify(facts, region=region, size=size, spot=spot)
    return None


def broken_nodes(nodes: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [node for node in nodes if node["state"] in BROKEN]


def node_trouble(node: Mapping[str, Any]) -> str:
    """Why a node is of no use, in one line."""
    if node["state"] == "starttaskfailed":
        code, failed = inside(node, "startTaskInfo", "exitCode"), inside(node, "startTaskInfo", "failureInfo", "code")
        said = f"exit status {code}" if code is not None else failed
        return f"the start task of node {node['id']} failed: {said or 'no reason is given'}"
    told = [str(error.get("message") or error.get("code")) for error in node.get("errors") or ()]
    return f"node {node['id']} is unusable: {told[0] if told else 'no reason is given'}"


def job_resource(job: Mapping[str, Any], region: str) -> Resource:
    name = str(job["id"])
    labels = {key: value for key, value in pairs(job.get("metadata")).items() if key not in _OURS}
    return Resource(
        id=f"jobs/{name}",
        name=name,
        kind=Kind.MACHINE,
        type="Microsoft.Batch/jobs",
        region=region,
        labels=labels,
        machine=name,
        order=0,
    )


def pool_resource(pool: Mapping[str, Any], region: str) -> Resource:
    labels = {key: value for key, value in pairs(pool.get("metadata")).items() if key in (LABEL_POOL, LABEL_OWNER)}
    return Resource(
        id=f"pools/{pool['id']}",
        name=str(pool["id"]),
        kind=Kind.NETWORK,
        type="Microsoft.Batch/pools",
        region=region,
        labels=labels,
        order=1,
    )


def pairs(items: Iterable[Mapping[str, str]] | None) -> dict[str, str]:
    return {item["name"]: item["value"] for item in items or ()}


def moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _ran(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return _part(body, "executionInfo")


def _part(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = body.get(name)
    return found or {}


def _problem(message: str) -> Problem:
    return Problem(cause=Cause.PROVISIONING, action=Action.NEXT_REGION, message=message)
