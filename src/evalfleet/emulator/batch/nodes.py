"""The nodes of pools: real folders and processes of this machine that come up, run a start task, are taken back and return."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from evalfleet import config
from evalfleet.emulator.arm.protocol import Body
from evalfleet.emulator.batch.records import ALIVE, Node, Pool, Task
from evalfleet.emulator.clock import iso
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.machines import processes, programs
from evalfleet.emulator.scenario import Eviction

ROOT = "batch"  # below the emulator's folder
_INHERITED = ("LANG", "TZ", "PATH")


class Nodes:
    """`freed` is told of nodes that may take tasks now; `lost` of tasks whose node went from under them."""

    def __init__(self, world: EmulatorContext) -> None:
        self._world = world
        self.freed: Callable[[Pool], None] = lambda _: None
        self.lost: Callable[[Task], None] = lambda _: None

    def add(self, pool: Pool, *, dedicated: bool) -> Node:
        """Begin to make a node."""
        number = f"{self._world.rng.getrandbits(32):08x}"
        kind = "d" if dedicated else "p"
        folder = self._world.folder / ROOT / f"{pool.id}-{number}"
        node = Node(f"tvmps_{number}_{kind}", pool, dedicated, folder, self._world.clock.now())
        pool.nodes[node.id] = node
        self._start(node, "creating")
        return node

    def _start(self, node: Node, state: str) -> None:
        node.life += 1
        self._enter(node, state)
        self._world.tasks.start_soon(self._boot, node, node.life)

    def _enter(self, node: Node, state: str) -> None:
        node.state, node.since = state, self._world.clock.now()
        self._world.journal.tell(f"node.{state}", node.id, pool=node.pool.id)

    async def _boot(self, node: Node, life: int) -> None:
        """From a machine that is asked for to one that takes tasks."""
        world, times = self._world, self._world.times
        fault = world.fault_of("node.boot", self._attributes(node))
        await world.clock.sleep(times.create)
        if node.life != life:
            return
        self._enter(node, "starting")
        self._bill(node)
        await world.clock.sleep(times.start)
        if fault is not None and fault.preset == "hangs":
            return
        if node.life != life:
            return
        if fault is not None and fault.exit is not None:
            node.errors = [{"code": "NodeUnusable", "message": fault.stderr or "The node could not be set up."}]
            self._enter(node, "unusable")
            return
        self._lay_out(node)
        node.booted_at = world.clock.now()
        if await self._is_prepared(node, life) and node.life == life:
            self._enter(node, "idle")
            self.freed(node.pool)

    def _bill(self, node: Node) -> None:
        pool, size = node.pool, node.pool.body["vmSize"]
        usd = self._world.skus.usd_per_hour(size, pool.region, spot=not node.dedicated)
        tags = {item["name"]: item["value"] for item in pool.body.get("metadata") or ()}
        body = {"id": f"{pool.id}/{node.id}", "name": node.id, "location": pool.region, "tags": tags}
        self._world.bill.begin(body, "vm", usd, size=size, spot=not node.dedicated)

    def _lay_out(self, node: Node) -> None:
        for name in ("home", "shared", "startup/wd", "workitems", "bin", "mnt", "tmp"):
            (node.folder / name).mkdir(parents=True, exist_ok=True)
        programs.install(node.folder / "bin", ("sudo", "apt-get", "kvm-ok", "df", "date", "systemctl"))

    async def _is_prepared(self, node: Node, life: int) -> bool:
        """Run the start task; False: it failed, or the node is another by now."""
        task: Body | None = node.pool.body.get("startTask")
        if task is None:
            return True
        self._enter(node, "waitingforstarttask")
        began = self._world.clock.now()
        node.start_info = {"state": "running", "startTime": iso(began), "retryCount": 0}
        fault = self._world.fault_of("node.start_task", self._attributes(node))
        folder = node.folder / "startup"
        if fault is not None and fault.exit is not None:
            (folder / "stderr.txt").write_text(fault.stderr)
            (folder / "stdout.txt").write_text("")
            code, failure = fault.exit, None
        else:
            code, failure = await self.run(node, task, folder, {"AZ_BATCH_TASK_ID": "startup"})
        if node.life != life:
            return False
        ended: Body = {"state": "completed", "endTime": iso(self._world.clock.now())}
        ended |= {"exitCode": code} if code is not None else {}
        is_well = code == 0 and failure is None
        failure = failure or (None if is_well else exit_failure(code))
        ended |= {"result": "success" if is_well else "failure"} | ({"failureInfo": failure} if failure else {})
        node.start_info |= ended
        if not is_well and task.get("waitForSuccess"):
            self._enter(node, "starttaskfailed")
            return False
        return True

    # Commands

    async def run(
        self, node: Node, task: Mapping[str, Any], folder: Path, more: Mapping[str, str]
    ) -> tuple[int | None, Body | None]:
        """Run a task's command in its folder, as Batch does: without a shell. Returns its exit status, or why there is none."""
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "wd").mkdir(parents=True)
        try:
            for each in task.get("resourceFiles") or ():
                await asyncio.to_thread(_download, each, folder / "wd")
        except (URLError, OSError) as error:
            code = "ResourceContainerAccessDenied" if "403" in str(error) else "BlobDownloadMiscError"
            return None, {"category": "usererror", "code": code, "message": str(error)}
        given = {each["name"]: each.get("value") or "" for each in task.get("environmentSettings") or ()}
        environ = {**self.environment(node), "AZ_BATCH_TASK_DIR": str(folder), **more, **given}
        environ["AZ_BATCH_TASK_WORKING_DIR"] = str(folder / "wd")
        with (folder / "stdout.txt").open("wb") as out, (folder / "stderr.txt").open("wb") as err:
            try:
                process = await asyncio.create_subprocess_exec(
                    *shlex.split(task["commandLine"]),
                    cwd=folder / "wd",
                    env=environ,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                return None, {"category": "usererror", "code": "CommandProgramNotFound", "message": str(error)}
        return await process.wait(), None

    def environment(self, node: Node) -> dict[str, str]:
        inherited = {name: value for name, value in config.base_env().items() if name in _INHERITED}
        folder = node.folder
        return {
            **inherited,
            "PATH": f"{folder / 'bin'}{os.pathsep}{inherited.get('PATH', os.defpath)}",
            "HOME": str(folder / "home"),
            "HOSTNAME": node.id,
            "TMPDIR": str(folder / "tmp"),
            "AZ_BATCH_NODE_ID": node.id,
            "AZ_BATCH_POOL_ID": node.pool.id,
            "AZ_BATCH_NODE_ROOT_DIR": str(folder),
            "AZ_BATCH_NODE_SHARED_DIR": str(folder / "shared"),
            "AZ_BATCH_NODE_STARTUP_DIR": str(folder / "startup"),
            "AZ_BATCH_NODE_IS_DEDICATED": str(node.dedicated).lower(),
            "EVALFLEET_CONTAINER_LOCKS": str(folder / "container-locks"),
            "EVALFLEET_SLOT_LOCKS": str(folder / "slots"),
            "EVALFLEET_TEMPORARY_DISK": str(folder / "mnt"),
        }

    # What happens to nodes

    async def preempt(self, node: Node) -> None:
        """Azure takes a low-priority node back; when there is room again, it returns under its own name and empty."""
        await self._switch_off(node, "preempted")
        life = node.life
        self._world.tasks.start_soon(self._return, node, life)

    async def _return(self, node: Node, life: int) -> None:
        await self._world.clock.sleep(self._world.times.preempted)
        if node.life == life:
            self._start(node, "creating")

    async def reimage(self, node: Node) -> None:
        await self._switch_off(node, "reimaging")
        node.errors, node.start_info = [], None
        life = node.life

        async def again() -> None:
            await self._world.clock.sleep(self._world.times.start)
            if node.life == life:
                self._start(node, "starting")

        self._world.tasks.start_soon(again)

    async def remove(self, node: Node) -> None:
        """Take it out of its pool for good."""
        await self._switch_off(node, "leavingpool")
        await self._world.clock.sleep(self._world.times.delete)
        node.pool.nodes.pop(node.id, None)
        self._world.journal.tell("node.removed", node.id, pool=node.pool.id)

    async def _switch_off(self, node: Node, state: str) -> None:
        node.life += 1
        self._enter(node, state)
        self._world.bill.end(f"{node.pool.id}/{node.id}")
        tasks = list(node.tasks)
        for task in tasks:
            task.turn += 1  # how its process ends now is not how the task ends
        await asyncio.to_thread(_wipe, node.folder)
        node.tasks.clear()
        for task in tasks:
            self.lost(task)
        node.pool.tell_freed()

    def evict_some(self, eviction: Eviction, pools: Iterable[Pool]) -> list[str]:
        """Take back low-priority nodes; returns their names."""
        running = [
            node
            for pool in pools
            for node in pool.of_kind(dedicated=False)
            if node.state in ALIVE and (fnmatchcase(node.id, eviction.name) or fnmatchcase(pool.id, eviction.name))
        ]
        chosen = self._world.rng.sample(running, eviction.of(len(running)))
        for node in chosen:
            self._world.tasks.start_soon(self.preempt, node)
        return [node.id for node in chosen]

    def _attributes(self, node: Node) -> dict[str, str]:
        size, priority = node.pool.body["vmSize"], "Regular" if node.dedicated else "Spot"
        return {"name": node.id, "pool": node.pool.id, "size": size, "priority": priority, "location": node.pool.region}


def exit_failure(code: int | None) -> Body:
    said = "The task exited with an exit code representing a failure"
    found: Body = {"category": "usererror", "code": "FailureExitCode", "message": said}
    return found | {"details": [{"name": "Message", "value": f"The task process exited with exit code {code}"}]}


def _download(file: Mapping[str, Any], folder: Path) -> None:
    target = folder / file["filePath"]
    target.parent.mkdir(parents=True, exist_ok=True)
    with urlopen(file["httpUrl"], timeout=30) as answer:
        target.write_bytes(answer.read())
    if file.get("fileMode"):
        target.chmod(int(file["fileMode"], 8))


def _wipe(folder: Path) -> None:
    processes.end_all(folder)
    shutil.rmtree(folder, ignore_errors=True)
