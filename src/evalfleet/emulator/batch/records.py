"""What a Batch account has: pools with nodes, jobs with tasks. Each shows itself as Batch does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from evalfleet.azure.batch.duration import FOREVER
from evalfleet.emulator.arm.protocol import Body
from evalfleet.emulator.clock import iso

LOW_PRIORITY, DEDICATED = "targetLowPriorityNodes", "targetDedicatedNodes"
ALIVE = ("idle", "running")  # nodes in these states take tasks


class Task(Struct):
    """One command on a node; `turn` counts its starts and ends, so that what ran before is known as old."""

    job: Job
    body: Body
    made_at: float
    state: str = "active"
    since: float = 0.0
    turn: int = 0
    requeued: int = 0
    requeued_at: float | None = None
    node: Node | None = None
    folder: Path | None = None
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    failure: Body | None = None

    @property
    def id(self) -> str:
        return self.body["id"]

    def shown(self, base: str) -> Body:
        ran: Body = {"retryCount": 0, "requeueCount": self.requeued}
        moments = {"startTime": self.started_at, "endTime": self.ended_at, "lastRequeueTime": self.requeued_at}
        ran |= {name: iso(at) for name, at in moments.items() if at is not None}
        if self.state == "completed":
            ran["result"] = "success" if self.exit_code == 0 and self.failure is None else "failure"
            ran |= {} if self.exit_code is None else {"exitCode": self.exit_code}
            ran |= {"failureInfo": self.failure} if self.failure else {}
        url = f"{base}/jobs/{self.job.id}/tasks/{self.id}"
        limits = {"maxWallClockTime": FOREVER, "retentionTime": "P7D", "maxTaskRetryCount": 0}
        return {
            "requiredSlots": 1,
            **self.body,
            "constraints": {**limits, **(self.body.get("constraints") or {})},
            **_stored(url, self.made_at, self.state, self.since),
            "executionInfo": ran,
            **({"nodeInfo": self._where(base)} if self.node is not None else {}),
        }

    def _where(self, base: str) -> Body:
        assert self.node is not None
        pool, root = self.node.pool.id, f"workitems/{self.job.id}/job-1/{self.id}"
        url = f"{base}/pools/{pool}/nodes/{self.node.id}"
        return {"affinityId": f"TVM:{self.node.id}", "nodeUrl": url, "poolId": pool, "nodeId": self.node.id} | {
            "taskRootDirectory": root,
            "taskRootDirectoryUrl": f"{url}/files/{root}",
        }


class Job(Struct):
    body: Body
    made_at: float
    state: str = "active"
    since: float = 0.0
    ended_at: float | None = None
    reason: str | None = None
    tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # set when its constraints are others

    @property
    def id(self) -> str:
        return self.body["id"]

    @property
    def pool(self) -> str:
        return self.body["poolInfo"]["poolId"]

    def shown(self, base: str) -> Body:
        ran: Body = {"startTime": iso(self.made_at), "poolId": self.pool}
        ran |= {"endTime": iso(self.ended_at)} if self.ended_at is not None else {}
        ran |= {"terminateReason": self.reason} if self.reason else {}
        kept = {"priority": 0, "onAllTasksComplete": "noaction", "onTaskFailure": "noaction", **self.body}
        kept["constraints"] = {
            "maxWallClockTime": FOREVER,
            "maxTaskRetryCount": 0,
            **(self.body.get("constraints") or {}),
        }
        url = f"{base}/jobs/{self.id}"
        return {**kept, **_stored(url, self.made_at, self.state, self.since), "executionInfo": ran}


class Node(Struct):
    """One machine of a pool; `life` counts its boots, so that what ran before is known as old."""

    id: str
    pool: Pool
    dedicated: bool
    folder: Path
    made_at: float
    state: str = "creating"
    since: float = 0.0
    life: int = 0
    booted_at: float | None = None
    leaving: bool = False  # it goes as soon as its tasks are over
    scheduling: bool = True
    start_info: Body | None = None
    errors: list[Body] = field(default_factory=list[Body])
    tasks: list[Task] = field(default_factory=list[Task])
    total: int = 0

    def takes_tasks(self) -> bool:
        slots = self.pool.body.get("taskSlotsPerNode") or 1
        return self.state in ALIVE and self.scheduling and not self.leaving and len(self.tasks) < slots

    def shown(self, base: str) -> Body:
        found: Body = {
            "id": self.id,
            "url": f"{base}/pools/{self.pool.id}/nodes/{self.id}",
            "state": self.state,
            "schedulingState": "enabled" if self.scheduling else "disabled",
            "stateTransitionTime": iso(self.since),
            "allocationTime": iso(self.made_at),
            "affinityId": f"TVM:{self.id}",
            "vmSize": self.pool.body["vmSize"].lower(),
            "totalTasksRun": self.total,
            "runningTasksCount": len(self.tasks),
            "runningTaskSlotsCount": len(self.tasks),
            "isDedicated": self.dedicated,
        }
        found |= {"lastBootTime": iso(self.booted_at)} if self.booted_at is not None else {}
        found |= {"startTask": _start_task(self.pool.body)} if self.pool.body.get("startTask") else {}
        found |= {"startTaskInfo": self.start_info} if self.start_info else {}
        return found | ({"errors": self.errors} if self.errors else {})


class Pool(Struct):
    body: Body
    made_at: float
    region: str
    state: str = "active"
    allocation: str = "steady"
    allocated_at: float = 0.0
    errors: list[Body] = field(default_factory=list[Body])
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    on_removal: str = "requeue"  # what becomes of the tasks of nodes that go
    resize: int = 0  # counts the changes of the target: the last one counts
    formula: int = 0  # counts the formulas that were set
    formula_at: float | None = None  # cloud seconds: when one was set last
    run: Body | None = None  # of the formula, the last one
    freed: asyncio.Event = field(default_factory=asyncio.Event)  # set when a task has left its node, and then replaced

    @property
    def id(self) -> str:
        return self.body["id"]

    def tell_freed(self) -> None:
        freed, self.freed = self.freed, asyncio.Event()
        freed.set()

    def of_kind(self, *, dedicated: bool) -> list[Node]:
        return [node for node in self.nodes.values() if node.dedicated is dedicated]

    def shown(self, base: str) -> Body:
        found: Body = {
            "taskSlotsPerNode": 1,
            "resizeTimeout": "PT15M",
            "enableInterNodeCommunication": False,
            "currentNodeCommunicationMode": "simplified",
            **self.body,
            **_stored(f"{base}/pools/{self.id}", self.made_at, self.state, self.made_at),
            "allocationState": self.allocation,
            "allocationStateTransitionTime": iso(self.allocated_at),
            "currentDedicatedNodes": len(self.of_kind(dedicated=True)),
            "currentLowPriorityNodes": len(self.of_kind(dedicated=False)),
        }
        if found.get("startTask"):
            found["startTask"] = _start_task(self.body)
        found |= {"resizeErrors": self.errors} if self.errors else {}
        return found | ({"autoScaleRun": self.run} if self.run else {})


class Account(Struct):
    """What is in a Batch account. The limits count cores."""

    name: str
    region: str
    dedicated_cores: int
    low_priority_cores: int
    allocation_mode: str = "BatchService"
    pools: dict[str, Pool] = field(default_factory=dict[str, Pool])
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    body: Body = field(default_factory=dict[str, Any])  # as it was made


def _stored(url: str, made_at: float, state: str, since: float) -> Body:
    made = iso(made_at)
    moments = {"creationTime": made, "lastModified": made, "stateTransitionTime": iso(since or made_at)}
    return {"url": url, "eTag": f"0x{int(made_at * 1000):X}", "state": state, **moments}


def _start_task(body: Mapping[str, Any]) -> Body:
    return {"maxTaskRetryCount": 0, "waitForSuccess": False, **body["startTask"]}
