"""`evalfleet study retry-failed`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import home_option, json_option
from evalfleet.cli.studies.shared.names import study_argument


@click.command("retry-failed")
@study_argument
@json_option
@home_option
def command(study: str, as_json: bool, home: str | None) -> int:
    """Give failed trials new attempts, with the parameters that they had."""
    from evalfleet.cli.studies.shared.steer import ask_study
    from evalfleet.model import JsonObject, Verb

    def told(answer: JsonObject) -> str:
        return f"tried again: {', '.join(answer['tasks']) or 'nothing'}"

    return ask_study(home, study, Verb.RETRY, {"only": ["failed", "held"]}, told, as_json=as_json)
