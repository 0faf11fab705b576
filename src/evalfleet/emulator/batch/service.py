"""The data plane of Batch accounts: requests about pools, nodes, jobs, tasks and files."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from evalfleet.emulator.arm.access.identity import require_token
from evalfleet.emulator.arm.protocol import ArmError, Body
from evalfleet.emulator.batch import files
from evalfleet.emulator.batch.accounts import PREFIX, Accounts
from evalfleet.emulator.batch.errors import BatchError, as_batch, exists, not_found
from evalfleet.emulator.batch.nodes import Nodes
from evalfleet.emulator.batch.records import DEDICATED, LOW_PRIORITY, Account, Job, Node, Pool, Task
from evalfleet.emulator.batch.scaling import Scaling
from evalfleet.emulator.batch.tasks import Tasks
from evalfleet.emulator.clock import iso
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.scenario import Eviction

SERVICE = "batch"
_NAME = r"([A-Za-z0-9_-]+)"
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OF_TASKS = ("id", "commandLine", "environmentSettings", "resourceFiles", "constraints", "userIdentity")
_READABLE = ("idle", "running", "waitingforstarttask", "starttaskfailed", "offline")


class Call:
    """One request to one account."""

    def __init__(self, account: Account, request: web.Request, body: Any, base: str, names: tuple[str, ...]) -> None:
        self.account, self.request, self.body, self.base, self.names = account, request, body, base, names

    def pool(self) -> Pool:
        return self._found(self.account.pools, "Pool", self.names[0])

    def node(self) -> Node:
        return self._found(self.pool().nodes, "Node", self.names[1])

    def job(self) -> Job:
        return self._found(self.account.jobs, "Job", self.names[0])

    def task(self) -> Task:
        return self._found(self.job().tasks, "Task", self.names[1])

    def _found(self, known: dict[str, Any], kind: str, name: str) -> Any:
        if name not in known:
            raise not_found(kind, name)
        return known[name]


_Handler = Callable[[Call], Awaitable[web.Response]]


class BatchService:
    """All accounts of the emulator."""

    def __init__(self, world: EmulatorContext) -> None:
        self._world = world
        self.accounts = Accounts(world)
        self._nodes = Nodes(world)
        self._tasks = Tasks(world, self._nodes, self.accounts.all)
        self._scaling = Scaling(world, self._nodes)
        pool, node, job = rf"/pools/{_NAME}", rf"/pools/{_NAME}/nodes/{_NAME}", rf"/jobs/{_NAME}"
        task = rf"{job}/tasks/{_NAME}"
        self._table: list[tuple[str, re.Pattern[str], str, _Handler]] = [
            (method, re.compile(path), op, handler)
            for method, path, op, handler in (
                ("GET", "/supportedimages", "images.list", self._images),
                ("GET", "/pools", "pool.list", self._pools),
                ("POST", "/pools", "pool.create", self._create_pool),
                ("GET", pool, "pool.get", self._pool),
                ("HEAD", pool, "pool.get", self._pool),
                ("PATCH", pool, "pool.update", self._update_pool),
                ("DELETE", pool, "pool.delete", self._delete_pool),
                ("POST", f"{pool}/resize", "pool.resize", self._resize),
                ("POST", f"{pool}/stopresize", "pool.stop_resize", self._stop_resize),
                ("POST", f"{pool}/enableautoscale", "pool.autoscale", self._enable_formula),
                ("POST", f"{pool}/disableautoscale", "pool.autoscale", self._disable_formula),
                ("POST", f"{pool}/evaluateautoscale", "pool.evaluate", self._evaluate),
                ("POST", f"{pool}/removenodes", "pool.remove_nodes", self._remove_nodes),
                ("GET", f"{pool}/nodes", "node.list", self._list_nodes),
                ("GET", node, "node.get", self._node),
                ("POST", f"{node}/reimage", "node.reimage", self._reimage),
                ("POST", f"{node}/reboot", "node.reboot", self._reimage),
                ("GET", f"{node}/files", "file.list", self._node_files),
                ("GET", f"{node}/files/(.+)", "file.get", self._node_file),
                ("HEAD", f"{node}/files/(.+)", "file.get", self._node_file),
                ("GET", "/jobs", "job.list", self._jobs),
                ("POST", "/jobs", "job.create", self._create_job),
                ("GET", job, "job.get", self._job),
                ("PATCH", job, "job.update", self._update_job),
                ("DELETE", job, "job.delete", self._delete_job),
                ("POST", f"{job}/terminate", "job.terminate", self._terminate_job),
                ("GET", f"{job}/tasks", "task.list", self._list_tasks),
                ("POST", f"{job}/tasks", "task.create", self._create_task),
                ("GET", task, "task.get", self._task),
                ("PUT", task, "task.update", self._update_task),
                ("DELETE", task, "task.delete", self._delete_task),
                ("POST", f"{task}/terminate", "task.terminate", self._terminate_task),
                ("GET", f"{task}/files", "file.list", self._task_files),
                ("GET", f"{task}/files/(.+)", "file.get", self._task_file),
                ("HEAD", f"{task}/files/(.+)", "file.get", self._task_file),
            )
        ]

    def routes(self) -> list[web.RouteDef]:
        return [web.route("*", f"{PREFIX}/{{account}}/{{tail:.*}}", self._handle)]

    async def _handle(self, request: web.Request) -> web.Response:
        try:
            return await self._route(request)
        except BatchError:
            raise
        except ArmError as error:
            raise as_batch(error) from error

    async def _route(self, request: web.Request) -> web.Response:
        require_token(self._world, request.headers.get("Authorization"))
        self._world.require_service(SERVICE)
        account = self.accounts.find(request.match_info["account"])
        if account is None:
            raise BatchError(404, "AccountNotFound", "The specified account does not exist.")
        if not request.query.get("api-version"):
            raise BatchError(400, "MissingRequiredQueryParameter", "A query parameter is missing: api-version.")
        path = "/" + request.match_info["tail"]
        for method, pattern, op, handler in self._table:
            match = pattern.fullmatch(path)
            if match is not None and method == request.method:
                text = await request.text()
                base = f"{self._world.base_url}{PREFIX}/{account.name}"
                call = Call(account, request, json.loads(text) if text else {}, base, match.groups())
                name = "/".join(match.groups()) or str(call.body.get("id", ""))
                await self._world.meet(f"batch.{op}", {"name": name, "location": account.region})
                return await handler(call)
        raise BatchError(404, "ResourceNotFound", f"{request.method} {path} is not emulated.")

    def evict_some(self, eviction: Eviction) -> list[str]:
        pools = [pool for account in self.accounts.all() for pool in account.pools.values()]
        return self._nodes.evict_some(eviction, pools)

    def left(self) -> dict[str, int]:
        """How many things of each kind there are that somebody made."""
        counts = {
            "Microsoft.Batch/pools": sum(len(each.pools) for each in self.accounts.all()),
            "Microsoft.Batch/jobs": sum(len(each.jobs) for each in self.accounts.all()),
        }
        return {kind: count for kind, count in counts.items() if count}

    def folders(self) -> list[Path]:
        """Of nodes that are on."""
        return [
            node.folder
            for account in self.accounts.all()
            for pool in account.pools.values()
            for node in pool.nodes.values()
            if node.state not in ("preempted", "leavingpool", "creating")
        ]

    # Pools

    async def _images(self, call: Call) -> web.Response:
        rows: list[tuple[str, str, str, str, list[str]]] = [
            ("canonical", "0001-com-ubuntu-server-jammy", "22_04-lts", "batch.node.ubuntu 22.04", []),
            ("microsoft-dsvm", "ubuntu-hpc", "2204", "batch.node.ubuntu 22.04", ["DockerCompatible"]),
        ]
        found = [
            {
                "nodeAgentSKUId": agent,
                "imageReference": {"publisher": publisher, "offer": offer, "sku": sku, "version": "latest"},
                "osType": "linux",
                "capabilities": capabilities,
                "verificationType": "verified",
            }
            for publisher, offer, sku, agent, capabilities in rows
        ]
        return self._page(call, found)

    async def _pools(self, call: Call) -> web.Response:
        return self._page(call, [pool.shown(call.base) for pool in call.account.pools.values()])

    async def _create_pool(self, call: Call) -> web.Response:
        name, account = _checked(call.body["id"]), call.account
        if name in account.pools:
            raise exists("Pool", name)
        if self._world.skus.known(call.body.get("vmSize", "")) is None:
            raise BatchError(400, "InvalidPropertyValue", "The value provided for vmSize is invalid.")
        formula = call.body.get("autoScaleFormula")
        if formula is not None:
            self._scaling.evaluated(formula)
        body = {DEDICATED: 0, LOW_PRIORITY: 0, "enableAutoScale": False, **call.body}
        pool = account.pools[name] = Pool(body, self._world.clock.now(), account.region)
        pool.allocated_at = pool.made_at
        self._world.journal.tell("pool.created", name)
        if formula is not None:
            self._scaling.enable(account, pool, formula, call.body.get("autoScaleEvaluationInterval"))
        else:
            self._scaling.begin(account, pool)
        return web.Response(status=201, headers={"Location": f"{call.base}/pools/{name}", "DataServiceId": name})

    async def _pool(self, call: Call) -> web.Response:
        return _shown(call.pool().shown(call.base))

    async def _update_pool(self, call: Call) -> web.Response:
        call.pool().body.update({key: value for key, value in call.body.items() if value is not None})
        return web.Response(status=200)

    async def _delete_pool(self, call: Call) -> web.Response:
        pool, account = call.pool(), call.account
        pool.resize += 1
        pool.formula += 1
        pool.state = "deleting"
        self._world.journal.tell("pool.deleting", pool.id)

        async def end() -> None:
            for node in list(pool.nodes.values()):
                await self._nodes.remove(node)
            account.pools.pop(pool.id, None)
            self._world.journal.tell("pool.deleted", pool.id)

        self._world.tasks.start_soon(end)
        return web.Response(status=202)

    async def _resize(self, call: Call) -> web.Response:
        pool = call.pool()
        if pool.body.get("enableAutoScale"):
            raise BatchError(409, "PoolAutoScaleEnabled", "The pool has automatic scaling enabled.")
        if pool.allocation != "steady":
            raise BatchError(409, "PoolBeingResized", "The specified pool is being resized.")
        self._scaling.resize(call.account, pool, call.body, call.body.get("nodeDeallocationOption") or "requeue")
        return web.Response(status=202)

    async def _stop_resize(self, call: Call) -> web.Response:
        pool = call.pool()
        pool.resize += 1
        pool.allocation = "steady"
        said = "Desired number of nodes could not be allocated as the resize operation was stopped"
        pool.errors = [{"code": "ResizeStopped", "message": said}]
        return web.Response(status=202)

    async def _enable_formula(self, call: Call) -> web.Response:
        formula, interval = call.body.get("autoScaleFormula"), call.body.get("autoScaleEvaluationInterval")
        self._scaling.enable(call.account, call.pool(), formula, interval)
        return web.Response(status=200)

    async def _disable_formula(self, call: Call) -> web.Response:
        self._scaling.disable(call.pool())
        return web.Response(status=200)

    async def _evaluate(self, call: Call) -> web.Response:
        call.pool()
        found = self._scaling.evaluated(call.body["autoScaleFormula"])
        told = ";".join(f"{name}={value}" for name, value in found.items())
        return _shown({"timestamp": iso(self._world.clock.now()), "results": told})

    async def _remove_nodes(self, call: Call) -> web.Response:
        pool = call.pool()
        if pool.allocation != "steady":
            raise BatchError(409, "PoolBeingResized", "The specified pool is being resized.")
        pool.allocation = "resizing"
        self._world.tasks.start_soon(self._scaling.remove, pool, list(call.body["nodeList"]))
        return web.Response(status=202)

    # Nodes

    async def _list_nodes(self, call: Call) -> web.Response:
        return self._page(call, [node.shown(call.base) for node in call.pool().nodes.values()])

    async def _node(self, call: Call) -> web.Response:
        return _shown(call.node().shown(call.base))

    async def _reimage(self, call: Call) -> web.Response:
        node = call.node()
        if node.state in ("leavingpool", "creating", "preempted", "reimaging", "rebooting"):
            raise BatchError(409, "NodeStateConflict", f"The node is {node.state}.")
        await self._nodes.reimage(node)
        return web.Response(status=202)

    async def _node_files(self, call: Call) -> web.Response:
        root = _root(call.node())
        return self._files(call, root, f"{call.base}/pools/{call.names[0]}/nodes/{call.names[1]}/files")

    async def _node_file(self, call: Call) -> web.Response:
        return files.read(_root(call.node()), call.names[2], call.request)

    def _files(self, call: Call, root: Path, base: str) -> web.Response:
        recursive = call.request.query.get("recursive", "").lower() == "true"
        return self._page(call, files.listed(root, base, recursive=recursive))

    # Jobs and tasks

    async def _jobs(self, call: Call) -> web.Response:
        return self._page(call, [job.shown(call.base) for job in call.account.jobs.values()])

    async def _create_job(self, call: Call) -> web.Response:
        name = _checked(call.body["id"])
        if name in call.account.jobs:
            raise exists("Job", name)
        now = self._world.clock.now()
        job = Job(call.body, now, since=now)
        self._tasks.add_job(call.account, job)
        manager = call.body.get("jobManagerTask")
        if manager is not None:
            self._tasks.add(Task(job, {key: manager[key] for key in _OF_TASKS if key in manager}, now))
        return web.Response(status=201, headers={"Location": f"{call.base}/jobs/{name}"})

    async def _job(self, call: Call) -> web.Response:
        return _shown(call.job().shown(call.base))

    async def _update_job(self, call: Call) -> web.Response:
        job = call.job()
        if job.state in ("deleting", "terminating", "completed"):
            raise BatchError(409, f"Job{job.state.capitalize()}", f"The specified job is {job.state}.")
        job.body = {**job.body, **call.body}
        job.changed.set()
        return web.Response(status=200)

    async def _delete_job(self, call: Call) -> web.Response:
        job = call.job()
        if job.state == "deleting":
            raise BatchError(409, "JobBeingDeleted", "The specified job is being deleted.")
        self._world.tasks.start_soon(self._tasks.delete_job, call.account, job)
        job.state = "deleting"
        return web.Response(status=202)

    async def _terminate_job(self, call: Call) -> web.Response:
        reason = str(call.body.get("terminateReason") or "UserTerminate")
        self._world.tasks.start_soon(self._tasks.terminate_job, call.job(), reason)
        return web.Response(status=202)

    async def _list_tasks(self, call: Call) -> web.Response:
        return self._page(call, [task.shown(call.base) for task in call.job().tasks.values()])

    async def _create_task(self, call: Call) -> web.Response:
        job, name = call.job(), _checked(call.body["id"])
        if job.state != "active":
            raise BatchError(409, f"Job{job.state.capitalize()}", f"The specified job is {job.state}.")
        if name in job.tasks:
            raise exists("Task", name)
        self._tasks.add(Task(job, call.body, self._world.clock.now()))
        return web.Response(status=201, headers={"Location": f"{call.base}/jobs/{job.id}/tasks/{name}"})

    async def _task(self, call: Call) -> web.Response:
        return _shown(call.task().shown(call.base))

    async def _update_task(self, call: Call) -> web.Response:
        task = call.task()
        if task.state == "completed":
            raise BatchError(409, "TaskCompleted", "The specified task is already in a completed state.")
        task.body = {**task.body, "constraints": call.body.get("constraints") or {}}
        return web.Response(status=200)

    async def _delete_task(self, call: Call) -> web.Response:
        await self._tasks.delete(call.task())
        return web.Response(status=200)

    async def _terminate_task(self, call: Call) -> web.Response:
        await self._tasks.terminate(call.task())
        return web.Response(status=204)

    async def _task_files(self, call: Call) -> web.Response:
        return self._files(
            call, _task_root(call.task()), f"{call.base}/jobs/{call.names[0]}/tasks/{call.names[1]}/files"
        )

    async def _task_file(self, call: Call) -> web.Response:
        return files.read(_task_root(call.task()), call.names[2], call.request)

    def _page(self, call: Call, rows: list[Body]) -> web.Response:
        """A list, or the page of it that was asked for."""
        query = call.request.query
        size = int(query.get("maxresults") or self._world.scenario.page or 1000)
        begin = int(query.get("$skiptoken") or 0)
        found: Body = {"value": rows[begin : begin + size]}
        if begin + size < len(rows):
            more = urlencode({**query, "$skiptoken": str(begin + size)})
            found["odata.nextLink"] = f"{self._world.base_url}{call.request.path}?{more}"
        return _shown(found)


def _shown(body: Body) -> web.Response:
    return web.Response(text=json.dumps(body), content_type="application/json")


def _checked(name: str) -> str:
    if not _ID.fullmatch(name):
        raise BatchError(400, "InvalidPropertyValue", "The value provided for id is invalid.")
    return name


def _root(node: Node) -> Path:
    if node.state not in _READABLE:
        raise files.node_gone()
    return node.folder


def _task_root(task: Task) -> Path:
    if task.node is None or task.folder is None or task.node.state not in _READABLE:
        raise files.node_gone()
    return task.folder
