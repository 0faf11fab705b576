"""What a pool sees of its quota: asked when it keeps its machines anyway, and written down, so that looking at it asks nobody."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from evalfleet.azure import quota, sizes
from evalfleet.azure.pool import AzurePool
from evalfleet.azure.quota import Usages
from evalfleet.azure.vm_facts import facts_of
from evalfleet.azure.vms import Refusal
from evalfleet.model import JsonObject, PoolHost
from evalfleet.pools.machine.context import PoolContext
from evalfleet.store.pools.pools import QUOTA_SEEN, pool_subject


async def note_quota(context: PoolContext, hosts: Sequence[PoolHost]) -> None:
    """Ask for the quota that binds the pool most, and write it down if it is another than before. A refusal says nothing."""
    size, region = _place(context.wanted, hosts)
    try:
        usages = await context.vms.usages(region)
    except Refusal:
        return
    found = tightest(usages, size, region, spot=context.wanted.spot)
    subject = pool_subject(context.pool.name)
    before = await context.clerk.call(partial(context.store.last_event, subject, QUOTA_SEEN))
    if found is not None and (before is None or before.data != found):
        await context.clerk.call(partial(context.store.note, subject, QUOTA_SEEN, found))


def tightest(usages: Usages, size: str, region: str, *, spot: bool) -> JsonObject | None:
    """Of the counters that machines of this size use, the one with the least left: `family`, `used`, `limit`, `region`."""
    wanted = {name.lower() for name in quota.needed(sizes.find(size), 1, spot=spot)}
    rows = [usage for name, usage in usages.items() if name.lower() in wanted]
    if not rows:
        return None
    least = min(rows, key=lambda usage: usage.free)
    return {"family": least.name, "used": least.used, "limit": least.limit, "region": region}


def _place(wanted: AzurePool, hosts: Sequence[PoolHost]) -> tuple[str, str]:
    """Size and region of its newest machine, or what it would ask for first."""
    known = [facts for host in hosts if (facts := facts_of(host)).region and facts.size]
    return (known[-1].size, known[-1].region) if known else (wanted.sizes[0], wanted.regions[0])
