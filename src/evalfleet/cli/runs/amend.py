"""`evalfleet amend`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import budget_option, home_option, json_option, run_argument


@click.command("amend")
@run_argument
@click.option("-w", "--workers", type=click.IntRange(min=1), help="Tasks at a time from now on.")
@budget_option
@json_option
@home_option
def command(run: str, workers: int | None, budget_usd: float | None, as_json: bool, home: str | None) -> int:
    """Change the number of workers or the budget of a run, also while it runs.

    With fewer workers, tasks that run go on to their end. Of a study, --workers is the number of trials at a time.
    """
    from evalfleet.cli.shared.steer import changed
    from evalfleet.operations.steer import Amended, amend
    from evalfleet.report.text import count, money

    if workers is None and budget_usd is None:
        raise click.UsageError("Give --workers, --budget or both.")

    def told(answer: Amended) -> str:
        budget = "no budget" if answer.budget_usd is None else f"a budget of {money(answer.budget_usd)}"
        return f"run {answer.run} has {count(answer.workers, 'worker')} and {budget}"

    return changed(
        home,
        run,
        lambda store, found: amend(store, found, workers=workers, budget_usd=budget_usd),
        told,
        as_json=as_json,
    )
