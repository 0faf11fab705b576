"""`evalfleet reap`."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import click

from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import force_option, home_option, json_option

if TYPE_CHECKING:
    from evalfleet.answers.machines import Reaped


@click.command("reap")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option(
    "--owner",
    "owners",
    multiple=True,
    metavar="LABEL",
    help="Also delete what the home with this label made; what that home still uses only with --force.",
)
@force_option
@json_option
@home_option
def command(dry_run: bool, owners: tuple[str, ...], force: bool, as_json: bool, home: str | None) -> int:
    """Delete evalfleet's resources that are no longer needed, in the cloud and on hosts, and verify that none is left.

    In the cloud: pools marked for deletion, and resources with evalfleet's tags that belong to no pool or wanted machine of this
    home, boxes of machines that cannot be called included. Resources of other homes go only after their deadline tag, or with
    --owner. A machine with uncollected results stays and is listed. On hosts: runners without work. Golden images stay (`evalfleet
    pool images`); what was left of images that failed goes. Exit codes: 0 nothing is left; 3 something is left.
    """
    import anyio

    from evalfleet import config
    from evalfleet.operations.machines.reap import reap
    from evalfleet.store.open import open_store

    settings = config.load(home)

    def say(text: str) -> None:
        click.echo(f"evalfleet: {text}", err=True)

    with closing(open_store(settings.home)) as store:
        answer = anyio.run(partial(reap, settings, store, owners, say, dry_run=dry_run, force=force))
    if as_json:
        print_document(answer)
    else:
        _print(answer)
    return 3 if answer.left and not dry_run else 0


def _print(answer: Reaped) -> None:
    from evalfleet.report.text import count

    for owner, many in answer.others.items():
        click.echo(f"left alone: {count(many, 'resource')} of another home; if that is gone for good: --owner {owner}")
    for row in answer.resources:
        region = f" ({row.region})" if row.region else ""
        click.echo(f"{'would go' if answer.dry_run else 'gone'}: {row.type} {row.name}{region}: {row.why}")
    for name in answer.runners:
        click.echo(f"gone: the idle runner on {name}")
    if answer.dry_run:
        found = len(answer.resources)
        click.echo(f"{count(found, 'resource')} would go" if found else "there is nothing to delete")
    elif answer.left:
        click.echo(f"{count(answer.left, 'resource')} could not be deleted; run it again, or check the cloud's portal")
    else:
        click.echo("nothing is left to delete")
