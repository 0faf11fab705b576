"""`evalfleet pool delete`."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

import click

from evalfleet.cli.pools.shared.options import worker_option
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import force_option, home_option, json_option, pool_argument

if TYPE_CHECKING:
    from evalfleet.config import Settings
    from evalfleet.model import Pool
    from evalfleet.store.store import Store


@click.command("delete")
@pool_argument
@worker_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@force_option
@json_option
@home_option
def command(name: str | None, worker: str | None, yes: bool, force: bool, as_json: bool, home: str | None) -> int:
    """Delete a pool, or one machine of it. VMs are deleted with disks, addresses and networks; existing machines stay, without
    evalfleet's folder where it is reachable and idle.

    Refused while an unfinished run uses the pool. Waits for machines with uncollected results.
    NAME may be left out when there is one pool.
    """
    from evalfleet import config
    from evalfleet.cli.pools.shared.pools import chosen
    from evalfleet.pools.kinds.registry import creates_machines
    from evalfleet.store.open import open_store

    settings = config.load(home)
    with closing(open_store(settings.home)) as store:
        pool = chosen(name, store.pools.all())
        if worker is None and not creates_machines(pool):
            _forget(settings, store, pool, as_json=as_json)
            return 0
        return _end(settings, store, pool, worker, yes=yes, force=force, as_json=as_json)


def _forget(settings: Settings, store: Store, pool: Pool, *, as_json: bool) -> None:
    """Delete a pool of machines that exist."""
    import anyio

    from evalfleet.answers.pools import DeletedPool
    from evalfleet.operations.machines.pools import delete, leave

    delete(store, pool)
    left = anyio.run(leave(settings, store, pool))
    if as_json:
        print_document(DeletedPool(deleted=pool.name, left=left))
        return
    click.echo(f"pool {pool.name} is deleted; its machines are as they were")
    for host, why in left.items():
        click.echo(f"{host}: our folder stays there: {why}")


def _end(
    settings: Settings, store: Store, pool: Pool, worker: str | None, *, yes: bool, force: bool, as_json: bool
) -> int:
    from evalfleet.cli.pools.shared.apply import made_true
    from evalfleet.errors import InputError
    from evalfleet.operations.machines.pools import delete, machines, require_account
    from evalfleet.report.text import count

    require_account(settings, pool)
    names = machines(store, pool, worker)
    what = names[0] if worker else f"pool {pool.name}"
    if not yes and names:
        question = f"delete {what}: {count(len(names), 'machine')} with all that is on their disks?"
        if not sys.stdin.isatty():
            raise InputError(f"{question} Pass --yes; there is no terminal to ask on.")
        click.confirm(question, abort=True, err=True)
    return made_true(settings, store, delete(store, pool, worker, force=force), as_json=as_json)
