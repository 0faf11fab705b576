"""Users: the people who may use the server, each with a role."""

from __future__ import annotations

from evalfleet.errors import InputError, NotFound
from evalfleet.model import Role, User
from evalfleet.store import rows
from evalfleet.store.database.base import Database


class UserQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def all(self) -> list[User]:
        """All users, by name."""
        return [rows.user(row) for row in self._db.rows("select_users")]

    def get(self, name: str) -> User:
        """Raises NotFound."""
        found = self._db.rows("select_user", name=name)
        if not found:
            raise NotFound(f"there is no user {name!r}; `evalfleet user list` shows them")
        return rows.user(found[0])

    def of_subject(self, subject: str) -> User | None:
        """The user whom an identity provider names so."""
        found = self._db.rows("select_user_of_subject", subject=subject)
        return rows.user(found[0]) if found else None


class Users(UserQueries):
    def add(self, name: str, role: Role, origin: str = "command", subject: str | None = None) -> User:
        """Raises InputError, if there is a user of that name."""
        with self._db.transaction():
            found = self._db.rows(
                "insert_user", name=name, role=str(role), origin=origin, subject=subject, now=self._db.now()
            )
            if not found:
                raise InputError(f"there is a user {name!r} already; `evalfleet user set {name}` changes one")
            return rows.user(found[0])

    def set(self, name: str, *, role: Role | None = None, disabled: bool | None = None) -> User:
        """Change what is given. Raises NotFound."""
        with self._db.transaction():
            before = self.get(name)
            found = self._db.rows(
                "set_user",
                name=name,
                role=str(before.role if role is None else role),
                disabled=int(before.disabled if disabled is None else disabled),
            )
            return rows.user(found[0])

    def remove(self, name: str) -> User:
        """Delete a user and their tokens; their runs stay. Raises NotFound."""
        with self._db.transaction():
            gone = self.get(name)
            self._db.rows("delete_tokens_of_user", name=name)
            self._db.rows("delete_user", name=name)
            return gone
