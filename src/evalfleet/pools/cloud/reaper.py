"""Finds evalfleet's resources that are no longer needed and deletes them: in the cloud by tag, on hosts by their runners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from msgspec import Struct

from evalfleet.model import DesiredState
from evalfleet.pools.cloud.protocol import Cloud, HasClock, KeepsImages
from evalfleet.pools.cloud.records import (
    LABEL_IMAGE,
    LABEL_OWNER,
    LABEL_POOL,
    KeptImage,
    Kind,
    Resource,
    Verb,
    expires_of,
)
from evalfleet.pools.kinds.registry import creates_machines
from evalfleet.store.reader import StoreReader


class Finding(Struct, frozen=True, kw_only=True):
    """One resource, and why it may go."""

    resource: Resource
    why: str


class Purposes(Struct, frozen=True, kw_only=True):
    """What still has one."""

    owners: Collection[str]  # our labels
    legacy: str | None = None  # the label that we had when homes had no id: another home may have had the same
    known: Collection[str] = ()  # machines that stand in our books, by name
    named: Collection[str] = ()  # labels of other homes whose leavings are to go
    forced: bool = False  # these go even before the moment that they carry
    pools: Collection[str]
    hosts: Collection[str]  # machines that are wanted, by name


def findings(resources: Iterable[Resource], purposes: Purposes, now: float) -> list[Finding]:
    """Pure. Resources to delete, in a possible order.

    Resources of this home go if they belong to no pool or wanted machine. Those of other homes go only after the time in
    their own label, and not before the machine that they belong to: a controller moves only the machine's label.
    Those of a named home go as well, but not a machine before its time, unless forced.
    Golden images stay until a person deletes them.
    """
    listed = list(resources)
    lasting = [one for one in listed if one.kind is Kind.MACHINE and (expires_of(one.labels) or 0.0) > now]
    found: list[Finding] = []
    for one in listed:
        if LABEL_IMAGE in one.labels:
            continue
        why = _why(one, purposes) if _is_ours(one, purposes) else _why_of_others(one, purposes, lasting, now)
        if why is not None:
            found.append(Finding(resource=one, why=why))
    return sorted(found, key=lambda each: each.resource.order)


def others(resources: Iterable[Resource], purposes: Purposes) -> dict[str, int]:
    """Pure. How many of these each other home has made, by its label."""
    made = (
        one.labels.get(LABEL_OWNER)
        for one in resources
        if LABEL_IMAGE not in one.labels and not _is_ours(one, purposes)
    )
    return dict(sorted(Counter(owner for owner in made if owner is not None).items()))


def _why_of_others(one: Resource, purposes: Purposes, lasting: Iterable[Resource], now: float) -> str | None:
    owner, pool, expires = (
        one.labels.get(LABEL_OWNER, "an unknown home"),
        one.labels.get(LABEL_POOL),
        expires_of(one.labels),
    )
    is_named = owner in purposes.named
    if is_named and purposes.forced:
        return f"made by {owner}"
    if (expires is not None and expires > now) or any(one.machine == machine.name for machine in lasting):
        return None
    if expires is not None:
        return f"expired; made by {owner}"
    if any((each.labels.get(LABEL_OWNER), each.labels.get(LABEL_POOL)) == (owner, pool) for each in lasting):
        return None  # a network that its machines need
    return f"made by {owner}" if is_named else None


def _why(one: Resource, purposes: Purposes) -> str | None:
    pool = one.labels.get(LABEL_POOL, "")
    if pool not in purposes.pools:
        return f"there is no pool {pool!r} here any more"
    is_network = one.kind is Kind.NETWORK
    if is_network or one.machine in purposes.hosts:
        return None
    return f"pool {pool!r} does not want it"


def _is_ours(one: Resource, purposes: Purposes) -> bool:
    owner = one.labels.get(LABEL_OWNER)
    if owner in purposes.owners:
        return True
    return owner is not None and owner == purposes.legacy and one.machine in purposes.known


def purposes_of(store: StoreReader, *, named: Collection[str] = (), force: bool = False) -> Purposes:
    """What the home wants now.

    Args:
        named: labels of other homes, such as one that was deleted.
        force: end what those have made even before the moment that it carries.
    """
    pools = [pool.name for pool in store.pools.all() if creates_machines(pool)]
    hosts = {host.name for pool in pools for host in store.hosts.of_pool(pool) if host.desired is not DesiredState.GONE}
    hosts |= store.hosts.work().keys()  # whatever else is written: results lie there
    us = store.home.identity()
    return Purposes(
        owners=us.labels,
        legacy=us.legacy,
        known={host.name for pool in pools for host in store.hosts.of_pool(pool, gone=True)},
        named=named,
        forced=force,
        pools=pools,
        hosts=hosts,
    )


def purposeless(resources: Iterable[Resource], store: StoreReader) -> list[Finding]:
    """What of these may go, by what the home wants now."""
    return findings(resources, purposes_of(store), store.now())


async def reap(cloud: Cloud, found: Iterable[Finding]) -> None:
    """End them one after another; a machine takes its parts with it. Raises Refusal."""
    import anyio

    unwilling: set[str] = set()  # machines that did not go: they keep their deadlines
    for each in found:
        if each.resource.machine in unwilling:
            continue
        if each.resource.kind is not Kind.MACHINE:
            await cloud.delete_resource(each.resource)
            continue
        continuation = await cloud.delete(each.resource.name)
        while continuation is not None:
            progress = await cloud.poll(Verb.DELETE, each.resource.name, continuation)
            if progress.problem is not None:
                unwilling.add(each.resource.name)
            if progress.done:
                break
            await anyio.sleep(progress.look_again_s)


async def reap_images(cloud: Cloud, owners: Collection[str], *, dry_run: bool) -> list[KeptImage]:
    """Delete what is left of images of these homes that failed, or whose copies were forgotten. Images that can be used stay."""
    if not isinstance(cloud, KeepsImages):
        return []
    found = [each for each in await cloud.images() if each.is_leftover and each.owner in owners]
    for each in found:
        if not dry_run:
            await cloud.delete_leftover(each)
    return found


def skew_s(cloud: Cloud) -> float:
    """What must be added to this machine's time, to compare it with what resources carry: they expire by the cloud's clock."""
    return cloud.skew_s if isinstance(cloud, HasClock) else 0.0
