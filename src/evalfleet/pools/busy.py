"""Work that would be lost with a machine, and the message that says what is waited for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from evalfleet.model import AttemptState, DesiredState, HostWork
from evalfleet.pools.settings import settings_of
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store

_NAMED = 3  # tasks


def waits_for(store: StoreReader, work: Sequence[HostWork]) -> str:
    """In one line: the tasks and their runs, and what to do if no controller drives a run."""
    keys: dict[str, list[str]] = {}
    for one in work:
        ended = " (its files are not collected yet)" if one.state is AttemptState.COLLECTING else ""
        keys.setdefault(one.run_id, []).append(one.key + ended)
    parts = [f"{_listed(some)} of run {run_id}" for run_id, some in keys.items()]
    idle = [run_id for run_id in keys if store.runs.driver(run_id) is None]
    more = [f"no controller drives it: `evalfleet resume {run_id}` collects its results" for run_id in idle[:1]]
    return "; ".join([f"waits for {' and '.join(parts)}", *more, "--force does not wait"])


def waiting(store: StoreReader, pool: str) -> dict[str, str]:
    """Machines of the pool that are to go and have work, and what each waits for."""
    work = store.hosts.work()
    hosts = [
        host
        for host in store.hosts.of_pool(pool)
        if host.desired is DesiredState.GONE and not host.forced and host.name in work
    ]
    return {host.name: waits_for(store, work[host.name]) for host in hosts}


def _listed(keys: Sequence[str]) -> str:
    rest = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return ", ".join(keys[:_NAMED]) + rest


def wanted_workers(store: StoreReader, pool: str, own: Mapping[str, int]) -> int:
    """How many workers all runs that go on could use of the pool.

    Args:
        own: what the runs of this process say themselves, which know it better than the store.
    """
    others = sum(one.wanted for one in store.pools.demand(pool) if one.run_id not in own)
    return others + sum(own.values())


def taken_before(store: StoreReader, pool: str, run_id: str) -> int:
    """How many workers of a tier are for others than this run: runs on the pool itself, which have no other, and older runs on
    its tiers."""
    tiered = store.tiers.demand(tier=pool)
    older = [one.run_id for one in tiered]
    younger = older[older.index(run_id) :] if run_id in older else []
    return sum(one.wanted for one in store.pools.demand(pool) if one.run_id not in {run_id, *younger})


def unless_stopped(store: Store, name: str, stopped_at: float | None, act: Callable[[], object]) -> None:
    """Make or start machines, unless a person has stopped the pool since its keeper looked: that would undo the stop."""
    with store.batch():
        if settings_of(store.pools.get(name)).stopped_at == stopped_at:
            act()
