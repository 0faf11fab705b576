"""`evalfleet study list`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option


@click.command("list")
@json_option
@home_option
def command(as_json: bool, home: str | None) -> None:
    """List the studies, newest first, with progress and the best result so far."""
    from evalfleet import config
    from evalfleet.cli.studies.shared.text import echo, summary_lines
    from evalfleet.report.studies.find import NO_STUDY
    from evalfleet.report.studies.study import study_rows
    from evalfleet.store.open import open_reader

    reader = open_reader(config.load(home).home)
    found = [] if reader is None else study_rows(reader)
    if reader is not None:
        reader.close()
    if as_json:
        from evalfleet.answers.studies import StudyList

        print_document(StudyList(studies=found))
        return
    for facts in found:
        echo(summary_lines(facts)[:2])
    if not found:
        click.echo(NO_STUDY)
