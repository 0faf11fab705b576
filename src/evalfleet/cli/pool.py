"""`evalfleet pool`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalfleet.cli.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.layout import Home
    from evalfleet.model import Pool
    from evalfleet.store.base import StoreReader

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")


@click.group("pool")
def command() -> None:
    """Keep named sets of machines for runs: `evalfleet run … --pool NAME` uses them."""


@command.command("create")
@click.argument("name")
@click.option("--backend", type=click.Choice(["ssh"]), required=True, help="How its machines are reached.")
@click.option(
    "--hosts", "hosts_file", type=click.Path(path_type=Path), required=True, help="A hosts file, such as hosts.toml."
)
@click.option("--trust-first-use", is_flag=True, help="Learn the key of a host that nobody knows yet, and say so.")
@click.option("--replace", is_flag=True, help="Give a pool that is there other hosts.")
@json_option
@home_option
def create(
    name: str,
    backend: str,
    hosts_file: Path,
    trust_first_use: bool,
    replace: bool,
    as_json: bool,
    home: str | None,
) -> None:
    """Make a pool of machines that exist. Nothing is done to them before a run uses them."""
    from evalfleet import config
    from evalfleet.backends import ssh_pool
    from evalfleet.errors import InputError
    from evalfleet.report.text import count
    from evalfleet.store.sqlite import open_store

    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot name a pool; use small letters, digits, '-', '_' and '.', at most 64 of them"
        )
    made = ssh_pool.settings(hosts_file, trust_first_use=trust_first_use)
    store = open_store(config.load(home).home)
    try:
        _refuse_shared_hosts(store, name, made["hosts"])
        pool = (store.replace_pool if replace else store.create_pool)(name, backend, made)
    finally:
        store.close()
    hosts = ssh_pool.hosts(pool)
    workers = sum(host.slots for host in hosts)
    if as_json:
        click.echo(json.dumps({"pool": name, "backend": backend, "hosts": len(hosts), "workers": workers}))
        return
    click.echo(f"pool {name}: {count(len(hosts), 'host')}, {count(workers, 'worker')}")
    click.echo(f"`evalfleet pool status {name} --probe` asks them; `evalfleet run TASKS --pool {name}` uses them")


@command.command("list")
@json_option
@home_option
def list_(as_json: bool, home: str | None) -> None:
    """List the pools."""
    reader, pools = _opened(home)
    rows = [_row(pool) for pool in pools]
    if reader is not None:
        reader.close()
    if as_json:
        click.echo(json.dumps({"pools": rows}))
    elif not rows:
        click.echo("no pools yet; `evalfleet pool create NAME --backend ssh --hosts hosts.toml` makes one")
    for row in () if as_json else rows:
        click.echo(f"{row['name']:<20} {row['backend']:<9} {row['hosts']:>3} hosts  {row['workers']:>3} workers")


@command.command("status")
@click.argument("name", required=False)
@click.option("--probe", is_flag=True, help="Ask every host now.")
@json_option
@home_option
def status(name: str | None, probe: bool, as_json: bool, home: str | None) -> None:
    """Show a pool's hosts: workers, price, and what runs there. NAME may be left out when there is one pool."""
    reader, pools = _opened(home)
    try:
        told = _told(reader, _chosen(name, pools), _home(home), probe)
    finally:
        if reader is not None:
            reader.close()
    click.echo(json.dumps(told) if as_json else _page(told))


@command.command("delete")
@click.argument("name")
@json_option
@home_option
def delete(name: str, as_json: bool, home: str | None) -> None:
    """Forget a pool. Its machines are left as they are. Refused while a run that is not over uses it."""
    from evalfleet import config
    from evalfleet.store.sqlite import open_store

    store = open_store(config.load(home).home)
    try:
        store.delete_pool(name)
    finally:
        store.close()
    click.echo(json.dumps({"deleted": name}) if as_json else f"pool {name} is deleted; its machines are as they were")


def _home(home: str | None) -> Home:
    from evalfleet import config
    from evalfleet.layout import Home

    return Home(config.load(home).home)


def _opened(home: str | None) -> tuple[StoreReader | None, list[Pool]]:
    from evalfleet.store.sqlite import open_reader

    reader = open_reader(_home(home).path)
    return reader, reader.pools() if reader is not None else []


def _chosen(name: str | None, pools: list[Pool]) -> Pool:
    from evalfleet.errors import InputError, NotFound

    known = ", ".join(pool.name for pool in pools)
    if name is None:
        if len(pools) == 1:
            return pools[0]
        raise InputError(f"which pool? There are: {known}." if pools else "there are no pools yet.")
    for pool in pools:
        if pool.name == name:
            return pool
    raise NotFound(f"there is no pool {name!r}; known pools: {known or 'none'}")


def _refuse_shared_hosts(store: StoreReader, name: str, rows: list[dict[str, Any]]) -> None:
    """Attempts are kept by the name of their host, so that in one home a name stands for one machine."""
    from evalfleet.backends import registry
    from evalfleet.errors import InputError

    taken = {
        host.name: pool.name
        for pool in store.pools()
        if pool.name != name
        for host in registry.kind_of(pool).hosts(pool)
    }
    for row in rows:
        if row["name"] in taken or row["name"] == "local":
            owner = f"pool {taken[row['name']]!r}" if row["name"] in taken else "this machine"
            raise InputError(
                f"the host name {row['name']!r} belongs to {owner}; give it another `name` in the hosts file"
            )


def _row(pool: Pool) -> dict[str, Any]:
    from evalfleet.backends import registry

    hosts = registry.kind_of(pool).hosts(pool)
    return {
        "name": pool.name,
        "backend": pool.backend,
        "hosts": len(hosts),
        "workers": sum(host.slots for host in hosts),
        "created_at": pool.created_at,
    }


def _told(reader: StoreReader | None, pool: Pool, home: Home, probe: bool) -> dict[str, Any]:
    from evalfleet.backends import registry

    kind = registry.kind_of(pool)
    loads = reader.host_loads() if reader is not None else {}
    rows: list[dict[str, Any]] = [
        {
            "host": host.name,
            "workers": host.slots,
            "busy": loads.get(host.name, 0),
            "price_usd_per_hour": host.price_usd_per_hour,
        }
        for host in kind.hosts(pool)
    ]
    if probe:
        import anyio

        found = anyio.run(kind.probe, pool, home)
        rows = [{**row, "probe": found[row["host"]]} for row in rows]
    return {**_row(pool), "hosts": rows}


def _page(told: dict[str, Any]) -> str:
    lines = [f"pool {told['name']} ({told['backend']}): {told['workers']} workers on {len(told['hosts'])} hosts", ""]
    width = max(len(row["host"]) for row in told["hosts"])
    for row in told["hosts"]:
        line = f"  {row['host']:<{width}}  {row['busy']}/{row['workers']} busy  {row['price_usd_per_hour']:.3f} $/h"
        lines.append(f"{line}  {_probed(row['probe'])}" if "probe" in row else line)
    return "\n".join(lines)


def _probed(probe: dict[str, Any]) -> str:
    if not probe["reachable"]:
        return f"not reached: {probe['error']}"
    has = probe["host"]
    runner = "its runner answers" if probe["answers"] else "no runner"
    disk = f"{has['disk_free_mb'] / 1024:.0f} GB free"
    return f"reached: {has['cpus']} CPUs, {has['memory_mb'] / 1024:.0f} GB, {disk}, Python {has['python']}, {runner}"
