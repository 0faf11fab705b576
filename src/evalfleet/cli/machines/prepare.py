"""`evalfleet prepare`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import convert

from evalfleet.answers.machines import CheckRow, Prepared, PreparedHost, PreparedPool
from evalfleet.cli.shared.document import print_answer, print_document
from evalfleet.cli.shared.options import home_option, json_option, wheels_option

if TYPE_CHECKING:
    from evalfleet.benchmarks.base import Benchmark
    from evalfleet.config import Settings
    from evalfleet.core.readiness import ReadinessCheck, Update
    from evalfleet.hosts.access import ReachableHost, UnavailableHost
    from evalfleet.hosts.ssh.tools import ToolsPackage
    from evalfleet.layout import Home
    from evalfleet.model import Tools

NOT_READY = 3


@click.command("prepare")
@click.argument("benchmark")
@click.option("--pool", metavar="NAME", help="Prepare the hosts of this pool.  [default: this machine]")
@wheels_option
@json_option
@home_option
def command(benchmark: str, pool: str | None, wheels: Path | None, as_json: bool, home: str | None) -> int:
    """Make this machine or a pool's hosts ready for a benchmark, check by check, and say which check does not hold.

    On hosts the packages that its tasks need come first, in a virtual environment under ~/.evalfleet/tools; all hosts are
    prepared at the same time. A run does the same when it connects to a host that is not prepared. What is checked,
    each benchmark says; docs/howto/run-waa.md has the list of waa. Exit codes: 0 ready; 3 a check does not hold.
    """
    from evalfleet import config
    from evalfleet.benchmarks import registry

    settings = config.load(home)
    found = registry.find(benchmark, settings)
    if pool is None:
        if wheels is not None:
            raise click.UsageError("--wheels is for the hosts of a --pool.")
        return _here(settings, found, as_json)
    from evalfleet.benchmarks.worker_tools import tools_of

    return on_hosts(settings, home, pool, tools_of(found, settings), wheels, as_json)


def _here(settings: Settings, benchmark: Benchmark, as_json: bool) -> int:
    from evalfleet import config
    from evalfleet.benchmarks.readiness import prepare
    from evalfleet.benchmarks.worker_tools import tools_of

    secrets = config.set_secrets(tools_of(benchmark, settings).secrets)
    checks = prepare(benchmark, lambda check: show_check(check, as_json), show_update, secrets)
    ready = all(check.holds for check in checks)
    told = Prepared(benchmark=benchmark.name, ready=ready, checks=_rows(checks))
    print_answer(as_json, told, f"{benchmark.name} is ready" if ready else f"{benchmark.name} is not ready")
    return 0 if ready else NOT_READY


def on_hosts(settings: Settings, home: str | None, name: str, tools: Tools, wheels: Path | None, as_json: bool) -> int:
    """Make the hosts of a pool ready and show how; returns the exit code."""
    import anyio

    from evalfleet.cli.pools.shared.hosts import found
    from evalfleet.hosts.ssh.tools import package_of
    from evalfleet.layout import Home

    hosts, package = found(home, name), package_of(tools, wheels)
    rows = anyio.run(_all, hosts, Home(settings.home), tools, package, as_json)
    ready = [host for host, checks in rows.items() if all(check.holds for check in checks)]
    if as_json:
        told = [PreparedHost(host=host, ready=host in ready, checks=_rows(checks)) for host, checks in rows.items()]
        print_document(PreparedPool(benchmark=tools.benchmark, pool=name, ready=len(ready) == len(rows), hosts=told))
    else:
        others = sorted(rows.keys() - set(ready))
        lacking = f"; not ready: {', '.join(others)}" if others else ""
        click.echo(f"{len(ready)} of {len(rows)} hosts are ready for {tools.benchmark}{lacking}")
    return 0 if len(ready) == len(rows) else NOT_READY


async def _all(
    hosts: Sequence[ReachableHost | UnavailableHost], home: Home, tools: Tools, package: ToolsPackage, as_json: bool
) -> dict[str, list[ReadinessCheck]]:
    """Every host at the same time; what goes wrong with one is one of its checks."""
    import anyio

    from evalfleet.core.readiness import ReadinessCheck
    from evalfleet.hosts.access import UnavailableHost
    from evalfleet.hosts.ssh.backend import SshBackend, SshSettings

    rows: dict[str, list[ReadinessCheck]] = {host.name: [] for host in hosts}

    async def prepare(host: ReachableHost | UnavailableHost) -> None:
        def tell(check: ReadinessCheck) -> None:
            show_check(check, as_json, host.name)

        if isinstance(host, UnavailableHost):
            check = ReadinessCheck(name="ssh", holds=False, seen=host.why, remedy="then prepare again")
            tell(check)
            rows[host.name] = [check]
            return
        shared = SshSettings(trust_first_use=host.trust_first_use, known_hosts=host.known_hosts)
        backend = SshBackend(home, host.spec, shared, lambda text: show_update(str(text)))
        rows[host.name] = await backend.prepare(
            tools, tell, lambda update: show_update(f"{host.name}: {update}"), package
        )

    async with anyio.create_task_group() as group:
        for host in hosts:
            group.start_soon(prepare, host)
    return rows


def _rows(checks: list[ReadinessCheck]) -> list[CheckRow]:
    return convert([check.row() for check in checks], list[CheckRow])


def show_check(check: ReadinessCheck, as_json: bool, host: str = "") -> None:
    """Print what a check found; nothing where the answer is JSON."""
    from evalfleet.report.text import printable

    if as_json:
        return
    of = f" {check.of}" if check.of else ""
    where = f"{host} " if host else ""
    took = f" ({check.took_s:.1f} s)" if check.took_s else ""
    click.echo(f"{where}{'+' if check.holds else '-'} {check.name}{of}: {printable(check.seen)}{took}")
    if not check.holds and check.remedy:
        click.echo(f"{where}    {printable(check.remedy)}")
    sys.stdout.flush()


def show_update(update: Update) -> None:
    """Print what goes on, on standard error."""
    from evalfleet.report.text import printable

    click.echo(f"evalfleet: {printable(str(update))}", err=True)
