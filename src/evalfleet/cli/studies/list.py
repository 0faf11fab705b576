"""`evalfleet study list`."""

from __future__ import annotations

import json

import click

from evalfleet.cli.options import home_option, json_option


@click.command("list")
@json_option
@home_option
def command(as_json: bool, home: str | None) -> None:
    """List the studies, newest first, with how far they are and the best so far."""
    from evalfleet import config
    from evalfleet.cli.studies.telling import summary_lines
    from evalfleet.report.study import study_facts
    from evalfleet.store.sqlite import open_reader

    reader = open_reader(config.load(home).home)
    found = (
        [] if reader is None else [study_facts(reader, run) for run in reader.runs() if run.policy.study is not None]
    )
    if reader is not None:
        reader.close()
    if as_json:
        click.echo(json.dumps([{name: value for name, value in one.items() if name != "trials"} for one in found]))
        return
    for facts in found:
        click.echo("\n".join(summary_lines(facts)[:2]))
    if not found:
        click.echo("there is no study yet; `evalfleet tune STUDY.toml` makes one")
