"""`evalfleet audit`."""

from __future__ import annotations

import time

import click

from evalfleet import config
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option
from evalfleet.report import text


@click.command("audit")
@click.option(
    "-n", "limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to list."
)
@click.option("--user", metavar="NAME", help="Only what this user did.")
@click.option("--operation", metavar="WORD", help="Only this operation, such as run.cancel, or all of 'run'.")
@click.option("--object", "about", metavar="NAME", help="Only what was done to this run, pool or user.")
@json_option
@home_option
def command(
    limit: int, user: str | None, operation: str | None, about: str | None, as_json: bool, home: str | None
) -> None:
    """List who did what to what, when and from where, newest first. The log is only added to."""
    from evalfleet.answers.team import AuditPage
    from evalfleet.operations.users import AuditFilter, audit_page
    from evalfleet.report.reader import opened
    from evalfleet.report.terminal.lines import Column, Span, columns, table, write

    settings = config.load(home)
    wanted = AuditFilter(user=user, operation=operation, object=about)
    with opened(settings.home) as store:
        page = AuditPage(entries=[], next=None) if store is None else audit_page(store, wanted, limit=limit)
    if as_json:
        print_document(page)
        return
    if not page.entries:
        click.echo("nothing was done yet that matches")
        return
    heads = [Column(name) for name in ("at", "user", "from", "operation", "object", "outcome")]
    rows = [
        [
            Span(text.printable(word or text.NONE))
            for word in (_moment(one.at), one.user, one.address, one.operation, one.object, one.outcome)
        ]
        for one in page.entries
    ]
    write(table(heads, rows, columns()), colour=settings.colour)


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
