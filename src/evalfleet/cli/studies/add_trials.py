"""`evalfleet study add-trials`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import home_option, json_option


@click.command("add-trials")
@click.argument("study", metavar="STUDY")
@click.argument("count", type=click.IntRange(1, 100_000), metavar="N")
@json_option
@home_option
def command(study: str, count: int, as_json: bool, home: str | None) -> int:
    """Let a study try N more, also one that is over. It goes on from what it knows."""
    from evalfleet.cli.studies.shared.steer import ask_study
    from evalfleet.model import Verb

    return ask_study(
        home,
        study,
        Verb.AMEND,
        {"add_trials": count},
        lambda answer: f"{answer['trials']} trials in all",
        as_json=as_json,
    )
