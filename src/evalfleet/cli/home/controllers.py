"""`evalfleet controllers`."""

from __future__ import annotations

import click

from evalfleet import config
from evalfleet.answers.home import ControllerList
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option
from evalfleet.operations.controllers import list_controllers
from evalfleet.report import text
from evalfleet.report.terminal import lines
from evalfleet.report.terminal.lines import Column, Span, Style, columns, table

_SHOWN = 20


@click.command("controllers")
@json_option
@home_option
def command(as_json: bool, home: str | None) -> None:
    """List the controllers of the store, the runs of each, and the runs that wait for one and why."""
    settings = config.load(home)
    found = list_controllers(settings.home)
    if as_json:
        print_document(found)
        return
    if found.controllers:
        lines.write(table(_HEADS, _rows(found), columns()), colour=settings.colour)
    else:
        click.echo("no controller is there; `evalfleet controller` or `evalfleet serve` starts one")
    for other in found.others:
        click.echo(f"run {other.run} is driven by {text.printable(other.driver)}")
    for run in found.waiting[:_SHOWN]:
        click.echo(f"run {run.run} ({text.printable(run.name)}) waits: {text.printable(run.why)}")
    if len(found.waiting) > _SHOWN:
        click.echo(f"{len(found.waiting) - _SHOWN} more runs wait")


_HEADS = [
    Column("host"),
    Column("pid", right=True),
    Column("runs", right=True),
    Column("up", right=True),
    Column("folder"),
    Column("which"),
]


def _rows(found: ControllerList) -> list[list[Span]]:
    return [
        [
            Span(text.printable(one.host), Style.STRONG),
            Span(str(one.pid)),
            Span(f"{len(one.runs)}/{one.most}"),
            Span(text.age(found.now - one.since)),
            Span(text.printable(one.folder)),
            Span(" ".join(one.runs[:5]) + (" …" if len(one.runs) > 5 else "")),
        ]
        for one in found.controllers
    ]
