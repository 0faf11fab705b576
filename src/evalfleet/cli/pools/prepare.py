"""`evalfleet pool prepare`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from evalfleet.cli.shared.options import home_option, json_option, pool_argument, wheels_option


@click.command("prepare")
@pool_argument
@click.option("--benchmark", metavar="NAME", help="Benchmark to prepare for.  [default: the pool's]")
@wheels_option
@json_option
@home_option
def command(name: str | None, benchmark: str | None, wheels: Path | None, as_json: bool, home: str | None) -> int:
    """Prepare the hosts of a pool, check by check, and report the checks that fail.

    Cloud machines pass the readiness checks first, quarantined ones again; with --benchmark, machines that come
    later are prepared for it too. NAME may be left out when there is one pool. Exit codes: 0 ready; 3 not all are.
    """
    from evalfleet import config
    from evalfleet.benchmarks import registry
    from evalfleet.benchmarks.worker_tools import tools_of
    from evalfleet.cli.machines.prepare import on_hosts
    from evalfleet.cli.pools.shared.apply import made_true
    from evalfleet.cli.pools.shared.pools import chosen
    from evalfleet.operations.machines.pools import Order, amend
    from evalfleet.pools.kinds.registry import creates_machines
    from evalfleet.store.open import open_store

    settings = config.load(home)
    tools = tools_of(registry.find(benchmark, settings), settings) if benchmark else None
    with closing(open_store(settings.home)) as store:
        pool = chosen(name, store.pools.all())
        if creates_machines(pool):
            if benchmark is not None:
                amend(store, pool, benchmark=benchmark, kvm=registry.needs_kvm(benchmark))
            code = made_true(settings, store, Order(pool=pool.name, again=True), as_json=as_json)
            if code != 0 or tools is None:
                return code
    if tools is None:
        raise click.UsageError("--benchmark: name the benchmark to prepare the hosts for.")
    return on_hosts(settings, home, pool.name, tools, wheels, as_json)
