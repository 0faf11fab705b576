"""`evalfleet pool create`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalfleet.cli.options import home_option, json_option
from evalfleet.cli.pools.choosing import require_name

if TYPE_CHECKING:
    from evalfleet.store.base import StoreReader


@click.command("create")
@click.argument("name")
@click.option("--backend", type=click.Choice(["ssh"]), required=True, help="How its machines are reached.")
@click.option(
    "--hosts", "hosts_file", type=click.Path(path_type=Path), required=True, help="A hosts file, such as hosts.toml."
)
@click.option("--trust-first-use", is_flag=True, help="Learn the key of a host that nobody knows yet, and say so.")
@click.option("--replace", is_flag=True, help="Give a pool that is there other hosts.")
@json_option
@home_option
def command(
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
    from evalfleet.report.text import count
    from evalfleet.store.sqlite import open_store

    require_name(name)
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
