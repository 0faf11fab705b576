"""Users of a server, and what they did."""

from __future__ import annotations

from evalfleet.answers.base import Answer
from evalfleet.model import JsonObject, Role


class UserRow(Answer, frozen=True, kw_only=True):
    name: str
    role: Role
    origin: str  # who keeps the row: "command", "oidc" or "proxy"
    disabled: bool
    created_at: float


class UserList(Answer, frozen=True, kw_only=True):
    users: list[UserRow]


class AuditEntry(Answer, frozen=True, kw_only=True):
    """Who did what to what, when and from where."""

    number: int
    at: float
    user: str
    token: str | None  # id of the token
    address: str  # of the network; "local": a command on the home's machine
    operation: str
    object: str | None  # the run, pool or user that it was done to
    outcome: str  # "done", or why not
    detail: JsonObject


class AuditPage(Answer, frozen=True, kw_only=True):
    entries: list[AuditEntry]
    next: str | None


class SignedOut(Answer, frozen=True, kw_only=True):
    url: str
