"""`evalfleet study list`, `show`, `best` and `export`."""

from __future__ import annotations

import csv
import json
import sys

import click
from msgspec import to_builtins

from evalfleet import config
from evalfleet.answers.studies import BestParameters, StudyFacts, StudyList
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option
from evalfleet.cli.studies.shared.names import study_argument
from evalfleet.cli.studies.shared.text import echo, summary_lines, trial_lines
from evalfleet.errors import Refused
from evalfleet.report.reader import opened
from evalfleet.report.studies.study import NO_STUDY, as_flags, as_toml, opened_study, study_facts, study_rows


@click.command("list")
@json_option
@home_option
def list_studies(as_json: bool, home: str | None) -> None:
    """List the studies, newest first, with progress and the best result so far."""
    with opened(config.load(home).home) as reader:
        found = [] if reader is None else study_rows(reader)
    if as_json:
        print_document(StudyList(studies=found))
        return
    for facts in found:
        echo(summary_lines(facts)[:2])
    if not found:
        click.echo(NO_STUDY)


@click.command("show")
@study_argument
@json_option
@home_option
def show(study: str, as_json: bool, home: str | None) -> None:
    """Show a study: progress, the best result so far against the baseline, and every trial."""
    facts = _facts(home, study)
    if as_json:
        print_document(facts)
    else:
        echo([*summary_lines(facts), *trial_lines(facts)])


@click.command("best")
@study_argument
@click.option("--format", "form", type=click.Choice(["flags", "json", "toml"]), default="flags", show_default=True)
@json_option
@home_option
def best(study: str, form: str, as_json: bool, home: str | None) -> None:
    """Print the parameters of the best configuration that keeps all limits.

    As flags, true is a bare flag and false is left out. Exit code 3 if there is none yet. --format json prints
    the parameters alone, --json a document with them.
    """
    facts = _facts(home, study)
    run, found = facts.run, facts.best
    if found is None:
        raise Refused(f"study {run} has no configuration yet that keeps all limits; `evalfleet study show {run}`")
    if as_json:
        print_document(BestParameters(run=run, parameters=found.parameters))
    else:
        shown = {"json": json.dumps, "toml": as_toml, "flags": as_flags}[form]
        click.echo(shown(found.parameters))


@click.command("export")
@study_argument
@click.option("--format", "form", type=click.Choice(["jsonl", "csv"]), default="jsonl", show_default=True)
@json_option
@home_option
def export(study: str, form: str, as_json: bool, home: str | None) -> None:
    """Write every trial with its parameters and metrics to standard output, one per line. --json is --format jsonl."""
    rows = _facts(home, study).trials
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


def _facts(home: str | None, study: str) -> StudyFacts:
    with opened_study(config.load(home).home, study) as (reader, run):
        return study_facts(reader, run)
