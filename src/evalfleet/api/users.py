"""Users of a server, and what they did."""

from __future__ import annotations

from contextlib import closing

from evalfleet import config
from evalfleet.answers.team import AuditEntry, UserRow
from evalfleet.api.tasks import Folder
from evalfleet.operations import users
from evalfleet.operations.users import AuditFilter
from evalfleet.report.reader import opened
from evalfleet.store.open import open_store


def list_users(*, home: Folder | None = None) -> list[UserRow]:
    """The users, by name: the `users` that `evalfleet user list --json` prints."""
    with opened(config.load(home).home) as store:
        return [] if store is None else users.list_users(store)


def add_user(name: str, role: str = "member", *, home: Folder | None = None) -> UserRow:
    """Add a user with one of the roles reader, member, operator and admin. Raises InputError."""
    with closing(open_store(config.load(home).home)) as store:
        return users.add_user(store, name, role)


def set_user(
    name: str, *, role: str | None = None, disabled: bool | None = None, home: Folder | None = None
) -> UserRow:
    """Change a user's role, or whether they may sign in. Raises InputError, NotFound."""
    with closing(open_store(config.load(home).home)) as store:
        return users.set_user(store, name, role=role, disabled=disabled)


def remove_user(name: str, *, home: Folder | None = None) -> UserRow:
    """Remove a user with all tokens; the user's runs stay. Raises NotFound."""
    with closing(open_store(config.load(home).home)) as store:
        return users.remove_user(store, name)


def audit_log(
    *,
    limit: int = 100,
    user: str | None = None,
    operation: str | None = None,
    object: str | None = None,
    home: Folder | None = None,
) -> list[AuditEntry]:
    """Who did what, newest first: the `entries` that `evalfleet audit --json` prints.

    Args:
        limit: at most this many.
        user: only what this user did.
        operation: only this operation, such as "run.cancel", or all of "run".
        object: only what was done to this run, pool or user.
    """
    wanted = AuditFilter(user=user, operation=operation, object=object)
    with opened(config.load(home).home) as store:
        return [] if store is None else users.audit_page(store, wanted, limit=limit).entries
