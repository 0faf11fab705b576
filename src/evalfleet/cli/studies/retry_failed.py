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
    """Give failed and held trials new attempts, with the same parameters."""
    from evalfleet.cli.studies.shared.steer import changed_study
    from evalfleet.operations.steer import ChangedTasks
    from evalfleet.operations.studies import retry_failed

    def told(answer: ChangedTasks) -> str:
        return f"tried again: {', '.join(answer.tasks) or 'nothing'}"

    return changed_study(home, study, retry_failed, told, as_json=as_json)
