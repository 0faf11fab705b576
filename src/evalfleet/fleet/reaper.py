"""Finds what is ours and has no purpose any more, and ends it: in the cloud by tag, on hosts by their runners."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from evalfleet.azure.image import TAG_IMAGE
from evalfleet.azure.views import Owned
from evalfleet.azure.vm import TAG_OWNER, TAG_POOL, expires_of
from evalfleet.azure.vms import Verb, Vms
from evalfleet.model import Wish
from evalfleet.store.base import StoreReader

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
    beginning: str | None = None  # what carries a label that begins so is taken for ours, too
    pools: Collection[str]
    hosts: Collection[str]  # machines that are wanted, by name


def findings(resources: Iterable[Owned], purposes: Purposes, now: float) -> list[Finding]:
    """Pure. What may go, in the order in which it can.

    Ours goes where no pool and no wanted machine stands for it. What others made goes only after the moment that they
    put on it themselves, and not before the machine that it is a part of: only the machine's own is moved while somebody
    is there. Golden images stay: they are wanted until somebody deletes them.
    """
    listed = list(resources)
    lasting = [one.name for one in listed if one.type.lower() == _VM and (expires_of(dict(one.tags)) or 0.0) > now]
    found: list[Finding] = []
    for one in listed:
        is_foreign = not _is_ours(one, purposes)
        if TAG_IMAGE in one.tags or (is_foreign and any(_belongs(one.name, name) for name in lasting)):
            continue
        why = _why(one, purposes, now)
        if why is not None:
            found.append(Finding(resource=one, why=why))
    return sorted(found, key=lambda each: _place(each.resource))


def _why(one: Owned, purposes: Purposes, now: float) -> str | None:
    expires = expires_of(dict(one.tags))
    if not _is_ours(one, purposes):
        return None if expires is None or expires > now else f"expired; made by {one.tags.get(TAG_OWNER, 'nobody')}"
    pool = one.tags.get(TAG_POOL, "")
    if pool not in purposes.pools:
        return f"there is no pool {pool!r} here any more"
    is_network = one.type.lower().startswith(("microsoft.network/virtual", "microsoft.network/networksecurity"))
    if is_network or any(_belongs(one.name, host) for host in purposes.hosts):
        return None
    return f"pool {pool!r} does not want it"


def _is_ours(one: Owned, purposes: Purposes) -> bool:
    owner = one.tags.get(TAG_OWNER)
    if owner in purposes.owners or (purposes.beginning and owner and owner.startswith(purposes.beginning)):
        return True
    return owner == purposes.legacy and any(_belongs(one.name, host) for host in purposes.known)


def _belongs(name: str, host: str) -> bool:
    """Whether a resource is a machine or a part of it: its parts are named after it."""
    part = name.removeprefix("shutdown-computevm-")
    return part in (host, f"{host}-nic", f"{host}-ip", f"{host}-disk")


def _place(one: Owned) -> int:
    kind = one.type.lower()
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def purposeless(resources: Iterable[Owned], store: StoreReader, *, force: bool = False) -> list[Finding]:
    """What of these may go, by what the home wants now.

    Args:
        force: also what homes of this user on this machine have made that are not known here, such as one that was deleted.
    """
    pools = [pool.name for pool in store.pools() if pool.backend == "azure-vm"]
    hosts = {host.name for pool in pools for host in store.hosts(pool) if host.wish is not Wish.GONE}
    hosts |= store.host_work().keys()  # whatever else is written: results lie there
    known = {host.name for pool in pools for host in store.hosts(pool)}
    us = store.identity()
    purposes = Purposes(
        owners=us.labels,
        legacy=us.legacy,
        known=known,
        beginning=us.label[: us.label.rindex("-") + 1] if force else None,
        pools=pools,
        hosts=hosts,
    )
    return findings(resources, purposes, store.now())


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
