"""`evalfleet prune`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from evalfleet import config
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import duration_option, home_option, json_option

if TYPE_CHECKING:
    from evalfleet.core.retention import Rules
    from evalfleet.operations.housekeeping.prune import Pruned


@click.command("prune")
@click.argument("runs", nargs=-1, metavar="[RUN]…")
@click.option(
    "--what",
    type=click.Choice(["artifacts", "logs", "run"]),
    default="artifacts",
    show_default=True,
    help="Of the runs that are named: artifacts; logs and artifacts; or the whole run.",
)
@duration_option("--artifacts", "artifacts_s", help="Remove artifacts of runs that ended this long ago.")
@duration_option("--logs", "logs_s", help="Remove output and steps of runs that ended this long ago.")
@duration_option("--runs", "runs_s", help="Remove whole runs, with their verdicts, that ended this long ago.")
@click.option(
    "--size-gb", type=click.FloatRange(min=0), metavar="GB", help="Remove the oldest files until all take less."
)
@click.option("--count", type=click.IntRange(min=0), metavar="N", help="Keep files of the newest N finished runs only.")
@click.option("-n", "--dry-run", is_flag=True, help="Only list what would go.")
@json_option
@home_option
def command(
    runs: tuple[str, ...],
    what: str,
    artifacts_s: float | None,
    logs_s: float | None,
    runs_s: float | None,
    size_gb: float | None,
    count: int | None,
    dry_run: bool,
    as_json: bool,
    home: str | None,
) -> int:
    """Remove files of finished runs to make room: by rules, or of the runs that are named.

    Rules that are not given are those of [retention]. Verdicts stay, unless whole runs are asked for. Pinned runs stay, and so do runs that
    go on, are paused, or are not collected. Exit code 3 if a named run is one of these.
    """
    from evalfleet.core.retention import Part
    from evalfleet.operations.housekeeping.prune import prune

    settings = config.load(home)
    given = {"artifacts_s": artifacts_s, "logs_s": logs_s, "runs_s": runs_s, "count": count}
    given["size"] = None if size_gb is None else int(size_gb * 1e9)
    rules = settings.retention.rules.overridden(**given)
    if not runs and not rules.is_set:
        raise click.UsageError("Name runs, or give a rule such as --artifacts 30d; [retention] has none.")
    done = prune(settings.home, rules, runs=runs, what=Part(what), dry_run=dry_run)
    if as_json:
        print_document(done)
    else:
        _show(done, rules, colour=settings.colour)
    return 0


def _show(done: Pruned, rules: Rules, *, colour: str) -> None:
    from evalfleet.report import text
    from evalfleet.report.terminal.lines import Column, Span, columns, table, write

    rows = [
        [
            Span(cell)
            for cell in (
                one.run,
                text.printable(one.name),
                str(one.part),
                f"{one.files:,}",
                text.size(one.bytes),
                one.why,
            )
        ]
        for one in done.removed
    ]
    heads = [
        Column("run"),
        Column("name"),
        Column("part"),
        Column("files", right=True),
        Column("size", right=True),
        Column("why"),
    ]
    if rows:
        write(table(heads, rows, columns()), colour=colour)
    for one in done.spared:
        click.echo(f"{one.run} stays: it {one.why}", err=True)
    verb = "would be removed" if done.dry_run else "removed"
    click.echo(f"{verb}: {text.count(done.files, 'file')}, {text.size(done.bytes)} of {text.size(done.used)}")
    if rules.size is not None and done.used - done.bytes > rules.size:
        click.echo(
            "the files still take more than --size-gb: the rest is pinned, or of runs that are not finished", err=True
        )
