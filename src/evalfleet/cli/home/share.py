"""`evalfleet share`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from evalfleet import config
from evalfleet.cli.shared.document import print_answer, print_document
from evalfleet.cli.shared.options import home_option, json_option
from evalfleet.report import text

if TYPE_CHECKING:
    from evalfleet.answers.shares import ShareFacts, ShareRow, ShareUse

_subject_argument = click.argument("subject", type=click.Choice(["user", "project"]))
_name_argument = click.argument("name")


@click.group("share")
def command() -> None:
    """Shares and quotas of users and projects, for all runs of the home.

    NAME is a user or a project; '*' is each one that is not named.
    """


@command.command("list")
@json_option
@home_option
def list_(as_json: bool, home: str | None) -> None:
    """Show what users and projects may have, and what they have now."""
    from evalfleet.operations.shares import list_shares
    from evalfleet.report.reader import opened

    settings = config.load(home)
    with opened(settings.home) as store:
        found = list_shares(settings, store)
    if as_json:
        print_document(found)
        return
    for line in _lines(found):
        click.echo(line)


@command.command("set")
@_subject_argument
@_name_argument
@click.option("--weight", type=click.FloatRange(0.001, 1000), help="How much it gets beside others.  [default: 1]")
@click.option("--running", type=click.IntRange(min=0), help="Most attempts at a time.  [default: no limit]")
@click.option("--gpus", type=click.IntRange(min=0), help="Most GPUs at a time.  [default: no limit]")
@click.option("--usd-per-day", type=click.FloatRange(min=0), help="Most dollars a day (UTC).  [default: no limit]")
@json_option
@home_option
def set_(subject: str, name: str, as_json: bool, home: str | None, **terms: Any) -> None:
    """Say what a user or project may have. What was said of it before is forgotten; what runs goes on."""
    from evalfleet.operations.shares import Terms, set_share
    from evalfleet.store.open import open_store

    with closing(open_store(config.load(home).home)) as store:
        row = set_share(store, subject, name, Terms(**terms))
    print_answer(as_json, row, _rule(row))


@command.command("remove")
@_subject_argument
@_name_argument
@json_option
@home_option
def remove(subject: str, name: str, as_json: bool, home: str | None) -> None:
    """Forget what was said of a user or project. What evalfleet.toml says of it holds again."""
    from evalfleet.operations.shares import remove_share
    from evalfleet.store.open import open_store

    with closing(open_store(config.load(home).home)) as store:
        gone = remove_share(store, subject, name)
    print_answer(as_json, gone, f"{gone.subject} {text.printable(gone.name)} has no share or quota of its own")


def _lines(found: ShareFacts) -> list[str]:
    if not found.rules and not found.use:
        return ["no shares and no quotas are set; all users are equal. `evalfleet share set user NAME --weight 2`"]
    return [*map(_rule, found.rules), *(["now:"] if found.use else []), *(f"  {_use(one)}" for one in found.use)]


def _rule(row: ShareRow) -> str:
    said = [
        f"weight {row.weight:g}" if row.weight is not None else None,
        f"at most {text.count(row.running, 'running attempt')}" if row.running is not None else None,
        f"at most {text.count(row.gpus, 'GPU')}" if row.gpus is not None else None,
        f"at most {text.money(row.usd_per_day)} a day" if row.usd_per_day is not None else None,
    ]
    return f"{row.subject} {text.printable(row.name)}: {', '.join(word for word in said if word is not None)}"


def _use(one: ShareUse) -> str:
    who = f"{one.subject} {text.printable(one.name) or '(not known)'}"
    money = f"{text.money(one.spent_usd)} spent today, {text.money(one.committed_usd)} committed"
    return f"{who}: {text.count(one.running, 'running attempt')}, {text.count(one.gpus, 'GPU')}, {money}"
