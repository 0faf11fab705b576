"""Copying all that a store remembers into another, empty one, and proving that nothing is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from evalfleet.errors import Owned, StoreError
from evalfleet.store.database.postgres.dialect import text_of
from evalfleet.store.home import process
from evalfleet.store.pools.queries import pool_lock
from evalfleet.store.store import Store
from evalfleet.store.tables import Tables, Values

_PRESET = "gpu_turn"  # a new store has a row in it


def refuse_used(store: Store) -> None:
    """Raise Owned while a run or pool has an owner, or a server sends alerts: what it did during the copy would be lost."""
    runs, pools = store.runs.newest(limit=1_000_000), store.pools.all()
    for name in [*(run.id for run in runs), *(pool_lock(pool.name) for pool in pools)]:
        owner = store.database.lock_owner(name)
        if owner is not None:
            raise Owned(f"{name} is driven by {owner}; end that first, then copy")
    for row in store.database.rows("select_alert_sender"):
        if process.lives(row["pid"], row["born"], row["boot"]) is not False and row["expires_at"] > store.now():
            raise Owned(f"process {row['pid']} serves this home; end it first, then copy")


def refuse_filled(target: Tables) -> None:
    """Raise StoreError where the target holds anything."""
    for table, columns in target.columns().items():
        if table != _PRESET and list(target.rows(table, columns[:1])):
            raise StoreError(f"the target is not empty: its table {table} has rows; name an empty one")


def copy_tables(source: Tables, target: Tables) -> dict[str, int]:
    """Copy all tables, inside transactions of both. Returns the number of rows of each. Raises StoreError."""
    if source.version() != target.version():
        raise StoreError(
            f"the source has schema {source.version()}, the target {target.version()}; use both with the same evalfleet first"
        )
    copied: dict[str, int] = {}
    for table, columns in target.columns().items():
        if table == _PRESET:
            target.clear(table)
        sent = _Sum()
        target.write(table, columns, sent.over(source.rows(table, columns)))
        kept = _Sum()
        for _ in kept.over(target.rows(table, columns)):
            pass
        if (sent.rows, sent.total) != (kept.rows, kept.total):
            raise StoreError(
                f"the copy of table {table} differs: {sent.rows} rows were read, {kept.rows} were kept; nothing was changed"
            )
        copied[table] = sent.rows
    target.number_on()
    return copied


class _Sum:
    """The number of rows, and a sum over all their values that does not depend on their order."""

    def __init__(self) -> None:
        self.rows = 0
        self.total = 0

    def over(self, rows: Iterable[Values]) -> Iterator[Values]:
        for row in rows:
            self.rows += 1
            self.total += hash(tuple(text_of(value) if isinstance(value, str) else value for value in row))
            yield row
