"""`evalfleet study best`."""

from __future__ import annotations

import json

import click

from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option
from evalfleet.cli.studies.shared.names import study_argument


@click.command("best")
@study_argument
@click.option("--format", "form", type=click.Choice(["flags", "json", "toml"]), default="flags", show_default=True)
@json_option
@home_option
def command(study: str, form: str, as_json: bool, home: str | None) -> int:
    """Print the parameters of the best configuration that keeps all limits.

    As flags, true is a bare flag and false is left out. Exit code 3 if there is none yet. --format json prints
    the parameters alone, --json a document with them.
    """
    from evalfleet.answers.studies import BestParameters
    from evalfleet.cli.studies.shared.names import opened_study
    from evalfleet.errors import Refused
    from evalfleet.report.studies.study import as_flags, as_toml, study_facts

    with opened_study(home, study) as (reader, run):
        found = study_facts(reader, run).best
    if found is None:
        raise Refused(f"study {run.id} has no configuration yet that keeps all limits; `evalfleet study show {run.id}`")
    parameters = found.parameters
    if as_json:
        print_document(BestParameters(run=run.id, parameters=parameters))
        return 0
    match form:
        case "json":
            click.echo(json.dumps(parameters))
        case "toml":
            click.echo(as_toml(parameters))
        case _:
            click.echo(as_flags(parameters))
    return 0
