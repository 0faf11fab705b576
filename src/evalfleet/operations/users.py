"""Users, their roles, and the audit log: the same functions for the command line, HTTP and Python."""

from __future__ import annotations

import re

from msgspec import Struct, convert

from evalfleet.answers.team import AuditEntry, AuditPage, UserRow
from evalfleet.config import login_name
from evalfleet.errors import InputError
from evalfleet.model import Role, User
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store
from evalfleet.validation import sentence, suggestion

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}", re.ASCII)


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Which rows of the audit log are wanted."""

    user: str | None = None
    operation: str | None = None  # a whole one, or the part before its dot
    object: str | None = None


def checked_name(name: str) -> str:
    """Raises InputError."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name[:120]!r} cannot name a user; use up to 100 letters, digits and . _ @ + -, a letter or digit first"
        )
    return name


def role_of(word: str) -> Role:
    """Raises InputError."""
    known = [str(role) for role in Role]
    if word not in known:
        raise InputError(sentence(f"there is no role {word!r}{suggestion(word, known)}"))
    return Role(word)


def list_users(store: StoreReader) -> list[UserRow]:
    return [told(user) for user in store.users.all()]


def add_user(store: Store, name: str, role: str, *, by: str | None = None) -> UserRow:
    """Make a user. `by` says that the server asks, which writes down who asked it. Raises InputError."""
    with store.batch():
        user = store.users.add(checked_name(name), role_of(role))
        _note(store, "add", name, by)
    return told(user)


def set_user(
    store: Store, name: str, *, role: str | None = None, disabled: bool | None = None, by: str | None = None
) -> UserRow:
    """Change a user's role, or whether they may sign in. Raises InputError, NotFound."""
    if role is None and disabled is None:
        raise InputError("nothing to change: give the role, or whether the user is disabled")
    with store.batch():
        user = store.users.set(name, role=None if role is None else role_of(role), disabled=disabled)
        _note(store, "set", name, by)
    return told(user)


def remove_user(store: Store, name: str, *, by: str | None = None) -> UserRow:
    """Delete a user with their tokens; their runs stay. Raises NotFound."""
    with store.batch():
        user = store.users.remove(name)
        _note(store, "remove", name, by)
    return told(user)


def audit_page(store: StoreReader, wanted: AuditFilter, *, limit: int, before: int | None = None) -> AuditPage:
    """Rows of the audit log, newest first."""
    rows = store.audit.page(
        before=before, limit=limit, user=wanted.user, operation=wanted.operation, object=wanted.object
    )
    entries = [AuditEntry.copy_of(row, user=row.user_name) for row in rows]
    return AuditPage(entries=entries, next=str(rows[-1].number) if len(rows) == limit else None)


def told(user: User) -> UserRow:
    return convert(user, UserRow, from_attributes=True)


def _note(store: Store, verb: str, name: str, by: str | None) -> None:
    if by is None:
        store.audit.add(login_name(), f"user.{verb}", name)
