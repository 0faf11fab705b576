"""What a store needs of a database.

A kind of database is one module beside this one, a folder of migrations (`migrations/<dialect>/`), and a folder of those
statements that it words in its own way (`sql/<dialect>/`). Everything else in `store` is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

Row = Mapping[str, Any]  # by column name


class Conflict(Exception):
    """A row with that key exists already."""

    def __init__(self, message: str, values: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.values = values  # of the row that could not be inserted


class Database(Protocol):
    """One connection, used by one thread at a time. Other processes may have connections to the same data.

    A statement is named. Every dialect has the same names; under one name, the statements of all dialects take the same
    values and return the same columns. A value is None, an int, a float, a str or bytes: a flag is 0 or 1, a list or a
    record is JSON text, and a moment is seconds since 1970. A name of a value stands for one type in all statements.

    Errors of the driver are raised as errors of evalfleet that tell a person what to do: StoreBusy (nothing was changed, so
    the call may be made again), StoreUnwritable, StoreCorrupt, and InputError for text that is not Unicode.
    """

    @property
    def member(self) -> str:
        """The further folder of the home that uses this connection; "": the first one."""
        ...

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        """Execute one statement and return all its rows."""
        ...

    def stream(self, name: str, /, **values: Any) -> Iterator[Row]:
        """Like `rows`, a few rows at a time, for answers that may not fit in memory."""
        ...

    def many(self, name: str, values: Iterator[dict[str, Any]]) -> None:
        """Execute one statement for each of `values`, which are read a few at a time. Raises Conflict at the first whose key exists."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """A write transaction. It is committed and durable at its end, or undone if it raises. Transactions of all
        connections happen one after another, as far as their results can tell. Inside another transaction it is a part of
        it: if the part raises, it alone is undone, and the caller may go on. Not allowed inside a snapshot."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """All reads inside see the data of one moment. Inside a transaction or another snapshot it adds nothing."""
        ...

    def changed(self) -> bool:
        """Whether another connection has committed since the last call. Costs microseconds, so that a caller may poll."""
        ...

    def now(self) -> float:
        """The only clock by which leases, waits and events are measured; the same for all connections to a server."""
        ...

    def lock(self, name: str, owner: str) -> str | None:
        """Take a lock that lasts until `unlock`, `close` or the death of this process, however it dies. None: it is ours, also
        where it was before. Otherwise the text with which its owner took it."""
        ...

    def unlock(self, name: str) -> None:
        """Give up a lock; one that is not ours is left alone."""
        ...

    def lock_owner(self, name: str) -> str | None:
        """The text with which the lock's present owner took it; None if it is free."""
        ...

    def close(self) -> None:
        """Give up all locks and close the connection, after the call that is under way. Closing twice is allowed."""
        ...
