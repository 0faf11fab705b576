"""A run that makes its own machines: the options, and the pool that comes and goes with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from evalfleet.cli.shared.options import gathered

if TYPE_CHECKING:
    from evalfleet.config import Settings
    from evalfleet.model import Run
    from evalfleet.operations.runs.submit import Submitted
    from evalfleet.store.store import Store
    from evalfleet.taskfile import Submission


class Machines(Struct, frozen=True, kw_only=True):
    """What was asked for."""

    backend: str | None
    keep: bool
    size: str | None
    regions: str | None
    spot: bool | None
    max_hours: float | None

    def check(self, pool: str | None) -> None:
        """Raises click.UsageError where options do not go together."""
        given = [
            f"--{name.replace('_', '-')}"
            for name in ("keep", "size", "regions", "spot", "max_hours")
            if getattr(self, name)
        ]
        if self.backend is not None and pool is not None:
            raise click.UsageError(
                "--backend creates machines for this run, --pool uses those of a pool; give only one."
            )
        if self.backend is None and given:
            raise click.UsageError(
                f"{given[0]} needs --backend, such as --backend azure-vm: it applies to machines created for this run."
            )


machine_options = gathered(
    "machines",
    Machines,
    click.option("--backend", metavar="KIND", help="Create machines for this run and delete them afterwards."),
    click.option("--keep", is_flag=True, help="--backend: keep the machines as a pool."),
    click.option("--size", metavar="SIZES", help="--backend: machine sizes, comma-separated, most preferred first."),
    click.option("--regions", metavar="REGIONS", help="--backend: regions, comma-separated, most preferred first."),
    click.option(
        "--spot", is_flag=True, default=None, help="--backend: spot machines: cheaper, but can be evicted at any time."
    ),
    click.option(
        "--max-hours",
        type=click.FloatRange(0.5, 720),
        help="--backend: machines stop after this many hours without a controller.",
    ),
)
"""Gives the command `machines: Machines`."""


def submit_on_own(
    settings: Settings,
    store: Store,
    submission: Submission,
    machines: Machines,
    *,
    workers: int | None,
    mix: Mapping[str, int] | None = None,
    **wanted: Any,
) -> tuple[Run, Submitted]:
    """Store a run and the pool that goes with it, both or neither; the machines are asked for when the run is driven.

    Args:
        mix: how many machines of each size, where they are not alike.

    Raises InputError, and NotFound for an unknown size.
    """
    import secrets

    from evalfleet.cli.shared.account_checks import may_buy
    from evalfleet.config.pools import PoolOptions, given
    from evalfleet.errors import InputError
    from evalfleet.operations.machines.pools import amend
    from evalfleet.operations.runs.submit import RunOptions, submit
    from evalfleet.pools.kinds import registry

    assert machines.backend is not None
    kind = registry.find(machines.backend)
    if not kind.creates_machines:
        raise InputError(f"--backend {kind.name}: its machines exist already; make a pool of them and use --pool")
    if workers is None:
        raise InputError(f"--backend {kind.name} needs --workers: how many machines to make")
    most = min(workers, len(submission.tasks))
    options = PoolOptions(
        workers=most,
        min=0,
        max=most,
        size=machines.size,
        regions=machines.regions,
        spot=machines.spot,
        max_hours=machines.max_hours,
    )
    kept = kind.settings({**given(options), **({"mix": dict(mix)} if mix else {})}, settings)
    if not may_buy(settings, kind, kept):
        raise InputError("nothing was bought, and the run was not submitted; see above")
    name = f"run-{secrets.token_hex(3)}"
    with store.batch():
        pool = store.pools.create(name, kind.name, kept)
        run, answer = submit(settings, store, submission, RunOptions(pool=name, workers=workers, **wanted))
        if not machines.keep:
            amend(store, pool, run=run.id)
    return run, answer


def submit_as_planned(
    settings: Settings,
    store: Store,
    source: str,
    submission: Submission,
    machines: Machines,
    plan: str,
    *,
    pool: str | None,
    workers: int | None,
    **wanted: Any,
) -> tuple[Run, Submitted]:
    """Store a run with the machines that a plan chose, and that it follows the plan: all or nothing.

    Args:
        plan: an id; "newest": the newest of the same tasks that no run follows.

    Raises InputError, NotFound, WrongState; click.UsageError for options that the plan has decided.
    """
    from evalfleet.operations.plans.take import machines_of, needing, plan_for

    if pool or workers or machines.backend:
        raise click.UsageError("--plan decides about the machines; leave out --pool, --workers and --backend.")
    found = plan_for(store, source, len(submission.tasks), None if plan == "newest" else plan)
    planned = machines_of(found)
    chosen = Machines(
        backend=found.backend,
        keep=False,
        size=",".join(planned.sizes),
        regions=",".join(planned.regions),
        spot=planned.spot,
        max_hours=None,
    )
    with store.batch():
        run, answer = submit_on_own(
            settings, store, needing(submission, found), chosen, workers=planned.workers, mix=planned.mix, **wanted
        )
        store.plans.take(found.id, run.id)
    return run, answer
