"""`evalfleet benchmarks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec import convert

from evalfleet.answers.home import BenchmarkFacts, BenchmarkTask, Need
from evalfleet.answers.server import BenchmarkList
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.benchmarks.base import Benchmark


@click.command("benchmarks")
@click.argument("name", required=False)
@json_option
@home_option
def command(name: str | None, as_json: bool, home: str | None) -> None:
    """Show the benchmarks, or one benchmark's tasks and what it needs.

    Shows whether this machine can run them, and how to install what is missing.
    """
    from evalfleet import config
    from evalfleet.benchmarks import registry
    from evalfleet.operations.benchmarks import listed

    settings = config.load(home)
    if name is not None:
        told = _whole(registry.find(name, settings))
        print_document(told) if as_json else click.echo(_page(told))
        return
    rows = listed(settings)
    if as_json:
        print_document(BenchmarkList(benchmarks=rows))
        return
    for row in rows:
        state = "broken" if row.broken else "ready" if row.ready else "not ready"
        click.echo(f"{row.name:<12} {state:<10} {row.broken or row.title}")
    click.echo("`evalfleet benchmarks NAME` shows more; `evalfleet run NAME --agent AGENT` runs one")


def _whole(benchmark: Benchmark) -> BenchmarkFacts:
    from evalfleet.benchmarks.base import TakesOptions

    needs = benchmark.requirements()
    return BenchmarkFacts(
        name=benchmark.name,
        title=benchmark.title,
        ready=all(need.present for need in needs),
        options=dict(benchmark.own_options) if isinstance(benchmark, TakesOptions) else {},
        requirements=convert(needs, list[Need], from_attributes=True),
        tasks=convert(benchmark.catalogue(), list[BenchmarkTask], from_attributes=True),
    )


def _page(told: BenchmarkFacts) -> str:
    lines = [f"{told.name}: {told.title}", "", "needs"]
    for need in told.requirements:
        lines.append(f"  {'+' if need.present else '-'} {need.what}: {need.found}")
        if not need.present:
            lines.append(f"      install it with: {need.install}")
    if told.options:
        lines += ["", "takes", *(f"  --option {name}=…  {meaning}" for name, meaning in told.options.items())]
    if not told.tasks:
        return "\n".join([*lines, "", "Its tasks can be listed once that is installed."])
    by_domain: dict[str, list[str]] = {}
    for task in told.tasks:
        by_domain.setdefault(task.domain, []).append(f"{task.name}{'*' if task.oracle else ''}")
    solved = sum(task.oracle for task in told.tasks)
    oracle = f"; the oracle solves the {solved} with a *" if solved else ""
    lines += ["", f"{len(told.tasks)} tasks in {len(by_domain)} domains{oracle}"]
    width = max(map(len, by_domain))
    lines += [f"  {domain:<{width}}  {' '.join(names)}" for domain, names in sorted(by_domain.items())]
    return "\n".join(lines)
