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
    """Add N trials to a study, also to one that is over. It continues from its results so far."""
    from evalfleet.cli.studies.shared.steer import changed_study
    from evalfleet.operations.studies import MoreTrials, add_trials

    def told(answer: MoreTrials) -> str:
        return f"{answer.trials} trials in all"

    return changed_study(home, study, lambda store, run: add_trials(store, run, count), told, as_json=as_json)
