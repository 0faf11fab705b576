"""Deletes evalfleet's resources that are no longer needed, in clouds and on hosts, and says what is left."""

from __future__ import annotations

from collections.abc import Callable, Collection

import anyio

from evalfleet.answers.machines import Reaped, ReapedResource
from evalfleet.config import Settings
from evalfleet.errors import InputError, NotFound
from evalfleet.layout import Home
from evalfleet.model import Pool
from evalfleet.operations.machines.pools import Order, reconcile
from evalfleet.pools.busy import waiting
from evalfleet.pools.cloud import reaper
from evalfleet.pools.cloud.protocol import Cloud, CloudProvider, ListsBoxes
from evalfleet.pools.kinds.base import KeepsRunners
from evalfleet.pools.kinds.registry import cloud_of, clouds, creates_machines, kind_of
from evalfleet.store.store import Store

_HOME = "home"  # stands for the run in events that belong to none
_NAMED = 20
Say = Callable[[str], None]


async def reap(
    settings: Settings, store: Store, owners: Collection[str], say: Say, *, dry_run: bool, force: bool
) -> Reaped:
    """Delete what has no purpose, and look what is left.

    Args:
        owners: labels of other homes whose resources go, too.
        say: hears of what is not looked at, or stays.
        force: do not wait for the work on machines, nor for the deadlines of other homes.
    """
    gone: list[ReapedResource] = []
    others: dict[str, int] = {}
    kinds = [kind for kind in clouds() if kind.provider.is_configured(settings)]
    if not kinds:
        say("no cloud is set up here; only hosts are looked at")
        left = sum(creates_machines(pool) for pool in store.pools.all())  # not looked at
    else:
        left = await _end_pools(settings, store, say, dry_run=dry_run, force=force)
    for kind in kinds:
        async with kind.provider.open(settings, Home(settings.home)) as cloud:
            purposes = reaper.purposes_of(store, named=owners, force=force)
            going, still, theirs = await _in_cloud(cloud, store, purposes, dry_run=dry_run)
            gone += going
            left += still
            others |= theirs
            boxes, still, theirs = await _boxes(settings, kind.provider, cloud, store, purposes, say, dry_run=dry_run)
            gone += [box for box in boxes if box not in gone]  # two clouds may share a storage
            left += still
            others |= theirs
    runners = [] if dry_run else await _end_runners(settings, store, say)
    if gone:
        names = sorted(row.name for row in gone)
        data = {"found": len(gone), "left": left, "names": names[:_NAMED], "by": "evalfleet reap"}
        store.events.note(_HOME, "reap.found", data)
    return Reaped(dry_run=dry_run, resources=gone, left=left, runners=runners, others=others)


async def _in_cloud(
    cloud: Cloud, store: Store, purposes: reaper.Purposes, *, dry_run: bool
) -> tuple[list[ReapedResource], int, dict[str, int]]:
    """What is or would be deleted, how many could not be, and how many resources of other homes were left alone."""
    images = await reaper.reap_images(cloud, {*purposes.owners, *purposes.named}, dry_run=dry_run)
    owned = await cloud.resources()
    now = store.now() + reaper.skew_s(cloud)
    going = still = reaper.findings(owned, purposes, now)
    if not dry_run:
        await reaper.reap(cloud, going)
        owned = await cloud.resources()
        still = reaper.findings(owned, purposes, now)
    left = {each.resource.id for each in still}
    rows = [ReapedResource.copy_of(each.resource, why=each.why) for each in going]
    for each in images:
        name, regions = f"{each.name} {each.version}", ", ".join(each.regions)
        rows.append(ReapedResource(type=each.kind, name=name, region=regions, why="left over"))
    return rows, len(still), reaper.others((one for one in owned if one.id not in left), purposes)


async def _boxes(
    settings: Settings,
    provider: CloudProvider,
    cloud: Cloud,
    store: Store,
    purposes: reaper.Purposes,
    say: Say,
    *,
    dry_run: bool,
) -> tuple[list[ReapedResource], int, dict[str, int]]:
    """The same for boxes, where the machines of the cloud are reached through them."""
    if not isinstance(provider, ListsBoxes):
        return [], 0, {}
    from evalfleet.pilot.carrier import CarrierError
    from evalfleet.pools.cloud.box_reaper import box_needs, delete_boxes, find_boxes, others_boxes

    resources = await cloud.resources()
    now = store.now() + reaper.skew_s(cloud)
    async with provider.box_storage(settings) as storage:
        if storage is None:
            return [], 0, {}
        try:
            boxes = await storage.list()
            needs = box_needs(store, storage, resources, now, purposes.named, purposes.forced)
            found = find_boxes(boxes, needs)
            if not dry_run:
                await delete_boxes(storage, found)
        except CarrierError as error:
            say(f"not looked at: the storage of the boxes: {error}")
            return [], 1, {}
    going = {each.box.address for each in found}
    rows = [ReapedResource(type="box", name=each.box.address, region="", why=each.why) for each in found]
    return rows, 0, others_boxes((box for box in boxes if box.address not in going), needs)


async def _end_pools(settings: Settings, store: Store, say: Say, *, dry_run: bool, force: bool) -> int:
    """Delete pools that are to go. Returns how many machines and pools are left of them: those with work, and pools of another
    account than the settings name."""
    elsewhere = {pool.name for pool in store.pools.all() if not _is_here(settings, pool, say)}
    left = len(elsewhere)
    for pool in [] if dry_run else store.pools.all():
        if not pool.deleting and _is_over(store, pool):
            pool = store.pools.mark_for_deletion(pool.name, force=force)
        if not pool.deleting or pool.name in elsewhere:
            continue
        waits = waiting(store, pool.name)
        left += len(waits)
        for host, why in waits.items():
            say(f"{host} of pool {pool.name} stays: it {why}")
        await reconcile(settings, store, Order(pool=pool.name, creates=False), waits=False)
    return left


def _is_here(settings: Settings, pool: Pool, say: Say) -> bool:
    try:
        if creates_machines(pool):
            cloud_of(pool).require_account(pool, settings)
    except InputError as error:
        say(f"not looked at: {error}")
        return False
    return True


def _is_over(store: Store, pool: Pool) -> bool:
    """Whether the pool was made for a run that is over."""
    run_id = pool.settings.get("run")
    try:
        return run_id is not None and store.runs.get(run_id).state.is_over
    except NotFound:
        return True


async def _end_runners(settings: Settings, store: Store, say: Say) -> list[str]:
    """Names of hosts whose runner had no work and was ended."""
    busy = {host for host, count in store.hosts.live_counts().items() if count}
    ended: list[str] = []

    async def end(kind: KeepsRunners, pool: Pool) -> None:
        ended.extend(await kind.end_idle_runners(pool, busy, Home(settings.home), say))

    async with anyio.create_task_group() as group:
        for pool in store.pools.all():
            if isinstance(kind := kind_of(pool), KeepsRunners):
                group.start_soon(end, kind, pool)
    return sorted(ended)
