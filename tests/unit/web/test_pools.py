"""Pools over HTTP, as far as no cloud is needed: what is written, by whom, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.store import cases
from tests.support.web_client import Client, serving

from evalfleet import plugins
from evalfleet.api.pools import create_pool, open_pool
from evalfleet.config.core_tables import AzureTable
from evalfleet.daemon.pool_children import PoolChildren, PoolStanding, standings
from evalfleet.model import DesiredState, HostState, Policy
from evalfleet.pools.kinds import registry
from evalfleet.store.open import open_store
from evalfleet.web.server import Options

HOSTS = '[[host]]\nname = "box"\naddress = "127.0.0.1"\nslots = 3\nprice_usd_per_hour = 0.5\n'
VMS = {"name": "p1", "backend": "azure-vm", "workers": 2, "size": "Standard_D8ds_v5", "regions": "eastus, westus2"}


class Ordered:
    """Stands where the server's keepers of pools are: remembers what it was asked for, and starts no process."""

    def __init__(self) -> None:
        self.wanted: list[tuple[str, bool]] = []

    async def request(self, name: str, *, retry: bool = False) -> None:
        self.wanted.append((name, retry))


@asynccontextmanager
async def own_pool(home: Path) -> AsyncGenerator[tuple[Client, Ordered]]:
    """A server that would keep pools, of a cloud that nobody asks."""
    async with serving(home) as client:
        site, ordered = client.server.site, Ordered()
        site.pool_supervisor = ordered  # pyright: ignore[reportAttributeAccessIssue] - it has all that handlers use
        site.settings = replace(
            site.settings, azure=AzureTable(profile="emulator", emulator="http://127.0.0.1:9", speed=1.0)
        )
        yield client, ordered


@pytest.fixture
async def client(home: Path) -> AsyncGenerator[Client]:
    async with serving(home) as client:
        yield client


def machines(home: Path, *states: HostState) -> list[str]:
    """Give the pool p1 machines, as its keeper would."""
    with closing(open_store(home)) as store:
        pool = store.pools.take("p1", "me")
        made = store.hosts.request("p1", "vm-", [{} for _ in states])
        for host, state in zip(made, states, strict=True):
            cases.move_host(store, pool, replace(host, state=state))
        store.pools.leave(pool)
        return [host.name for host in made]


async def test_a_pool_of_machines_that_exist(home: Path, client: Client):
    made = await client.post("pools", {"name": "lab", "backend": "ssh", "hosts": HOSTS, "trust_first_use": True}, 201)
    assert made == {"pool": "lab", "backend": "ssh", "hosts": 1, "workers": 3, "by": None}
    pool = await client.get("pools/lab")
    assert [(row["host"], row["workers"], row["price_usd_per_hour"]) for row in pool["hosts"]] == [("box", 3, 0.5)]
    assert (await client.get("pools"))["pools"][0]["name"] == "lab"
    again = await client.ask("/api/v1/pools", "POST", data={"name": "lab", "hosts": HOSTS})
    assert (again.status, again.json["error"]["kind"]) == (409, "WrongState")
    other = await client.ask("/api/v1/pools", "POST", data={"name": "lab2", "hosts": HOSTS})
    assert (other.status, "belongs to pool 'lab'" in other.json["error"]["message"]) == (400, True)
    wider = {"name": "lab", "hosts": HOSTS.replace("slots = 3", "slots = 4"), "replace": True}
    assert (await client.post("pools", wider, 201))["workers"] == 4
    for verb in ("start", "stop", "scale"):
        body = {"workers": 1} if verb == "scale" else {}
        reply = await client.ask(f"/api/v1/pools/lab/{verb}", "POST", data=body)
        assert (reply.status, "consists of existing machines" in reply.json["error"]["message"]) == (400, True)
    gone = await client.post("pools/lab/delete")
    assert (gone["deleted"], list(gone["left"])) == ("lab", ["box"])
    assert "cannot be reached" in gone["left"]["box"], "our folder may be there"
    with closing(open_store(home)) as store:
        asked = [event.data for event in store.events.of_run("pool:lab") if event.type == "pool.requested"]
    assert [one["verb"] for one in asked] == ["create", "replace", "delete"]
    assert all(one["by"].startswith("token boss") for one in asked)


async def test_a_pool_of_tiers_is_made_shown_changed_and_deleted(home: Path, client: Client):
    for name in ("lab", "attic"):
        hosts = HOSTS.replace('"box"', f'"{name}"')
        await client.post("pools", {"name": name, "hosts": hosts, "trust_first_use": True}, 201)
    made = await client.post("pools", {"name": "both", "tiers": ["attic", "lab"], "cool_down": "1m"}, 201)
    assert made == {"pool": "both", "backend": "tiers", "hosts": 0, "workers": 6, "by": None}
    pool = await client.get("pools/both")
    assert [(row["tier"], row["state"], row["capacity"]) for row in pool["tiers"]] == [
        ("attic", "closed", 3),
        ("lab", "closed", 3),
    ]
    assert open_pool("both", home=home).status().tiers is not None
    assert (await client.get("pools/lab"))["tiers"] is None
    await client.post("pools/both/scale", {"budget_usd": 9})
    assert (await client.get("pools/both"))["budget_usd"] == 9
    refused = await client.ask("/api/v1/pools/both/stop", "POST", data={})
    assert (refused.status, "one of its tiers: attic, lab" in refused.json["error"]["message"]) == (400, True)
    refused = await client.ask("/api/v1/pools/lab/delete", "POST", data={})
    assert (refused.status, "is a tier of pool 'both'" in refused.json["error"]["message"]) == (409, True)
    assert (await client.post("pools/both/delete"))["deleted"] == "both"
    again = create_pool("both", tiers=["lab"], prefer="cheapest", budget_usd=2, home=home)
    assert [row.tier for row in again.status().tiers or ()] == ["lab"]


async def test_kinds_of_pools_are_listed_with_the_options_that_they_take(
    client: Client, monkeypatch: pytest.MonkeyPatch
):
    broken = EntryPoint("moon", "no_such_module:KIND", registry.GROUP)
    monkeypatch.setattr(plugins, "installed", lambda group: {"moon": broken} if group == registry.GROUP else {})
    found = {row.pop("name"): row for row in (await client.get("backends"))["backends"]}
    assert list(found) == [
        *("ssh", "azure-vm", "azure-batch", "azure-ml", "azure-ml-instance", "tiers", "ray", "slurm"),
        "moon",
    ]
    assert found["ssh"] == {
        "title": "Machines that exist (SSH)", "creates_machines": False, "options": ["hosts", "trust_first_use"],
        "broken": None,
    }  # fmt: skip
    assert found["azure-vm"]["creates_machines"]
    assert {"workers", "size", "spot"} <= set(found["azure-vm"]["options"])
    assert "no_such_module" in found["moon"]["broken"]


async def test_wishes_for_rented_machines_are_written_and_told(home: Path):
    async with own_pool(home) as (client, ordered):
        assert (await client.post("pools", {**VMS, "min": 0, "max": 4, "idle": "5m"}, 201))["by"] == "this server"
        with closing(open_store(home)) as store:
            wanted = store.pools.get("p1").settings
        assert (wanted["size"], wanted["regions"]) == (["Standard_D8ds_v5"], ["eastus", "westus2"])
        assert (wanted["min"], wanted["max"], wanted["idle"]) == (0, 4, 300)
        first, second = machines(home, HostState.READY, HostState.READY)
        assert (await client.post("pools/p1/stop", {"worker": f"{first}-1"}))["machines"] == [first]
        assert (await client.post("pools/p1/start", {"worker": first}))["machines"] == [first]
        assert (await client.post("pools/p1/scale", {"workers": 1}))["machines"] == [second], "the youngest"
        answer = await client.post("pools/p1/delete", {"worker": first})
        assert (answer["deleting"], answer["machines"]) == (False, [first])
        assert (await client.post("pools/p1/delete"))["deleting"] is True
        assert ordered.wanted == [("p1", again) for again in (False, False, True, False, False, False)]
        with closing(open_store(home)) as store:
            events = store.events.of_run("pool:p1")
            assert store.pools.get("p1").deleting
            assert {host.desired for host in store.hosts.of_pool("p1")} == {DesiredState.GONE}
        asked = [(event.data["verb"], event.data.get("worker")) for event in events if event.type == "pool.requested"]
        assert asked == [
            ("create", None),
            ("stop", f"{first}-1"),
            ("start", first),
            ("scale", None),
            ("delete", first),
            ("delete", None),
        ]
        assert all(event.data["by"].startswith("token boss") for event in events if event.type == "pool.requested")
        assert any("asked by token boss" in str(event.data.get("reason")) for event in events)


async def test_who_keeps_the_pool_is_told(home: Path):
    async with own_pool(home) as (client, _):
        await client.post("pools", VMS, 201)
        with closing(open_store(home)) as store:
            pool = store.pools.take("p1", "somebody")
            assert (await client.post("pools/p1/scale", {"workers": 3}))["by"] == "somebody"
            store.pools.leave(pool)


async def test_the_same_pool_again_is_the_same_and_another_is_refused(home: Path):
    async with own_pool(home) as (client, ordered):
        await client.post("pools", VMS, 201)
        await client.post("pools", VMS, 201)
        assert len(ordered.wanted) == 2
        reply = await client.ask("/api/v1/pools", "POST", data={**VMS, "workers": 5})
        assert (reply.status, "it is another" in reply.json["error"]["message"]) == (409, True)


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({"name": "../../etc"}, 400, "cannot name a pool"),
    ({"name": "<script>"}, 400, "cannot name a pool"),
    ({"name": ""}, 400, "cannot name a pool"),
    ({"name": "a\nb"}, 400, "cannot name a pool"),
    ({"backend": None}, 400, "backend: is missing"),
    ({"backend": "gcp"}, 400, "backend"),
    ({"workers": 0}, 400, "workers"),
    ({"workers": 10**6}, 400, "workers"),
    ({"size": "Standard_Nope"}, 404, "Nope"),
    ({"size": ","}, 400, "none is named"),
    ({"regions": "eastus/../../providers"}, 400, "is no region"),
    ({"min": 3, "max": 2}, 400, "min 3 is more than max 2"),
    ({"idle": "soon"}, 400, "idle"),
    ({"budget_usd": -1}, 400, "budget_usd"),
    ({"max_hours": 10_000}, 400, "max_hours"),
    ({"name_prefix": "-x;rm"}, 400, "cannot begin a machine's name"),
    ({"deadline": {"nope": "1m"}}, 400, "there is no readiness check"),
    ({"hosts": HOSTS}, 400, "hosts: is not for azure-vm"),
    ({"backend": "ssh"}, 400, "is not for ssh"),
    ({"surprise": 1}, 400, "surprise"),
]


async def test_what_is_wrong_with_a_pool_is_said(home: Path):
    async with own_pool(home) as (client, ordered):
        for change, status, said in WRONG:
            reply = await client.ask("/api/v1/pools", "POST", data={**VMS, **change})
            assert (reply.status, said in reply.json["error"]["message"]) == (status, True), reply.json
        assert (await client.get("pools"))["pools"] == []
        assert ordered.wanted == []


WRONG_HOSTS = [
    ("[[host]\n", "not valid TOML"),
    ("", "there are no hosts"),
    ('[[host]]\naddress = "a b"', "is not a host name or address"),
    ('[[host]]\naddress = "x"\nkey = "../../../no/such/key"', "there is no file"),
    ('[[host]]\naddress = "x"\nname = "local"', "this machine"),
]


async def test_what_is_wrong_with_hosts_is_said(client: Client):
    for hosts, said in WRONG_HOSTS:
        reply = await client.ask("/api/v1/pools", "POST", data={"name": "lab", "backend": "ssh", "hosts": hosts})
        assert (reply.status, said in reply.json["error"]["message"]) == (400, True), reply.json["error"]
    assert (await client.get("pools"))["pools"] == []


async def test_a_cloud_that_is_not_set_up_is_said_before_anything_is_written(home: Path):
    async with serving(home) as client:
        client.server.site.pool_supervisor = Ordered()  # pyright: ignore[reportAttributeAccessIssue]
        reply = await client.ask("/api/v1/pools", "POST", data=VMS)
        assert (reply.status, "azure.subscription: not set" in reply.json["error"]["message"]) == (400, True)
        assert (await client.get("pools"))["pools"] == []


async def test_machines_and_pools_that_are_not_there_are_missed(home: Path):
    async with own_pool(home) as (client, ordered):
        await client.post("pools", VMS, 201)
        machines(home, HostState.READY)
        for path, body in (("p1/stop", {"worker": "vm-9"}), ("p2/stop", {}), ("p1%2F..%2Fp2/delete", {})):
            assert (await client.ask(f"/api/v1/pools/{path}", "POST", data=body)).status == 404
        assert (await client.ask("/api/v1/pools/p1/scale", "POST", data={})).status == 400
        assert len(ordered.wanted) == 1


async def test_a_server_that_keeps_no_pools_refuses_before_it_writes(home: Path, client: Client):
    reply = await client.ask("/api/v1/pools", "POST", data=VMS)
    assert (reply.status, "manages no pools" in reply.json["error"]["message"]) == (409, True)
    assert (await client.get("pools"))["pools"] == []


async def test_a_server_that_only_looks_starts_nobody(home: Path):
    async with serving(home, Options(port=0, drive=False)) as client:
        assert client.server.site.pool_supervisor is None


def standing(**changes: bool) -> PoolStanding:
    return PoolStanding(**{"owned": False, "settled": False, "used": False, **changes})


def test_what_failed_is_tried_again_later_and_what_is_done_is_left_alone():
    again_after_s = PoolChildren(reachable=True).delay_s
    assert again_after_s(0, standing(settled=True), 0) is None
    assert again_after_s(3, standing(settled=True), 0) is None  # it said why not
    assert again_after_s(-9, standing(settled=True), 0) == 5.0  # killed: who knows
    assert again_after_s(0, standing(), 1) == 10.0
    assert again_after_s(2, standing(), 50) == 900.0


async def test_how_a_pool_stands_is_read_from_what_is_written(home: Path):
    async with own_pool(home) as (client, _):
        await client.post("pools", {**VMS, "budget_usd": 1.0}, 201)

        def standings_now() -> PoolStanding:
            with closing(open_store(home)) as store:
                return standings(store)["p1"]

        assert standings_now() == standing(), "two machines are missing"
        first, second = machines(home, HostState.READY, HostState.PREPARING)
        assert not standings_now().settled, "one is on its way"
        with closing(open_store(home)) as store:
            store.pools.explain("p1", {"cause": "quota", "message": "no more"})
            assert not standings(store)["p1"].settled, "what is there is still looked after"
            pool = store.pools.take("p1", "me")
            assert standings(store)["p1"].owned
            hosts = {host.name: host for host in store.hosts.of_pool("p1")}
            ready = replace(hosts[second], state=HostState.READY)
            assert store.hosts.move(pool, HostState.PREPARING, ready)
            store.pools.leave(pool)
            assert standings(store)["p1"] == standing(settled=True)
            store.runs.submit("r", Policy(workers=1, pool="p1"), [], folder="/", base_env={}, open=True)
            assert standings(store)["p1"] == standing(settled=True, used=True)
            pool = store.pools.take("p1", "me")
            dear = replace(hosts[first], usd_per_hour=1.0, allocated_since=store.now() - 3 * 3600)
            assert store.hosts.move(pool, HostState.READY, dear)
            store.pools.leave(pool)
            assert not standings(store)["p1"].settled, "its budget is spent, and machines run"
            store.hosts.set_desired("p1", [first, second], DesiredState.STOPPED, "")
            pool = store.pools.take("p1", "me")
            for host in store.hosts.of_pool("p1"):
                assert store.hosts.move(pool, HostState.READY, replace(host, state=HostState.STOPPED))
            store.pools.leave(pool)
            assert standings(store)["p1"].settled, "they are stopped"
            store.hosts.set_desired("p1", [first], DesiredState.GONE, "")
            assert not standings(store)["p1"].settled
