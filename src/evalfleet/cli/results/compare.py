"""`evalfleet compare`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option


@click.command("compare")
@click.argument("run_a", metavar="RUN_A")
@click.argument("run_b", metavar="RUN_B")
@click.option(
    "--allow-different", is_flag=True, help="Also compare tasks with the same key but different payloads, and studies."
)
@json_option
@home_option
def command(run_a: str, run_b: str, allow_different: bool, as_json: bool, home: str | None) -> None:
    """Say whether RUN_B is better or worse than RUN_A, or whether chance alone may explain the difference.

    The runs are paired by their tasks' keys. Only tasks that are the same work (the same payload) and count in both runs are
    compared; the others are listed with the reason. The object that --json prints is described in docs/howto/compare-runs.md.
    """
    from evalfleet import config
    from evalfleet.report.compare import compare
    from evalfleet.report.reader import opened_run

    settings = config.load(home)
    with opened_run(settings.home, run_a) as (store, found_a):
        found = compare(store, found_a, store.runs.find(run_b), allow_different=allow_different)
    if as_json:
        print_document(found)
        return

    from evalfleet.report.terminal import lines
    from evalfleet.report.terminal.comparison import contrast

    lines.write(contrast(found, lines.columns()), colour=settings.colour)
