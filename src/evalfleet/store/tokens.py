"""Tokens: who may use the server. The store keeps their digests, never their text."""

from __future__ import annotations

from evalfleet.errors import NotFound
from evalfleet.model import AccessToken, Role
from evalfleet.store import rows
from evalfleet.store.database.base import Database
from evalfleet.store.ids import new_id


class TokenQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def all(self) -> list[AccessToken]:
        """All tokens, oldest first."""
        return [rows.access_token(row) for row in self._db.rows("select_tokens")]


class Tokens(TokenQueries):
    def add(
        self, name: str, role: Role, digest: str, expires_at: float | None = None, *, user: str | None = None
    ) -> AccessToken:
        """Keep a token by its digest, and delete those that have expired.

        Args:
            user: whose it is.
        """
        now = self._db.now()
        with self._db.transaction():
            self._db.rows("delete_expired_tokens", now=now)
            values = {"id": new_id(), "name": name, "role": str(role), "digest": digest, "expires_at": expires_at}
            return rows.access_token(self._db.rows("insert_token", now=now, user_name=user, **values)[0])

    def renew(self, token_id: str, name: str, role: Role, digest: str, expires_at: float | None) -> AccessToken:
        """Add a token of that id, or give the existing one another text; its former text is worthless from then on."""
        with self._db.transaction():
            values = {"id": token_id, "name": name, "role": str(role), "digest": digest, "expires_at": expires_at}
            return rows.access_token(self._db.rows("renew_token", now=self._db.now(), **values)[0])

    def revoke(self, text: str) -> AccessToken:
        """Delete a token, by its id or its unique name. Raises NotFound."""
        with self._db.transaction():
            known = self.all()
            found = [one for one in known if one.id == text] or [one for one in known if one.name == text]
            if len(found) != 1:
                what = f"{len(found)} tokens are named" if found else "there is no token"
                raise NotFound(f"{what} {text!r}; `evalfleet token list` shows them with their ids")
            self._db.rows("delete_token", id=found[0].id)
            return found[0]
