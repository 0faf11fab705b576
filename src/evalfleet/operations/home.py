"""Opening a home to change a run in it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from evalfleet.errors import NotFound
from evalfleet.model import Run
from evalfleet.store.home.place import is_there
from evalfleet.store.open import open_store
from evalfleet.store.store import Store


@contextmanager
def opened_for_writing(home: Path, text: str) -> Generator[tuple[Store, Run]]:
    """The store, and the run that `text` names. Makes no home where there is none. Raises NotFound, AmbiguousId."""
    if not is_there(home):
        raise NotFound(f"there is no run in {home} yet; `evalfleet run TASKS.toml` creates one")
    with closing(open_store(home)) as store:
        yield store, store.runs.find(text)
