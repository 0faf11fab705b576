"""`evalfleet study export`."""

from __future__ import annotations

import json

import click

from evalfleet.cli.shared.options import home_option, json_option
from evalfleet.cli.studies.shared.names import study_argument


@click.command("export")
@study_argument
@click.option("--format", "form", type=click.Choice(["jsonl", "csv"]), default="jsonl", show_default=True)
@json_option
@home_option
def command(study: str, form: str, as_json: bool, home: str | None) -> None:
    """Write every trial with its parameters and metrics to standard output, one per line. --json is --format jsonl."""
    import csv
    import sys

    from msgspec import to_builtins

    from evalfleet.cli.studies.shared.names import opened_study
    from evalfleet.report.studies.study import study_facts

    with opened_study(home, study) as (reader, run):
        rows = study_facts(reader, run).trials
    if form == "jsonl" or as_json:
        for row in rows:
            click.echo(json.dumps(to_builtins(row)))
        return
    parameters = list(dict.fromkeys(name for row in rows for name in row.parameters))
    metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))
    plain = ["key", "role", "progress", "feasible", "duration_s", "reason"]
    writer = csv.writer(sys.stdout)
    writer.writerow([*plain, *parameters, *metrics])
    for row in rows:
        values = [getattr(row, name) for name in plain]
        values += [row.parameters.get(name) for name in parameters]
        writer.writerow([*values, *(row.metrics.get(name) for name in metrics)])
