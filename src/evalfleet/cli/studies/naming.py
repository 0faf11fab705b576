"""How the commands are told which study."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from evalfleet.model import Run
    from evalfleet.store.base import StoreReader

study_argument = click.argument("study", required=False, default="latest", metavar="[STUDY]")
"""Gives the command `study: str`: an id, a unique prefix of one, a name, or `latest`, which is the default."""


@contextmanager
def opened_study(home: str | None, text: str) -> Generator[tuple[StoreReader, Run]]:
    """A reader, and the study."""
    from evalfleet import config
    from evalfleet.errors import NotFound
    from evalfleet.report.studies import find_study
    from evalfleet.store.sqlite import open_reader

    reader = open_reader(config.load(home).home)
    if reader is None:
        raise NotFound("there is no study yet; `evalfleet tune STUDY.toml` makes one")
    try:
        yield reader, find_study(reader, text)
    finally:
        reader.close()
