"""What commands ask of the actors of a pool: `pool status --probe`, `pool delete`, `reap`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager

import anyio

from evalfleet.errors import BackendError, HostUnreachable
from evalfleet.hosts.ray.backend import RayBackend
from evalfleet.hosts.ray.connection import RayConnection, no_cluster
from evalfleet.hosts.ray.settings import folder_of, host_specs, prefix_of, settings_of
from evalfleet.layout import Home
from evalfleet.model import JsonObject, Pool

_END_S = 60.0


async def probe(pool: Pool, home: Home, limit_s: float) -> dict[str, JsonObject]:
    """The answer of each worker that has an actor: whether it is `reachable`, and its node's resources or the error."""
    found: dict[str, JsonObject] = {}
    try:
        with anyio.fail_after(limit_s):
            async with _cluster(pool) as connection:
                actors = await _actors(connection, pool, home)
                async with anyio.create_task_group() as group:
                    for spec in host_specs(pool):
                        state = actors.get(spec.name, {}).get("state")
                        if state == "alive":
                            backend = RayBackend(home, spec, prefix_of(home, pool.name) + spec.name, connection)
                            group.start_soon(_look, backend, found)
                        elif state == "pending":
                            needs = settings_of(pool).needs
                            error = f"waits in the cluster for a node with {needs}"
                            found[spec.name] = {"reachable": False, "error": error}
    except (BackendError, TimeoutError) as error:
        said = str(error) or no_cluster(settings_of(pool).address)
        for spec in host_specs(pool):
            found.setdefault(spec.name, {"reachable": False, "error": said})
    return found


async def _look(backend: RayBackend, found: dict[str, JsonObject]) -> None:
    try:
        found[backend.name] = {"reachable": True, **await backend.look()}
    except BackendError as error:
        found[backend.name] = {"reachable": False, "error": str(error)}


async def end_actors(pool: Pool, home: Home) -> dict[str, str]:
    """End all actors of a pool that is deleted. Returns the hosts of which something stays, and why."""
    left: dict[str, str] = {}
    try:
        with anyio.fail_after(_END_S):
            async with _cluster(pool) as connection:
                for host, row in (await _actors(connection, pool, home)).items():
                    if row["state"] != "dead":
                        answer = await connection.ask("end", name=prefix_of(home, pool.name) + host, force=True)
                        why = answer.get("message") or answer.get("why")
                        if why is not None:
                            left[host] = str(why)
                await connection.ask("clean", folder=folder_of(home, f"{pool.name}-*"))
    except (BackendError, TimeoutError) as error:
        left[pool.name] = (
            f"{str(error) or no_cluster(settings_of(pool).address)}; its actors end after the idle time of the pool"
        )
    return left


async def end_idle_actors(pool: Pool, busy: Collection[str], home: Home, say: Callable[[str], None]) -> list[str]:
    """End the actors that have no work; returns the names of their hosts."""
    ended: list[str] = []
    try:
        async with _cluster(pool) as connection:
            for host, row in (await _actors(connection, pool, home)).items():
                if row["state"] != "dead" and host not in busy:
                    answer = await connection.ask("end", name=prefix_of(home, pool.name) + host, force=False)
                    if answer.get("ended"):
                        ended.append(host)
    except BackendError as error:
        say(f"pool {pool.name}: {error}")
    return ended


@asynccontextmanager
async def _cluster(pool: Pool) -> AsyncGenerator[RayConnection]:
    connection = RayConnection(settings_of(pool).address)
    try:
        yield connection
    finally:
        await connection.aclose()


async def _actors(connection: RayConnection, pool: Pool, home: Home) -> dict[str, JsonObject]:
    """The actors of the pool by the names of their hosts. Those that just started have answered."""
    prefix = prefix_of(home, pool.name)
    answer = await connection.ask("list", prefix=prefix)
    if "error" in answer:
        raise HostUnreachable(f"the Ray cluster at {connection.address}: {answer['message']}")
    return {name.removeprefix(prefix): row for name, row in answer["actors"].items()}
