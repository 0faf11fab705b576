"""`evalfleet pool create`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalfleet.cli.pools.shared.options import RENTED, rented_options
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.config import Settings
    from evalfleet.store.store import Store


@click.command("create")
@click.argument("name")
@click.option("--backend", type=click.Choice(["ssh", "azure-vm"]), help="How it gets its machines.")
@click.option("--hosts", "hosts_file", type=click.Path(path_type=Path), help="ssh: a hosts file, such as hosts.toml.")
@click.option("--trust-first-use", is_flag=True, help="ssh: learn the key of a host that nobody knows yet, and say so.")
@click.option("--replace", is_flag=True, help="ssh: give a pool that is there other hosts.")
@rented_options
@json_option
@home_option
def command(
    name: str,
    backend: str | None,
    hosts_file: Path | None,
    trust_first_use: bool,
    replace: bool,
    as_json: bool,
    home: str | None,
    **rented: Any,
) -> int:
    """Make a pool: of machines that exist (ssh), or of VMs that are made now (azure-vm).

    Nothing is done to machines that exist before a run uses them. VMs are made, proved ready and paid for from now on: at
    most --max-hours after evalfleet was last there they stop by themselves. What is not given here is taken from
    [pool.NAME] in evalfleet.toml. Exit codes: 0 ready; 3 not all of it.
    """
    from evalfleet import config
    from evalfleet.cli.pools.shared.options import wanted_pool
    from evalfleet.pools.options import require_name
    from evalfleet.store.open import open_store

    require_name(name)
    settings = config.load(home)
    written = settings.pools.get(name, {})
    backend = backend or written.get("backend") or ("ssh" if hosts_file else None)
    if backend is None:
        raise click.UsageError(f"--backend: say ssh or azure-vm, or write [pool.{name}] in evalfleet.toml.")
    if backend == "azure-vm":
        wanted = wanted_pool(written, rented, hosts_file)
        store = open_store(settings.home)
        try:
            return _rent(settings, store, name, wanted, as_json=as_json)
        finally:
            store.close()
    given = [option for option, value in rented.items() if value not in (None, False, ())]
    if given:
        raise click.UsageError(f"{RENTED[given[0]]} is for azure-vm; the hosts file says what machines of ssh are.")
    hosts_file = hosts_file or (Path(written["hosts"]) if "hosts" in written else None)
    if hosts_file is None:
        raise click.UsageError("--hosts: name the file with the machines; docs/howto says what it looks like.")
    store = open_store(settings.home)
    try:
        _keep(store, name, hosts_file, trust_first_use=trust_first_use, replace=replace, as_json=as_json)
    finally:
        store.close()
    return 0


def _rent(settings: Settings, store: Store, name: str, wanted: dict[str, Any], *, as_json: bool) -> int:
    """Write down what is wanted, then make it true. Done again, it goes on with what an earlier call left."""
    from evalfleet.cli.pools.shared.apply import made_true
    from evalfleet.pools.commands import rent

    rent(settings, store, name, wanted)
    return made_true(settings, store, name, as_json=as_json)


def _keep(store: Store, name: str, hosts_file: Path, *, trust_first_use: bool, replace: bool, as_json: bool) -> None:
    from evalfleet.hosts.ssh import pool as ssh_pool
    from evalfleet.pools.commands import keep
    from evalfleet.report.text import count

    pool = keep(store, name, ssh_pool.settings(hosts_file, trust_first_use=trust_first_use), replace=replace)
    hosts = ssh_pool.hosts(pool)
    workers = sum(host.slots for host in hosts)
    if as_json:
        click.echo(json.dumps({"pool": name, "backend": "ssh", "hosts": len(hosts), "workers": workers}))
        return
    click.echo(f"pool {name}: {count(len(hosts), 'host')}, {count(workers, 'worker')}")
    click.echo(f"`evalfleet pool status {name} --probe` asks them; `evalfleet run TASKS --pool {name}` uses them")
