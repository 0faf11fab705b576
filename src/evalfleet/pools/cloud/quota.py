"""What a pool sees of its quota: asked when it looks at its machines anyway, and written down, so that showing it asks no cloud."""

from __future__ import annotations

from collections.abc import Sequence

from evalfleet.model import PoolHost
from evalfleet.pools.cloud.problems import Refusal
from evalfleet.pools.cloud.records import Offering
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.facts import facts_of
from evalfleet.pools.settings import PoolSettings
from evalfleet.store.pools.pools import QUOTA_SEEN
from evalfleet.store.pools.queries import pool_subject


async def note_quota(context: PoolContext, hosts: Sequence[PoolHost]) -> None:
    """Ask for the quota that binds the pool most, and write it down if it is another than before. A refusal says nothing."""
    record = context.record
    try:
        found = await context.cloud.quota(_offering(context.wanted, hosts))
    except Refusal:
        return
    before = await record.call(record.store.events.last, pool_subject(record.name), QUOTA_SEEN)
    if found is not None and (before is None or before.data != found.to_json()):
        await record.note(QUOTA_SEEN, found.to_json())


def _offering(wanted: PoolSettings, hosts: Sequence[PoolHost]) -> Offering:
    """What its newest machine is, or what it would ask for first."""
    known = [facts for host in hosts if (facts := facts_of(host)).region and facts.size]
    size, region = (known[-1].size, known[-1].region) if known else (wanted.size[0], wanted.regions[0])
    return Offering(size=size, region=region, spot=wanted.spot)
