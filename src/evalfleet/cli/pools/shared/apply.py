"""Shared by the commands that change a pool: store the desired state, reconcile, and show the result."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from evalfleet.answers.pools import DeletedPool
from evalfleet.cli.pools.shared.pools import chosen
from evalfleet.cli.shared.document import print_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from evalfleet.config import Settings
    from evalfleet.model import Pool, PoolHost
    from evalfleet.operations.machines.pools import Order
    from evalfleet.store.store import Store

NOT_REACHED = 3


class Teller:
    """Prints one line for each step of each machine."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._said: dict[str, str] = {}

    def __call__(self, host: PoolHost) -> None:
        from evalfleet.report.text import printable

        line = _line(host)
        if not self._quiet and self._said.get(host.name) != line:
            self._said[host.name] = line
            click.echo(f"{host.name}  {printable(line)}")


def _line(host: PoolHost) -> str:
    from evalfleet.model import HostState
    from evalfleet.pools.machine.facts import facts_of

    facts = facts_of(host)
    told = {
        HostState.CREATING: f"creating: {facts.size} in {facts.region}" + (", spot" if facts.spot else ""),
        HostState.PREPARING: f"preparing: {host.readiness_check}",
    }.get(host.state, str(host.state))
    return f"{told} ({host.reason})" if host.reason else told


def ordered(order: Callable[[Store, Pool], Order], name: str | None, *, home: str | None, as_json: bool) -> int:
    """Change the desired state of a pool of VMs, or of one machine, and reconcile; see `meant` and `made_true`."""
    from evalfleet import config
    from evalfleet.cli.pools.shared.table import page
    from evalfleet.operations.machines.pools import require_account, status
    from evalfleet.pools.kinds.base import HasMembers
    from evalfleet.pools.kinds.registry import kind_of
    from evalfleet.store.open import open_store

    settings = config.load(home)
    with closing(open_store(settings.home)) as store:
        found = chosen(name, store.pools.all())
        if isinstance(kind_of(found), HasMembers):
            order(store, found)
            facts = status(settings, store, store.pools.get(found.name))
            print_answer(as_json, facts, page(facts))
            return 0
        pool = meant(store, name)
        require_account(settings, pool)
        return made_true(settings, store, order(store, pool), as_json=as_json)


def made_true(settings: Settings, store: Store, order: Order, *, as_json: bool) -> int:
    """Reconcile the pool, print its state, and return the exit code that says whether it is as desired."""
    from functools import partial

    import anyio

    from evalfleet.cli.pools.shared.table import page
    from evalfleet.daemon.alerts.beside import alerts_beside
    from evalfleet.operations.machines.pools import reconcile
    from evalfleet.pools.cloud.waits import told_to

    teller = Teller(quiet=as_json)
    created_at = store.pools.get(order.pool).created_at  # another pool may have had its name before

    def tell(text: str) -> None:
        click.echo(f"evalfleet: {text}", err=True)

    with alerts_beside(settings, tell), told_to(tell):
        facts = anyio.run(partial(reconcile, settings, store, order, tell=teller))
    if facts is None:
        now, machines = store.now(), store.plans.machines(order.pool, created_at)
        usd = sum(machine.cost_usd(now) for machine in machines)
        gone = DeletedPool(deleted=order.pool, left={}, cost_usd=usd)
        print_answer(as_json, gone, f"pool {order.pool} is deleted: nothing of it is left. It cost ${usd:.2f}")
        return 0
    print_answer(as_json, facts, page(facts))
    failed = facts.reason is not None or any(row.state == "quarantined" for row in facts.hosts)
    return NOT_REACHED if failed else 0


def meant(store: Store, name: str | None) -> Pool:
    """The named pool of VMs; without a name the only one. Raises InputError for machines that evalfleet did not create."""
    from evalfleet.pools.kinds.registry import cloud_of

    pool = chosen(name, store.pools.all())
    cloud_of(pool)
    return pool
