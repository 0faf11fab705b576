"""Named SQL statements, read from `.sql` files.

The files in `sql/` hold the statements of all dialects, as SQLite takes them. A file in `sql/<dialect>/` replaces those that
a dialect must word in another way. A statement starts with a line ``-- name: some_name`` and ends where the next one starts.
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
    """All statements by name, as `dialect` takes them or, where they are shared, as SQLite does."""
    shared, own = _read(_FOLDER / "sql"), _read(_FOLDER / "sql" / dialect)
    if unknown := own.keys() - shared.keys():
        raise ValueError(f"{dialect} replaces statements that there are not: {sorted(unknown)}")
    return shared | own


def _read(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted(folder.glob("*.sql")):
        for part in file.read_text("utf-8").split("-- name: ")[1:]:
            name, _, text = part.partition("\n")
            if name in found:
                raise ValueError(f"statement {name!r} is defined twice in {folder}")
            found[name.strip()] = text.strip().rstrip(";")
    return found


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """The migrations of `dialect`, oldest first. Equal versions of two dialects hold the same tables; a dialect that came
    later begins with the version of its day."""
    found: list[Migration] = []
    for entry in (_FOLDER / "migrations" / dialect).glob("*.sql"):
        found.append(Migration(int(entry.name.split("_")[0]), entry.name, entry.read_text("utf-8")))
    found.sort()
    if [each.version for each in found] != list(range(found[0].version, found[0].version + len(found))):
        raise ValueError(f"the migrations of {dialect} leave a number out: {[each.name for each in found]}")
    return tuple(found)
