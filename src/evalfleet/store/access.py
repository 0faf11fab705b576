"""Who may use the dashboard: tokens, by their digests."""

from __future__ import annotations

from evalfleet.errors import NotFound
from evalfleet.model import AccessToken, Role
from evalfleet.store.runs import rows
from evalfleet.store.runs.events import Recording
from evalfleet.store.runs.submission import new_id


class Access(Recording):
    """The part of `Store` that keeps tokens."""

    def add_token(self, name: str, role: Role, digest: str, expires_at: float | None = None) -> AccessToken:
        with self._db.transaction():
            self._db.rows("delete_expired_tokens", now=self.now())
            made = self._db.rows(
                "insert_token",
                id=new_id(),
                name=name,
                role=str(role),
                digest=digest,
                now=self.now(),
                expires_at=expires_at,
            )
            return rows.access_token(made[0])

    def renew_token(self, token_id: str, name: str, role: Role, digest: str, expires_at: float | None) -> AccessToken:
        with self._db.transaction():
            values = {"id": token_id, "name": name, "role": str(role), "digest": digest, "expires_at": expires_at}
            return rows.access_token(self._db.rows("renew_token", now=self.now(), **values)[0])

    def revoke_token(self, text: str) -> AccessToken:
        with self._db.transaction():
            known = self.tokens()
            found = [one for one in known if one.id == text] or [one for one in known if one.name == text]
            if len(found) != 1:
                what = f"{len(found)} tokens are named" if found else "there is no token"
                raise NotFound(f"{what} {text!r}; `evalfleet token list` shows them with their ids")
            self._db.rows("delete_token", id=found[0].id)
            return found[0]
