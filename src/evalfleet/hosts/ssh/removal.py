"""What is removed from hosts: our folders when their pool is deleted, and runners without work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import anyio

from evalfleet.errors import BackendError, EvalfleetError
from evalfleet.hosts.ssh import pool as ssh_pool
from evalfleet.hosts.ssh.backend import SshBackend
from evalfleet.layout import Home
from evalfleet.model import Pool

_REMOVE_S = 20.0  # for one host


async def remove_folders(pool: Pool, others: Sequence[Pool], home: Home) -> dict[str, str]:
    """Remove our folders from hosts that no other pool uses. Returns the hosts where one stays, and why."""
    used = [(spec.login, spec.jump, spec.folder) for other in others for spec in ssh_pool.hosts(other)]
    wanted = {spec.name for spec in ssh_pool.hosts(pool) if (spec.login, spec.jump, spec.folder) not in used}
    left: dict[str, str] = {}

    async def remove(backend: SshBackend) -> None:
        reason = await _reason_to_stay(backend)
        if reason is not None:
            left[backend.name] = reason

    async with anyio.create_task_group() as group:
        for backend in ssh_pool.backends(pool, home, lambda _: None):
            if backend.name in wanted:
                group.start_soon(remove, backend)
    return dict(sorted(left.items()))


async def _reason_to_stay(backend: SshBackend) -> str | None:
    try:
        with anyio.fail_after(_REMOVE_S):
            said = await backend.remove()
    except TimeoutError:
        return f"the host does not answer within {_REMOVE_S:g} s"
    except EvalfleetError as error:
        return str(error)
    return None if said.get("removed") else str(said.get("why") or said.get("message") or "it does not say why")


async def end_idle_runners(pool: Pool, busy: Collection[str], home: Home, say: Callable[[str], None]) -> list[str]:
    """End the runners of hosts that are not busy; returns the names of the hosts whose runner had no work and is ended."""
    ended: list[str] = []

    async def retire(backend: SshBackend) -> None:
        try:
            if (await backend.look())["held"]:
                await backend.release()
                ended.append(backend.name)
        except BackendError as error:
            say(str(error))

    async with anyio.create_task_group() as group:
        for backend in ssh_pool.backends(pool, home, lambda _: None):
            if backend.name not in busy:
                group.start_soon(retire, backend)
    return ended
