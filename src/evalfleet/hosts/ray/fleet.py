"""The actors of a pool as a run uses them: asked for when the run needs them, released when it does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import anyio
import anyio.to_thread

from evalfleet.core.readiness import Notice
from evalfleet.errors import BackendError, HostUnreachable
from evalfleet.hosts.base import Departure
from evalfleet.hosts.ray.backend import RayBackend
from evalfleet.hosts.ray.connection import RayConnection
from evalfleet.hosts.ray.settings import folder_of, host_specs, prefix_of, settings_of
from evalfleet.hosts.remote.upload import FileSums
from evalfleet.layout import Home
from evalfleet.model import JsonObject, Pool

LOOK_S = 0.5
AGAIN_S = 5.0  # a name is used again this long after its actor died: by then the engine knows what it lost
SETTLE_S = 3.0  # a worker that gets no new work is released this much later, if it has none
LEAVE_S = 20.0

Loads = Callable[[], Mapping[str, int]]


class RayFleet:
    """Implements `Fleet`. Several runs share the actors of a pool: each asks for what is missing, and an actor ends only when
    it has neither work nor a connection."""

    def __init__(
        self,
        home: Home,
        pool: Pool,
        notice: Notice,
        loads: Loads,
        used: Collection[str] = (),
        packages: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            loads: how many attempts of all runs of this home are live on each host; called in a thread.
            used: hosts that may have attempts of the run.
            packages: see `RayBackend`.
        """
        self._home = home
        self._pool = pool.name
        self._settings = settings_of(pool)
        self._packages = packages
        self._notice = notice
        self._loads = loads
        self._connection = RayConnection(self._settings.address)
        self._sums = FileSums()
        self._specs = {spec.name: spec for spec in host_specs(pool)}
        self._actors: dict[str, JsonObject] | None = None  # by host, as last seen; None: not seen yet
        self._backends: dict[str, RayBackend] = {name: self._backend(name) for name in self._specs if name in used}
        self._gone: dict[str, tuple[float, Departure]] = {}
        self._nodes: dict[str, str] = {}  # where the last actor of a host was
        self._asked: set[str] = set()
        self._idle_since: dict[str, float] = {}
        self._released: dict[str, float] = {}  # hosts that get no more work of this run, since when
        self._busy: dict[str, int] = {}
        self._wanted = 0
        self._trouble: str | None = None
        self._changed = anyio.Event()
        self._poked = anyio.Event()

    # What the engine asks

    def backends(self) -> Sequence[RayBackend]:
        return [self._backends[name] for name in self._specs if name in self._backends]

    def draining(self) -> Collection[str]:
        return {*self._released, *(name for name, backend in self._backends.items() if backend.is_draining)}

    def departure(self, host: str) -> Departure | None:
        if host in self._backends:
            return None
        if host in self._gone:
            return self._gone[host][1]
        return None if self._actors is None and host in self._specs else _lost(host, "is not in the cluster any more")

    async def changed(self) -> None:
        await self._changed.wait()
        self._changed = anyio.Event()

    def waits_for(self) -> str:
        if self._trouble is not None:
            return f"pool {self._pool}: {self._trouble}"
        pending = sum(row["state"] == "pending" for row in (self._actors or {}).values())
        if pending:
            needs = f"{self._settings.needs} each"
            return f"pool {self._pool}: {pending} actors wait in the Ray cluster for a node with {needs}"
        return f"pool {self._pool}: its actors are being asked for"

    def want(self, workers: int) -> None:
        if workers != self._wanted:
            self._wanted = workers
            self._poked.set()

    def busy(self, host: str, attempts: int) -> None:
        self._busy[host] = attempts

    def blame(self, host: str, reason: str) -> None:
        pass

    def give_up(self, hosts: Mapping[str, str]) -> None:
        pass

    async def part(self, *, over: bool) -> None:
        """Actors without work end after the pool's idle time."""

    # Beside the engine

    async def serve(self) -> None:
        try:
            while True:
                try:
                    await self._look()
                    await self._scale()
                    self._say(None)
                except BackendError as error:
                    self._say(str(error))
                with anyio.move_on_after(LOOK_S):
                    await self._poked.wait()
                self._poked = anyio.Event()
        finally:
            with anyio.move_on_after(LEAVE_S, shield=True):
                await self._withdraw()
            await self._connection.aclose()

    async def _look(self) -> None:
        """See what became of the actors."""
        answer = await self._ask("list", prefix=prefix_of(self._home, self._pool))
        hosts = {self._actor(name): name for name in self._specs}
        self._actors = {hosts[name]: row for name, row in answer["actors"].items() if name in hosts}
        for host in self._specs:
            row = self._actors.get(host)
            if row is None or row["state"] == "dead":
                self._take_away(host, row)
            elif row["state"] == "alive":
                self._offer(host, row["facts"])
        draining = set(answer["draining"])
        for host, backend in self._backends.items():
            backend.is_draining = self._nodes.get(host) in draining

    def _take_away(self, host: str, row: JsonObject | None) -> None:
        """An actor is dead, or there is none."""
        self._released.pop(host, None)
        backend = self._backends.pop(host, None)
        if backend is None:
            return
        if row is None:
            left = _lost(host, "is not in the cluster any more")
        elif row["preempted"] or backend.is_draining:
            left = Departure(cause="preempted", message=f"the node of its host {host} was preempted: {row['reason']}")
        else:
            left = _lost(host, f"died: {row['reason']}")
        self._gone[host] = (anyio.current_time(), left)
        self._changed.set()

    def _offer(self, host: str, facts: JsonObject) -> None:
        """An actor is there."""
        self._nodes[host] = facts["node"]
        if host not in self._backends and host not in self._released:
            self._backends[host] = self._backend(host)
            self._idle_since[host] = anyio.current_time()
            self._changed.set()

    async def _scale(self) -> None:
        loads = await anyio.to_thread.run_sync(self._loads)
        others = sum(max(0, loads.get(host, 0) - self._busy.get(host, 0)) for host in self._specs)
        workers = self._wanted + others if self._wanted else 0
        target = min(self._settings.max, max(self._settings.min, math.ceil(workers / self._settings.slots)))
        actors = {host for host, row in (self._actors or {}).items() if row["state"] != "dead"}
        ours = [host for host in self._specs if host in actors and host not in self._released]
        if len(ours) < target:
            await self._grow(target - len(ours), actors)
        await self._release(ours, target)

    async def _grow(self, missing: int, actors: Collection[str]) -> None:
        now = anyio.current_time()
        for host in [host for host in self._released if host in actors][:missing]:
            del self._released[host]  # it is still there
            missing -= 1
            self._changed.set()
        free = [host for host in self._specs if host not in actors and host not in self._backends]
        # A worker whose actor died gets its next one on the same node, where what ended there may still be.
        waiting = [host for host in free if host in self._gone and now < self._gone[host][0] + AGAIN_S]
        for host in [host for host in free if host not in waiting][: max(0, missing - len(waiting))]:
            await self._create(host)

    async def _create(self, host: str) -> None:
        settings = self._settings
        homes = [str(self._home.id), *self._home.former]
        arguments = [folder_of(self._home, host), homes, settings.idle_s, settings.max_hours * 3600.0]
        request = settings.request
        await self._ask("create", name=self._actor(host), arguments=arguments, node=self._nodes.get(host), **request)
        self._asked.add(host)

    async def _release(self, ours: Sequence[str], target: int) -> None:
        """Give back workers that the run has not needed for the pool's idle time: first no new work, then no connection."""
        now = anyio.current_time()
        for host in ours:
            if self._busy.get(host) or len(ours) <= target:
                self._idle_since[host] = now
        idle = [host for host in reversed(ours) if now - self._idle_since.get(host, now) >= self._settings.idle_s]
        for host in idle[: max(0, len(ours) - target)]:
            self._released[host] = now
            self._changed.set()
        for host, since in list(self._released.items()):
            if self._busy.get(host):
                self._released[host] = now
            elif now - since >= SETTLE_S and self._backends.pop(host, None) is not None:
                self._changed.set()  # without a connection it is idle, and ends
                self._gone[host] = (now, _lost(host, "was released, because it had no work"))
            elif now - since >= 2 * SETTLE_S and host not in self._backends:
                await self._connection.ask("end", name=self._actor(host), force=False)
                self._released[host] = now

    async def _withdraw(self) -> None:
        """Take back what we asked for and did not get."""
        pending = [host for host, row in (self._actors or {}).items() if row["state"] == "pending"]
        try:
            for host in self._asked.intersection(pending):
                await self._connection.ask("end", name=self._actor(host), force=True)
        except BackendError:
            pass  # they end when they are idle

    async def _ask(self, do: str, **fields: object) -> JsonObject:
        answer = await self._connection.ask(do, **fields)
        if "error" in answer:
            raise HostUnreachable(f"the Ray cluster at {self._connection.address}: {answer['message']}")
        return answer

    def _say(self, trouble: str | None) -> None:
        if trouble is not None and trouble != self._trouble:
            self._notice(f"pool {self._pool}: {trouble}")
        self._trouble = trouble

    def _backend(self, host: str) -> RayBackend:
        spec, actor = self._specs[host], self._actor(host)
        return RayBackend(self._home, spec, actor, self._connection, self._sums, self._packages)

    def _actor(self, host: str) -> str:
        return prefix_of(self._home, self._pool) + host


def _lost(host: str, why: str) -> Departure:
    return Departure(cause="worker_lost", message=f"the actor of its host {host} {why}")
