"""Named locks that last as long as a connection: PostgreSQL's session advisory locks, and a row that says who holds one."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from evalfleet.errors import StoreFenced
from evalfleet.store.database.postgres.dialect import text_of
from evalfleet.store.database.postgres.server import Connection

_UNSIGNED = "another process"

_HOLDER = """
select l.pid, n.owner, n.session
  from pg_locks l left join named_lock n on n.name = $1::text
 where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
   and l.database = (select oid from pg_database where datname = current_database())
   and l.classid = ((($2::bigint >> 32) & 4294967295)::bigint)::oid and l.objid = (($2::bigint & 4294967295)::bigint)::oid
"""
_SIGN = """
insert into named_lock (name, owner, session) values ($1::text, $2::text, $3::text)
on conflict (name) do update set owner = excluded.owner, session = excluded.session
"""


def key_of(schema: str, name: str) -> int:
    """The number of a lock. Several stores may lie in one database, each in a schema of its own."""
    digest = hashlib.blake2b(f"{schema}\0{name}".encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


class NamedLocks:
    """The locks of one session. A session outlives its connection where that is cut and made anew."""

    def __init__(self, schema: str, session: str) -> None:
        self._schema = schema
        self._session = session
        self._held: dict[str, str] = {}  # with the text that its owner signed

    def take(self, connection: Connection, name: str, owner: str) -> str | None:
        """None: it is ours. Otherwise who holds it."""
        if name in self._held:
            return None
        if not self._try(connection, name):
            return self.owner(connection, name) or _UNSIGNED
        connection.execute(_SIGN, [text_of(name), text_of(owner), self._session])
        self._held[name] = owner
        return None

    def give_up(self, connection: Connection, name: str) -> None:
        if self._held.pop(name, None) is not None:
            connection.execute("select pg_advisory_unlock($1)", [key_of(self._schema, name)])

    def owner(self, connection: Connection, name: str) -> str | None:
        found = connection.execute(_HOLDER, [text_of(name), key_of(self._schema, name)]).fetchone()
        return None if found is None else found["owner"] or _UNSIGNED

    def retake(self, connection: Connection, former_pids: Collection[int]) -> None:
        """Take all locks again on a new connection. Raises StoreFenced where one was another's in between."""
        for name in self._held:
            if not self._try(connection, name):
                self._end_former(connection, name, former_pids)
            signed = connection.execute("select session from named_lock where name = $1::text", [name]).fetchone()
            if signed is None or signed["session"] != self._session:
                raise StoreFenced(
                    f"the connection to the database was cut, and another process took over {name} meanwhile; this one changes "
                    "nothing any more"
                )

    def _end_former(self, connection: Connection, name: str, former_pids: Collection[int]) -> None:
        """The server may not have noticed yet that the former connection is cut."""
        key = key_of(self._schema, name)
        found = connection.execute(_HOLDER, [name, key]).fetchone()
        if found is not None and found["pid"] in former_pids:
            connection.execute("select pg_terminate_backend($1::int, 5000)", [found["pid"]])
        if not self._try(connection, name):
            raise StoreFenced(
                f"the connection to the database was cut, and {self.owner(connection, name) or _UNSIGNED} took over {name} "
                "meanwhile; this process changes nothing any more"
            )

    def _try(self, connection: Connection, name: str) -> bool:
        found = connection.execute("select pg_try_advisory_lock($1) as taken", [key_of(self._schema, name)]).fetchone()
        return found is not None and bool(found["taken"])
