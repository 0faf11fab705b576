"""Shared by `tune` and `study resume`: drive a study, and print the result."""

from __future__ import annotations

from contextlib import suppress

from evalfleet.cli.shared.document import print_document
from evalfleet.config import Settings
from evalfleet.errors import RunOver
from evalfleet.model import Run
from evalfleet.store.store import Store

INTERRUPTED = 130


def drive_study(
    settings: Settings, store: Store, run: Run, *, as_json: bool, verbose: bool, parallel: int | None = None
) -> int:
    """Drive the study until it settles, print the result, and return the exit code. Raises Owned."""
    from evalfleet.cli.shared.drive import Show, driven
    from evalfleet.cli.studies.shared.text import echo, summary_lines
    from evalfleet.engine.controller import take
    from evalfleet.engine.supervisor import Ending
    from evalfleet.report.studies.study import study_facts, study_in
    from evalfleet.report.summary import exit_code, summarise

    study_in(run)
    last = store.events.last(run.id)
    show = Show(as_json=as_json, verbose=verbose, after=last.number if last and run.started_at else 0)
    ending = Ending.SETTLED
    with suppress(RunOver):  # a script that resumes until it is over gets its answer
        ending = driven(settings, store, take(store, run, workers=parallel), show)
    facts = study_facts(store, run)
    if as_json:
        print_document(facts)
    else:
        echo(summary_lines(facts))
    return INTERRUPTED if ending is Ending.INTERRUPTED else exit_code(summarise(store, run, results=False))
