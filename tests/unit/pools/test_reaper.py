"""What may go: pure decisions about resources and their tags."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evalfleet.azure.responses import resource
from evalfleet.pools.cloud.reaper import Finding, Purposes, findings, others
from evalfleet.pools.cloud.records import LABEL_IMAGE, LABEL_OWNER, LABEL_POOL, Resource
from evalfleet.pools.context import PoolContext
from evalfleet.store.home.facts import Facts, Former, Identity

NOW = 1_800_000_000.0
OURS = Purposes(owners={"me@here-1"}, pools=["p1"], hosts={"evalfleet-1"})
VM = "Microsoft.Compute/virtualMachines"


def one(name: str, type: str = VM, *, owner: str = "me@here-1", pool: str = "p1", **more: str) -> Resource:
    tags = {LABEL_OWNER: owner, LABEL_POOL: pool, **{key.replace("_", "-"): value for key, value in more.items()}}
    return resource({"id": f"/{type}/{name}", "type": type, "name": name, "location": "eastus", "tags": tags})


def found(*resources: Resource, purposes: Purposes = OURS) -> list[tuple[str, str]]:
    return [(each.resource.name, each.why) for each in findings(resources, purposes, NOW)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("evalfleet-1", VM),
        ("evalfleet-1-nic", "Microsoft.Network/networkInterfaces"),
        ("evalfleet-1-ip", "Microsoft.Network/publicIPAddresses"),
        ("evalfleet-1-disk", "Microsoft.Compute/disks"),
        ("shutdown-computevm-evalfleet-1", "Microsoft.DevTestLab/schedules"),
        ("evalfleet-p1-eastus", "Microsoft.Network/virtualNetworks"),
        ("evalfleet-p1-eastus", "Microsoft.Network/networkSecurityGroups"),
    ],
)
def test_what_a_wanted_machine_needs_stays(name: str, kind: str):
    assert found(one(name, kind)) == []


@pytest.mark.parametrize("name", ["evalfleet-11", "evalfleet-2", "evalfleet-1-nic-old", "evalfleet"])
def test_a_machine_that_the_pool_does_not_want_goes(name: str):
    assert found(one(name)) == [(name, "pool 'p1' does not want it")]


def test_everything_of_a_pool_that_is_no_more_goes_networks_too():
    kinds = ("Microsoft.Network/virtualNetworks", VM)
    assert [why for _, why in found(*(one("x", kind, pool="old") for kind in kinds))] == [
        "there is no pool 'old' here any more"
    ] * 2


def test_what_others_made_goes_only_when_it_has_expired():
    mine = "2027-01-15T07:59:59Z"  # a second before NOW
    assert found(one("a", owner="you@there-2", evalfleet_expires=mine)) == [("a", "expired; made by you@there-2")]
    for later in ("2027-01-15T08:00:01Z", "some day", ""):
        assert found(one("a", owner="you@there-2", evalfleet_expires=later)) == []
    assert found(one("a", owner="you@there-2")) == []  # a network has no such moment
    nobody = resource({"id": "/a", "type": VM, "name": "a", "location": "eastus", "tags": {LABEL_POOL: "p1"}})
    assert found(nobody) == []


def test_another_home_with_a_pool_and_machines_of_the_same_names_is_not_ours():
    assert found(one("evalfleet-2", owner="me@here-2")) == []


def test_what_a_named_home_made_goes_but_nothing_that_it_keeps_unless_forced():
    past, later = "2027-01-15T07:59:59Z", "2027-01-15T08:00:01Z"
    network = "Microsoft.Network/virtualNetworks"
    theirs = [
        one("kept", owner="me@here-2", pool="q", evalfleet_expires=later),
        one("kept-nic", "Microsoft.Network/networkInterfaces", owner="me@here-2", pool="q", evalfleet_expires=past),
        one("net-q", network, owner="me@here-2", pool="q"),
        one("net-r", network, owner="me@here-2", pool="r"),
        one("other", owner="me@here-3", evalfleet_expires=later),
    ]
    forced = replace(OURS, forced=True)
    assert found(*theirs) == []
    assert found(*theirs, purposes=forced) == [], "force alone is about this home"
    named = replace(OURS, named={"me@here-2"})
    assert found(*theirs, purposes=named) == [("net-r", "made by me@here-2")]
    both = [name for name, _ in found(*theirs, purposes=replace(named, forced=True))]
    assert both == ["kept", "kept-nic", "net-q", "net-r"]
    assert others(theirs, OURS) == {"me@here-2": 4, "me@here-3": 1}


def test_what_carries_the_label_of_before_homes_had_ids_is_ours_only_where_we_know_it():
    """Two containers of one name had the same label."""
    us = Purposes(owners={"me@here-1"}, legacy="me@ci-old", known={"evalfleet-3"}, pools=["p1"], hosts={"evalfleet-1"})
    machines = [one(name, owner="me@ci-old") for name in ("evalfleet-1", "evalfleet-3", "evalfleet-9")]
    assert found(*machines, one("x", owner="me@ci-old", pool="theirs"), purposes=us) == [
        ("evalfleet-3", "pool 'p1' does not want it")
    ]
    before = "2027-01-15T07:59:59Z"
    assert found(one("x", owner="me@ci-old", pool="theirs", evalfleet_expires=before), purposes=us) == [
        ("x", "expired; made by me@ci-old")
    ]


def test_what_a_home_whose_place_ours_took_has_made_is_ours():
    us = Purposes(owners={"me@here-1", "me@there-0"}, pools=["p1"], hosts={"evalfleet-1"})
    assert found(one("evalfleet-7", owner="me@there-0"), purposes=us) == [("evalfleet-7", "pool 'p1' does not want it")]


def test_a_golden_image_stays_whoever_made_it():
    image = one("golden", "Microsoft.Compute/galleries/images/versions", pool="old", **{LABEL_IMAGE: "golden"})
    assert found(image) == []


def test_what_needs_others_gone_comes_after_them():
    kinds = [
        "Microsoft.Network/networkSecurityGroups",
        "Microsoft.Network/virtualNetworks",
        "Microsoft.Something/unheardOf",
        "Microsoft.Compute/disks",
        "Microsoft.Network/publicIPAddresses",
        "Microsoft.Network/networkInterfaces",
        VM,
    ]
    order = [each.resource.type for each in _all(kinds)]
    assert order == [*reversed([kind for kind in kinds if "unheardOf" not in kind]), kinds[2]]


def _all(kinds: list[Any]) -> list[Finding]:
    return findings([one("x", kind, pool="old") for kind in kinds], OURS, NOW)


def test_the_parts_of_a_machine_that_another_keeps_stay_with_it():
    """While its home lives, only the machine's own moment is moved; that of its parts stays where it was."""
    past, later = "2027-01-15T07:59:59Z", "2027-01-15T08:00:01Z"
    kinds = {"a-nic": "Microsoft.Network/networkInterfaces", "shutdown-computevm-a": "Microsoft.DevTestLab/schedules"}
    parts = [one(name, kind, owner="you@there-2", evalfleet_expires=past) for name, kind in kinds.items()]
    assert found(one("a", owner="you@there-2", evalfleet_expires=later), *parts) == []
    assert len(found(one("a", owner="you@there-2", evalfleet_expires=past), *parts)) == 3
    assert len(found(*parts)) == 2


def test_whoever_keeps_a_pool_knows_what_it_made_under_each_of_its_labels():
    context = PoolContext.__new__(PoolContext)  # nothing else of it is asked
    facts = Facts(path="/home", inode="1", device="1", boot="1", machine="")
    former = (Former(id="0", label="me@there-0"),)
    context.identity = Identity(id="1", label="me@here-1", legacy="me@ci-old", former=former, facts=facts)
    for owner in ("me@here-1", "me@there-0"):
        assert context.has_made("any", {LABEL_OWNER: owner}, ())
    deadline = one("shutdown-computevm-evalfleet-3", "Microsoft.DevTestLab/schedules")
    for machine in ("evalfleet-3", deadline.machine):
        assert context.has_made(machine, {LABEL_OWNER: "me@ci-old"}, {"evalfleet-3"})
    assert not context.has_made("evalfleet-4", {LABEL_OWNER: "me@ci-old"}, {"evalfleet-3"})
    assert not context.has_made("evalfleet-3", {LABEL_OWNER: "you@there-2"}, {"evalfleet-3"})
    assert not context.has_made("evalfleet-3", {}, {"evalfleet-3"})
