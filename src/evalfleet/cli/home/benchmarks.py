"""`evalfleet benchmarks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from evalfleet.cli.shared.document import document
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.benchmarks.base import Benchmark
    from evalfleet.config import Settings


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

    settings = config.load(home)
    if name is not None:
        told = _whole(registry.find(name, settings))
        click.echo(document(told) if as_json else _page(told))
        return
    rows = [_row(each, settings) for each in registry.names()]
    if as_json:
        click.echo(document({"benchmarks": rows}))
        return
    for row in rows:
        state = "broken" if row.get("broken") else "ready" if row["ready"] else "not ready"
        click.echo(f"{row['name']:<12} {state:<10} {row.get('broken') or row['title']}")
    click.echo("`evalfleet benchmarks NAME` shows more; `evalfleet run NAME --agent AGENT` runs one")


def _row(name: str, settings: Settings) -> dict[str, Any]:
    from evalfleet.benchmarks import registry

    try:
        return _brief(registry.find(name, settings))
    except Exception as error:  # noqa: BLE001 - another package's code; the others are shown all the same
        said = " ".join(str(error).split())
        return {"name": name, "title": "", "ready": False, "broken": said or type(error).__name__}


def _brief(benchmark: Benchmark) -> dict[str, Any]:
    ready = all(need.present for need in benchmark.requirements())
    return {"name": benchmark.name, "title": benchmark.title, "ready": ready}


def _whole(benchmark: Benchmark) -> dict[str, Any]:
    catalogue = benchmark.catalogue()
    return {
        **_brief(benchmark),
        "requirements": [
            {"what": need.what, "present": need.present, "found": need.found, "install": need.install}
            for need in benchmark.requirements()
        ],
        "tasks": [{"name": task.name, "domain": task.domain, "oracle": task.oracle} for task in catalogue],
    }


def _page(told: dict[str, Any]) -> str:
    lines = [f"{told['name']}: {told['title']}", "", "needs"]
    for need in told["requirements"]:
        lines.append(f"  {'+' if need['present'] else '-'} {need['what']}: {need['found']}")
        if not need["present"]:
            lines.append(f"      install it with: {need['install']}")
    tasks: list[dict[str, Any]] = told["tasks"]
    if not tasks:
        return "\n".join([*lines, "", "Its tasks can be listed once that is installed."])
    by_domain: dict[str, list[str]] = {}
    for task in tasks:
        by_domain.setdefault(task["domain"], []).append(f"{task['name']}{'*' if task['oracle'] else ''}")
    solved = sum(task["oracle"] for task in tasks)
    oracle = f"; the oracle solves the {solved} with a *" if solved else ""
    lines += ["", f"{len(tasks)} tasks in {len(by_domain)} domains{oracle}"]
    width = max(map(len, by_domain))
    lines += [f"  {domain:<{width}}  {' '.join(names)}" for domain, names in sorted(by_domain.items())]
    return "\n".join(lines)
