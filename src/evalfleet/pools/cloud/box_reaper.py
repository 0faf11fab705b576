"""Finds boxes that no machine needs any more and deletes them, also those of homes that are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from evalfleet.hosts.mailbox.boxes import BoxStorage, KeptBox
from evalfleet.pools.cloud.records import LABEL_OWNER, LABEL_POOL, Kind, Resource, expires_of
from evalfleet.pools.machine.facts import facts_of
from evalfleet.store.reader import StoreReader

_ID = 12  # letters of a home's id that are in its label, as its last part


class BoxFinding(Struct, frozen=True, kw_only=True):
    """One box, and why it may go."""

    box: KeptBox
    why: str


class BoxNeeds(Struct, frozen=True, kw_only=True):
    """Which boxes are needed, or may be."""

    homes: Collection[str]  # our id, and those of the homes whose place we took
    addresses: Collection[str]  # of machines that are not gone
    named: Collection[str] = ()  # labels of other homes whose boxes are to go, or the last parts of these
    forced: bool = False  # these go even while such a home may have machines
    in_use: Collection[tuple[str, str]] = ()  # labels and pools of machines of any home whose time is not over


def find_boxes(boxes: Iterable[KeptBox], needs: BoxNeeds) -> list[BoxFinding]:
    """Pure. Boxes of this home go if none of its machines needs them; those of a named home if that has no machine in their pool,
    unless forced; those of all others stay."""
    named = {_short(label) for label in needs.named}
    in_use = {(_short(label), pool) for label, pool in needs.in_use if not needs.forced}
    found: list[BoxFinding] = []
    for box in boxes:
        short = box.home[:_ID]
        if box.home in needs.homes:
            if box.address not in needs.addresses:
                found.append(BoxFinding(box=box, why=f"no machine of pool {box.pool!r} needs it"))
        elif short in named and (short, box.pool) not in in_use:
            found.append(BoxFinding(box=box, why=f"made by home {short}"))
    return found


def others_boxes(boxes: Iterable[KeptBox], needs: BoxNeeds) -> dict[str, int]:
    """Pure. How many of these each other home has, by the last part of its label."""
    return dict(sorted(Counter(box.home[:_ID] for box in boxes if box.home not in needs.homes).items()))


def box_needs(
    store: StoreReader,
    storage: BoxStorage,
    resources: Iterable[Resource],
    now: float,
    named: Collection[str],
    force: bool,
) -> BoxNeeds:
    """What is needed now. Read it after the boxes were listed: the intent to make a box is stored before the box is made.

    Args:
        resources: what the cloud has of any home.
        now: by the cloud's clock.
    """
    us = store.home.identity()
    homes = (us.id, *(one.id for one in us.former))
    addresses: set[str] = set()
    for pool in store.pools.all():
        for host in store.hosts.of_pool(pool.name):
            facts = facts_of(host)
            addresses |= {*facts.boxes.values()}
            numbers = range(1, len(facts.keys) + 1)
            addresses |= {storage.address(us.id, pool.name, host.name, number) for number in numbers}
    lasting = [one.labels for one in resources if one.kind is Kind.MACHINE and (expires_of(one.labels) or 0.0) > now]
    in_use = {(labels.get(LABEL_OWNER, ""), labels.get(LABEL_POOL, "")) for labels in lasting}
    return BoxNeeds(homes=homes, addresses=addresses, named=named, forced=force, in_use=in_use)


async def delete_boxes(storage: BoxStorage, found: Sequence[BoxFinding]) -> None:
    """Raises CarrierError."""
    for each in found:
        await storage.delete(each.box)


def _short(label: str) -> str:
    return label.rpartition("-")[2]
