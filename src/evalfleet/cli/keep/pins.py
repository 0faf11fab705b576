"""`evalfleet pin` and `unpin`."""

from __future__ import annotations

import click

from evalfleet import config
from evalfleet.cli.shared.document import print_answer
from evalfleet.cli.shared.options import home_option, json_option, run_argument
from evalfleet.operations.home import opened_for_writing


@click.command("pin")
@run_argument
@click.option("--reason", metavar="TEXT", help="Reason; shown where the run is shown.")
@json_option
@home_option
def pin(run: str, reason: str | None, as_json: bool, home: str | None) -> None:
    """Keep a run: neither `prune` nor [retention] removes anything of it."""
    from evalfleet.operations.housekeeping import pins

    with opened_for_writing(config.load(home).home, run) as (store, found):
        answer = pins.pin(store, found, reason=reason)
    print_answer(as_json, answer, f"run {answer.run} is pinned; nothing of it is removed")


@click.command("unpin")
@run_argument
@json_option
@home_option
def unpin(run: str, as_json: bool, home: str | None) -> None:
    """Take the pin of a run away. Exit code 3 if it has none."""
    from evalfleet.operations.housekeeping import pins

    with opened_for_writing(config.load(home).home, run) as (store, found):
        answer = pins.unpin(store, found)
    print_answer(as_json, answer, f"run {answer.run} is not pinned any more")
