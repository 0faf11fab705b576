"""The study that a command acts on."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager

import click

from evalfleet import config
from evalfleet.config import Settings
from evalfleet.errors import NotFound
from evalfleet.model import Run
from evalfleet.store.home.place import is_there
from evalfleet.store.open import open_store
from evalfleet.store.store import Store

study_argument = click.argument("study", required=False, default="latest", metavar="[STUDY]")
"""Gives the command `study: str`: an id, a unique prefix of one, a name, or `latest`, which is the default."""


@contextmanager
def written_study(home: str | None, text: str) -> Generator[tuple[Settings, Store, Run]]:
    from evalfleet.report.studies.study import NO_STUDY, find_study

    settings = config.load(home)
    if not is_there(settings.home):
        raise NotFound(NO_STUDY)
    with closing(open_store(settings.home)) as store:
        yield settings, store, find_study(store, text)
