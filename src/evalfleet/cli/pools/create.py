"""`evalfleet pool create`."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

from evalfleet.answers.pools import CreatedPool
from evalfleet.cli.pools.shared.options import pool_options
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option


@click.command("create")
@click.argument("name")
@click.option(
    "--backend",
    metavar="KIND",
    help="Where machines come from: ssh, azure-vm, azure-batch, ray, slurm, tiers or a plug-in's.",
)
@click.option("--replace", is_flag=True, help="ssh, tiers: replace the hosts or tiers of an existing pool.")
@pool_options
@json_option
@home_option
def command(name: str, backend: str | None, replace: bool, as_json: bool, home: str | None, **options: Any) -> int:
    """Create a pool of existing machines (ssh), new VMs (azure-vm), actors on Ray (ray), jobs on Slurm (slurm) or other pools (tiers).

    Existing machines and clusters are not touched until a run uses them. VMs are created, checked and paid for from now on; they
    stop after --max-hours without a controller. A run on tiers uses the first of them that works and has room.
    Options not given are taken from [pool.NAME] in evalfleet.toml. Exit codes: 0 ready; 3 not all machines are ready.
    """
    from evalfleet import config
    from evalfleet.cli.pools.shared.apply import made_true
    from evalfleet.operations.machines.pools import Order, create
    from evalfleet.pools.kinds.registry import kind_of, with_members
    from evalfleet.report.text import count
    from evalfleet.store.open import open_store

    settings = config.load(home)
    with closing(open_store(settings.home)) as store:
        pool = create(settings, store, name, options, backend=backend, replace=replace)
        kind = kind_of(pool)
        if kind.creates_machines:
            from evalfleet.cli.shared.account_checks import may_buy

            if not store.hosts.of_pool(name, gone=True) and not may_buy(settings, kind, pool.settings):
                click.echo(f"pool {name}: nothing was bought; run the same command again when that is mended", err=True)
                return 3
            return made_true(settings, store, Order(pool=name), as_json=as_json)
        members = with_members(store, pool)
        hosts = sum(len(kind_of(one).hosts(one, store.hosts.of_pool(one.name))) for one in members)
    workers = sum(kind_of(one).slots(one) for one in members)
    if as_json:
        print_document(CreatedPool(pool=name, backend=kind.name, hosts=hosts, workers=workers, by=None))
        return 0
    if members != [pool]:
        click.echo(f"pool {name}: {count(len(members), 'tier')}, {count(workers, 'worker')} at most")
        click.echo(
            f"`evalfleet pool status {name}` shows which are used; `evalfleet run TASKS --pool {name}` uses them"
        )
        return 0
    click.echo(f"pool {name}: {count(hosts, 'host')}, {count(workers, 'worker')}")
    click.echo(f"`evalfleet pool status {name} --probe` asks them; `evalfleet run TASKS --pool {name}` uses them")
    return 0
