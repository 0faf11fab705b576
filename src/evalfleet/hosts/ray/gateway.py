"""A process of its own that talks to a Ray cluster for a controller: `python -m evalfleet.hosts.ray.gateway ADDRESS SOCKET`.

Ray ends the process that uses it when its cluster is gone, prints, and can be connected to one cluster only. So a controller
has a child for it. The child listens on a Unix socket. A connection begins with one line of JSON, which gets one line as its
answer; after `open` it carries the bytes of a runner. The child ends with its standard input.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray as typed_ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import evalfleet.pilot
from evalfleet.hosts.ray import actor as actor_module
from evalfleet.runner.build import build

ray: Any = typed_ray  # it says little about its types
NAMESPACE = "evalfleet"
CONCURRENCY = 1000
ANSWER_S = 15.0
START_S = 130.0  # a new runner first ends what a dead one left
AGAIN_S = 1.0
FIRST_S = 2.0
FAILURES = 3
LEAVE_S = 3.0
ABSENT = {"error": "absent", "message": "the cluster has no such actor"}
_WATCH = Path(evalfleet.pilot.__file__).with_name("runner_guard.py")


class KnownActor:
    """One actor as this process sees it: `pending` until it answers, then `alive`, then `dead`."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.state = "pending"
        self.facts: dict[str, Any] = {}
        self.reason: str | None = None
        self.preempted = False
        self.answered = asyncio.Event()
        self.dead = asyncio.Event()

    async def follow(self) -> None:
        """Return when it is dead. A cluster that does not answer says nothing about it."""
        while not self.dead.is_set():
            try:
                self.facts = await self.handle.facts.remote()
                self.state = "alive"
                self.answered.set()
                await self.handle.forever.remote()
            except ActorUnavailableError:
                await asyncio.sleep(AGAIN_S)
            except RayError as error:
                self.state, self.reason = "dead", _words(error)
                self.preempted = bool(getattr(error, "preempted", False))
                self.dead.set()
                self.answered.set()

    async def first_answer(self) -> None:
        """Wait until it has answered, if it is more than a request."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.answered.wait(), FIRST_S)

    def row(self) -> dict[str, Any]:
        return {"state": self.state, "facts": self.facts, "reason": self.reason, "preempted": self.preempted}


class Gateway:
    """Answers the requests of one controller. Calls of Ray that wait for the cluster have threads of their own."""

    def __init__(self) -> None:
        self._actors: dict[str, KnownActor] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failures = 0  # lists in a row that the cluster did not answer
        self._sessions: dict[tuple[int, Any], None] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with suppress(OSError, ValueError):
            request = json.loads(await reader.readline())
            answer = await self._answer(**request)
            if request["do"] == "list":
                self._failures = self._failures + 1 if "error" in answer else 0
                if self._failures >= FAILURES:  # such as a head that was made anew: only a new process connects to it
                    asyncio.get_running_loop().call_later(AGAIN_S, os._exit, 1)
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
            if "session" in answer:
                await self._carry(self._actors[request["name"]].handle, answer["session"], reader, writer)
        writer.close()

    async def _answer(self, do: str, **fields: Any) -> dict[str, Any]:
        work = {
            "list": self._list,
            "create": self._create,
            "open": self._open,
            "command": self._command,
            "end": self._end,
            "python": self._python,
            "clean": self._clean,
        }[do]
        try:
            return await work(**fields)
        except ActorDiedError as error:
            return {"error": "died", "message": _words(error), "preempted": bool(error.preempted)}
        except (TimeoutError, ActorUnavailableError):
            return {"error": "silent", "message": "the actor does not answer"}
        except Exception as error:  # noqa: BLE001 - boundary: whatever Ray raises is told, and this process goes on
            return {"error": "failed", "message": _words(error)}

    async def _list(self, prefix: str) -> dict[str, Any]:
        """The actors of a pool, by name. One that died stays until another one has its name."""
        found = await asyncio.wait_for(asyncio.to_thread(ray.util.list_named_actors, all_namespaces=True), ANSWER_S)
        names = [str(row["name"]) for row in found if row["namespace"] == NAMESPACE]
        new = [name for name in names if name.startswith(prefix) and not self._is_followed(name)]
        for known in [await self._known(name) for name in new]:
            if known is not None:
                await known.first_answer()
        actors = {name: one.row() for name, one in self._actors.items() if name.startswith(prefix)}
        return {"actors": actors, "draining": await asyncio.to_thread(_draining)}

    async def _create(self, name: str, arguments: list[Any], node: str | None, **resources: Any) -> dict[str, Any]:
        """Ask for an actor, unless there is one of that name. It waits in the cluster until a node has room for it."""
        there = NodeAffinitySchedulingStrategy(node, soft=True) if node else "DEFAULT"
        kind = ray.remote(actor_module.RunnerActor).options(
            name=name,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=0,
            max_concurrency=CONCURRENCY,
            scheduling_strategy=there,
            **resources,
        )
        watch = _WATCH.read_text("utf-8")
        self._follow(name, await asyncio.to_thread(kind.remote, *arguments, watch))
        return {}

    async def _open(self, name: str) -> dict[str, Any]:
        """A new connection to the runner of an actor."""
        known = await self._known(name)
        if known is None:
            return dict(ABSENT)
        data, _ = build()
        digest = hashlib.sha256(data).hexdigest()
        if not await asyncio.wait_for(known.handle.has.remote(digest), ANSWER_S):
            await asyncio.wait_for(known.handle.store.remote(digest, data), START_S)
        return await asyncio.wait_for(known.handle.open.remote(), START_S)

    async def _command(self, name: str, word: str) -> dict[str, Any]:
        """One command of the runner's program on the actor's node."""
        known = await self._known(name)
        if known is None:
            return dict(ABSENT)
        return await asyncio.wait_for(known.handle.command.remote(word, []), ANSWER_S)

    async def _python(self, name: str, packages: list[str]) -> dict[str, Any]:
        known = await self._known(name)
        if known is None:
            return dict(ABSENT)
        return await asyncio.wait_for(known.handle.python.remote(packages), ANSWER_S)

    async def _end(self, name: str, force: bool) -> dict[str, Any]:
        """End an actor that has no work, or any: `ended`, else `why` not. Its runner and tasks end with it."""
        known = await self._known(name)
        if known is None:
            return {"ended": True}
        await known.first_answer()
        why = None
        if known.state == "alive":
            said = await asyncio.wait_for(known.handle.retire.remote(), START_S)
            why = None if said.get("removed") else str(said.get("why") or said.get("message"))
        if why is None or force:
            await asyncio.to_thread(ray.kill, known.handle)
            await asyncio.wait_for(known.dead.wait(), ANSWER_S)
            return {"ended": True, "why": why}
        return {"ended": False, "why": why}

    async def _clean(self, folder: str) -> dict[str, Any]:
        """Remove what dead actors left on the nodes that are there."""
        nodes = await asyncio.to_thread(ray.nodes)
        work = ray.remote(actor_module.clean)
        there = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes if node["Alive"]]
        done = [work.options(num_cpus=0, scheduling_strategy=one).remote(folder) for one in there]
        await asyncio.wait_for(asyncio.gather(*done, return_exceptions=True), START_S)
        return {}

    async def _known(self, name: str) -> KnownActor | None:
        if not self._is_followed(name):
            try:
                handle = await asyncio.wait_for(asyncio.to_thread(ray.get_actor, name, NAMESPACE), ANSWER_S)
            except ValueError:
                return None
            self._follow(name, handle)
        return self._actors[name]

    def _is_followed(self, name: str) -> bool:
        return name in self._actors and not self._actors[name].dead.is_set()

    def _follow(self, name: str, handle: Any) -> KnownActor:
        known = self._actors[name] = KnownActor(handle)
        self._start(known.follow())
        return known

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _carry(
        self, handle: Any, session: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry bytes in both directions until either side ends."""

        async def there() -> None:
            while data := await reader.read(actor_module.PIECE):
                await handle.send.remote(session, data)

        async def back() -> None:
            while (data := await handle.receive.remote(session)) != b"":
                writer.write(data or b"")
                await writer.drain()

        both = [self._start(_until_broken(there())), self._start(_until_broken(back()))]
        self._sessions[session, handle] = None
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for task in both:
            task.cancel()
        await self._close(session, handle)

    async def _close(self, session: int, handle: Any) -> None:
        self._sessions.pop((session, handle), None)
        with suppress(RayError, TimeoutError):
            await asyncio.wait_for(handle.close.remote(session), ANSWER_S)

    async def leave(self) -> None:
        """Tell the actors that the controller is gone."""
        await asyncio.gather(*(self._close(session, handle) for session, handle in list(self._sessions)))


async def _until_broken(work: Coroutine[Any, Any, None]) -> None:
    with suppress(RayError, OSError):
        await work


def _draining() -> list[str]:
    """Nodes that will be taken away. Known to drivers on a node of the cluster only."""
    with suppress(Exception):
        return list(ray._private.state.state.get_draining_nodes())
    return []


def _words(error: BaseException) -> str:
    """The line of one of Ray's errors that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if isinstance(error, RayError) and lines else " ".join(lines)) or type(error).__name__


async def _serve(path: str, tell: int) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def watch() -> None:
        while os.read(0, 1 << 10):
            pass
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=watch, daemon=True).start()
    gateway = Gateway()
    await asyncio.start_unix_server(gateway.serve, path)
    _tell(tell, {"ready": True})
    await ended.wait()
    with suppress(TimeoutError):
        await asyncio.wait_for(gateway.leave(), LEAVE_S)


def _tell(fd: int, line: dict[str, Any]) -> None:
    os.write(fd, json.dumps(line).encode() + b"\n")


def main(address: str, path: str) -> None:
    tell = os.dup(1)
    os.dup2(2, 1)  # what Ray prints is for the log
    ray.cloudpickle.register_pickle_by_value(actor_module)
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # noqa: BLE001 - boundary: the controller says what to do about it
        _tell(tell, {"error": type(error).__name__, "message": str(error), "ray": ray.__version__})
        os._exit(1)
    asyncio.new_event_loop().run_until_complete(_serve(path, tell))
    leaving = threading.Thread(target=ray.shutdown, daemon=True)  # may wait for a cluster that is gone
    leaving.start()
    leaving.join(LEAVE_S)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
