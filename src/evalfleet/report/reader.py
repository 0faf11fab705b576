"""Opening a home for reading."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from evalfleet.errors import NotFound
from evalfleet.model import Run
from evalfleet.store.open import open_reader
from evalfleet.store.reader import StoreReader


@contextmanager
def opened(home: Path) -> Generator[StoreReader | None]:
    """A reader of the home's store; None where the home has none yet."""
    reader = open_reader(home)
    try:
        yield reader
    finally:
        if reader is not None:
            reader.close()


@contextmanager
def opened_run(home: Path, text: str) -> Generator[tuple[StoreReader, Run]]:
    """A reader, and the run that `text` names. Raises NotFound, AmbiguousId."""
    with opened(home) as reader:
        if reader is None:
            raise NotFound(f"there is no run in {home} yet; `evalfleet run TASKS.toml` makes one")
        yield reader, reader.runs.find(text)
