"""The study that a command acts on."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from evalfleet.config import Settings
    from evalfleet.model import Run
    from evalfleet.store.reader import StoreReader
    from evalfleet.store.store import Store

study_argument = click.argument("study", required=False, default="latest", metavar="[STUDY]")
"""Gives the command `study: str`: an id, a unique prefix of one, a name, or `latest`, which is the default."""


@contextmanager
def opened_study(home: str | None, text: str) -> Generator[tuple[StoreReader, Run]]:
    """A reader, and the study."""
    from evalfleet import config
    from evalfleet.errors import NotFound
    from evalfleet.report.studies.find import NO_STUDY, find_study
    from evalfleet.store.open import open_reader

    reader = open_reader(config.load(home).home)
    if reader is None:
        raise NotFound(NO_STUDY)
    try:
        yield reader, find_study(reader, text)
    finally:
        reader.close()


@contextmanager
def written_study(home: str | None, text: str) -> Generator[tuple[Settings, Store, Run]]:
    """The settings, a store that can be written to, and the study."""
    from evalfleet import config
    from evalfleet.errors import NotFound
    from evalfleet.report.studies.find import NO_STUDY, find_study
    from evalfleet.store.database.file import FILE
    from evalfleet.store.open import open_store

    settings = config.load(home)
    if not (settings.home / FILE).exists():
        raise NotFound(NO_STUDY)
    store = open_store(settings.home)
    try:
        yield settings, store, find_study(store, text)
    finally:
        store.close()
