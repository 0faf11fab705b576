"""Named SQL statements, read from the `.sql` files of one dialect.

A statement starts with a line ``-- name: some_name`` and ends where the next one starts.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

# In the store's folder, also in an installed package. `importlib.resources` would take longer to load than all of them.
_FOLDER = Path(__file__).parents[1]


class Migration(NamedTuple):
    version: int
    name: str
    script: str


@cache
def statements(dialect: str) -> dict[str, str]:
    """All statements of `dialect` by name."""
    found: dict[str, str] = {}
    for entry in sorted((_FOLDER / "sql" / dialect).iterdir(), key=lambda e: e.name):
        for part in entry.read_text("utf-8").split("-- name: ")[1:]:
            name, _, text = part.partition("\n")
            if name in found:
                raise ValueError(f"statement {name!r} is defined twice for {dialect}")
            found[name.strip()] = text.strip().rstrip(";")
    return found


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """The migrations of `dialect`, oldest first; their versions run 1, 2, 3, ..."""
    found: list[Migration] = []
    for entry in (_FOLDER / "migrations" / dialect).iterdir():
        if entry.name.endswith(".sql"):
            found.append(Migration(int(entry.name.split("_")[0]), entry.name, entry.read_text("utf-8")))
    found.sort()
    if [each.version for each in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"the migrations of {dialect} are not numbered 1, 2, 3, …: {[each.name for each in found]}")
    return tuple(found)
