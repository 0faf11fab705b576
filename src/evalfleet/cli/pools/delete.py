"""`evalfleet pool delete`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from evalfleet.cli.pools.shared.options import worker_option
from evalfleet.cli.shared.document import document
from evalfleet.cli.shared.options import force_option, home_option, json_option

if TYPE_CHECKING:
    from evalfleet.config import Settings
    from evalfleet.model import Pool
    from evalfleet.store.store import Store


_REMOVE_S = 20.0  # for one host


@click.command("delete")
@click.argument("name", required=False)
@worker_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@force_option
@json_option
@home_option
def command(name: str | None, worker: str | None, yes: bool, force: bool, as_json: bool, home: str | None) -> int:
    """Delete a pool, or one machine of it. Machines that we made go with disks, addresses and networks; others stay, without
    our folder where it is reached and idle.

    Refused while a run that is not over uses the pool. A machine with results that are not collected yet is waited for.
    NAME may be left out when there is one pool.
    """
    from evalfleet import config
    from evalfleet.cli.pools.shared.pools import chosen
    from evalfleet.pools.commands import delete
    from evalfleet.pools.kinds.registry import creates_machines
    from evalfleet.store.open import open_store

    settings = config.load(home)
    store = open_store(settings.home)
    try:
        pool = chosen(name, store.pools.all())
        if worker is None and not creates_machines(pool):
            delete(store, pool, None)
            left = _left_on_hosts(settings, store, pool)
            if as_json:
                click.echo(document({"deleted": pool.name, "left": left}))
                return 0
            click.echo(f"pool {pool.name} is deleted; its machines are as they were")
            for host, why in left.items():
                click.echo(f"{host}: our folder stays there: {why}")
            return 0
        return _end(settings, store, pool, worker, yes=yes, force=force, as_json=as_json)
    finally:
        store.close()


def _left_on_hosts(settings: Settings, store: Store, pool: Pool) -> dict[str, str]:
    """Remove our folders from machines that no other pool of this home uses. Returns where one stays, and why."""
    import anyio

    from evalfleet.errors import EvalfleetError
    from evalfleet.hosts.ssh import pool as ssh_pool
    from evalfleet.store.home.facts import identified

    specs = [spec for other in store.pools.all() if other.backend == "ssh" for spec in ssh_pool.hosts(other)]
    used = [(spec.login, spec.jump, spec.folder) for spec in specs]
    wanted = {spec.name for spec in ssh_pool.hosts(pool) if (spec.login, spec.jump, spec.folder) not in used}
    home = identified(settings.home, store.home.identity())
    left: dict[str, str] = {}

    async def remove(backend: ssh_pool.SshBackend) -> None:
        try:
            with anyio.fail_after(_REMOVE_S):
                said = await backend.remove()
            if not said.get("removed"):
                left[backend.name] = str(said.get("why") or said.get("message") or "it does not say why")
        except TimeoutError:
            left[backend.name] = f"the host does not answer within {_REMOVE_S:g} s"
        except EvalfleetError as error:
            left[backend.name] = str(error)

    async def act() -> None:
        async with anyio.create_task_group() as group:
            for backend in ssh_pool.backends(pool, home, lambda _: None):
                if backend.name in wanted:
                    group.start_soon(remove, backend)

    anyio.run(act)
    return dict(sorted(left.items()))


def _end(
    settings: Settings, store: Store, pool: Pool, worker: str | None, *, yes: bool, force: bool, as_json: bool
) -> int:
    from evalfleet.cli.pools.shared.apply import made_true
    from evalfleet.errors import InputError
    from evalfleet.pools.commands import delete, machines
    from evalfleet.pools.kinds.registry import cloud_of
    from evalfleet.report.text import count

    cloud_of(pool).require_account(pool, settings)
    names = machines(store, pool, worker)
    what = names[0] if worker else f"pool {pool.name}"
    if not yes and names:
        question = f"delete {what}: {count(len(names), 'machine')} with all that is on their disks?"
        if not sys.stdin.isatty():
            raise InputError(f"{question} Say --yes; nobody is there to be asked.")
        click.confirm(question, abort=True, err=True)
    delete(store, pool, worker, force=force)
    return made_true(settings, store, pool.name, as_json=as_json, creates=False)
