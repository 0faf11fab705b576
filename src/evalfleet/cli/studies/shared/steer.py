"""Changes to a study: its controller makes them, or this command where none drives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from evalfleet.cli.shared.steer import say
from evalfleet.cli.studies.shared.names import written_study
from evalfleet.model import Run
from evalfleet.operations import steer
from evalfleet.report.text import count
from evalfleet.store.store import Store

C = TypeVar("C", bound=steer.Changed)


def changed_study(
    home: str | None, study: str, change: Callable[[Store, Run], C], told: Callable[[C], str], *, as_json: bool
) -> int:
    """Change a study, and print the result."""
    with written_study(home, study) as (_, store, run):
        answer = change(store, run)
    hint = "" if answer.driven or isinstance(answer, steer.Pausing) else f"; `evalfleet resume {answer.run}` drives it"
    say(as_json, answer, told(answer) + hint)
    return 0


def resume_driven(store: Store, run: Run, parallel: int | None, *, as_json: bool) -> int:
    """Ask the controller of a study to continue, with this many trials at a time."""
    answer = steer.resume(store, run, workers=parallel)
    if answer.driven:
        text = f"a controller drives it, and continues: {count(answer.workers, 'trial')} at a time"
    else:  # its controller has exited meanwhile
        text = f"no controller drives it any more; `evalfleet study resume {run.id}` does"
    say(as_json, answer, text)
    return 0
