"""`evalfleet study pause`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import home_option, json_option
from evalfleet.cli.studies.shared.names import study_argument


@click.command("pause")
@study_argument
@json_option
@home_option
def command(study: str, as_json: bool, home: str | None) -> int:
    """Start no more trials; running ones finish. `evalfleet study resume` continues it."""
    from evalfleet.cli.studies.shared.steer import changed_study
    from evalfleet.operations.steer import pause

    return changed_study(home, study, pause, lambda _: "paused; trials that run go on to their end", as_json=as_json)
