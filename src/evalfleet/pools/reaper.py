"""Finds what is ours and has no purpose any more, and ends it: in the cloud by tag, on hosts by their runners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from msgspec import Struct

from evalfleet.azure.requests.image import TAG_IMAGE
from evalfleet.azure.requests.vm import TAG_OWNER, TAG_POOL, expires_of
from evalfleet.azure.responses import Owned
from evalfleet.azure.vms import Verb, Vms
from evalfleet.model import DesiredState
from evalfleet.store.base.store import StoreReader

_VM = "microsoft.compute/virtualmachines"
# In this order, because each needs what stands before it to be gone.
_ORDER = (
    _VM,
    "microsoft.devtestlab/schedules",
    "microsoft.network/networkinterfaces",
    "microsoft.network/publicipaddresses",
    "microsoft.compute/disks",
    "microsoft.compute/snapshots",
    "microsoft.network/virtualnetworks",
    "microsoft.network/networksecuritygroups",
)


class Finding(Struct, frozen=True, kw_only=True):
    """One resource, and why it may go."""

    resource: Owned
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


def findings(resources: Iterable[Owned], purposes: Purposes, now: float) -> list[Finding]:
    """Pure. What may go, in the order in which it can.

    Ours goes where no pool and no wanted machine stands for it. What others made goes only after the moment that they
    put on it themselves, and not before the machine that it is a part of: only the machine's own is moved while somebody
    is there. What a home made that was named goes as well, but no machine that somebody still keeps, unless that is forced.
    Golden images stay: they are wanted until somebody deletes them.
    """
    listed = list(resources)
    lasting = [one for one in listed if one.type.lower() == _VM and (expires_of(dict(one.tags)) or 0.0) > now]
    found: list[Finding] = []
    for one in listed:
        if TAG_IMAGE in one.tags:
            continue
        why = _why(one, purposes) if _is_ours(one, purposes) else _why_of_others(one, purposes, lasting, now)
        if why is not None:
            found.append(Finding(resource=one, why=why))
    return sorted(found, key=lambda each: _place(each.resource))


def others(resources: Iterable[Owned], purposes: Purposes) -> dict[str, int]:
    """Pure. How many of these each other home has made, by its label."""
    made = (one.tags.get(TAG_OWNER) for one in resources if TAG_IMAGE not in one.tags and not _is_ours(one, purposes))
    return dict(sorted(Counter(owner for owner in made if owner is not None).items()))


def _why_of_others(one: Owned, purposes: Purposes, lasting: Iterable[Owned], now: float) -> str | None:
    owner, pool, expires = one.tags.get(TAG_OWNER, "nobody"), one.tags.get(TAG_POOL), expires_of(dict(one.tags))
    is_named = owner in purposes.named
    if is_named and purposes.forced:
        return f"made by {owner}"
    if (expires is not None and expires > now) or any(_belongs(one.name, machine.name) for machine in lasting):
        return None
    if expires is not None:
        return f"expired; made by {owner}"
    if any((each.tags.get(TAG_OWNER), each.tags.get(TAG_POOL)) == (owner, pool) for each in lasting):
        return None  # a network that its machines need
    return f"made by {owner}" if is_named else None


def _why(one: Owned, purposes: Purposes) -> str | None:
    pool = one.tags.get(TAG_POOL, "")
    if pool not in purposes.pools:
        return f"there is no pool {pool!r} here any more"
    is_network = one.type.lower().startswith(("microsoft.network/virtual", "microsoft.network/networksecurity"))
    if is_network or any(_belongs(one.name, host) for host in purposes.hosts):
        return None
    return f"pool {pool!r} does not want it"


def _is_ours(one: Owned, purposes: Purposes) -> bool:
    owner = one.tags.get(TAG_OWNER)
    if owner in purposes.owners:
        return True
    return owner is not None and owner == purposes.legacy and is_part(one.name, purposes.known)


def is_part(name: str, machines: Iterable[str]) -> bool:
    """Whether a resource is one of the machines, or a part of one."""
    return any(_belongs(name, machine) for machine in machines)


def _belongs(name: str, host: str) -> bool:
    """Whether a resource is a machine or a part of it: its parts are named after it."""
    part = name.removeprefix("shutdown-computevm-")
    return part in (host, f"{host}-nic", f"{host}-ip", f"{host}-disk")


def _place(one: Owned) -> int:
    kind = one.type.lower()
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def purposes_of(store: StoreReader, *, named: Collection[str] = (), force: bool = False) -> Purposes:
    """What the home wants now.

    Args:
        named: labels of other homes, such as one that was deleted.
        force: end what those have made even before the moment that it carries.
    """
    pools = [pool.name for pool in store.pools() if pool.backend == "azure-vm"]
    hosts = {host.name for pool in pools for host in store.hosts(pool) if host.desired is not DesiredState.GONE}
    hosts |= store.host_work().keys()  # whatever else is written: results lie there
    us = store.identity()
    return Purposes(
        owners=us.labels,
        legacy=us.legacy,
        known={host.name for pool in pools for host in store.hosts(pool, gone=True)},
        named=named,
        forced=force,
        pools=pools,
        hosts=hosts,
    )


def purposeless(resources: Iterable[Owned], store: StoreReader) -> list[Finding]:
    """What of these may go, by what the home wants now."""
    return findings(resources, purposes_of(store), store.now())


async def reap(vms: Vms, found: Iterable[Finding]) -> None:
    """End them one after another; a VM takes its disk, interface and address with it. Raises Refusal."""
    import anyio

    unwilling: set[str] = set()  # machines that did not go: they keep their deadlines
    for each in found:
        if any(_belongs(each.resource.name, name) for name in unwilling):
            continue
        if each.resource.type.lower() != _VM:
            await vms.delete_owned(each.resource)
            continue
        continuation = await vms.delete(each.resource.name)
        while continuation is not None:
            progress = await vms.poll(Verb.DELETE, each.resource.name, continuation)
            if progress.problem is not None:
                unwilling.add(each.resource.name)
            if progress.done:
                break
            await anyio.sleep(progress.look_again_s)
