"""`evalfleet study show`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option
from evalfleet.cli.studies.shared.names import study_argument


@click.command("show")
@study_argument
@json_option
@home_option
def command(study: str, as_json: bool, home: str | None) -> None:
    """Show a study: progress, the best result so far against the baseline, and every trial."""
    from evalfleet.cli.studies.shared.names import opened_study
    from evalfleet.cli.studies.shared.text import echo, summary_lines, trial_lines
    from evalfleet.report.studies.study import study_facts

    with opened_study(home, study) as (reader, run):
        facts = study_facts(reader, run)
    if as_json:
        print_document(facts)
    else:
        echo([*summary_lines(facts), *trial_lines(facts)])
