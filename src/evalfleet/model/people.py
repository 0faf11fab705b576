"""Records of people: users and what they may do, whose a run is, and what was done."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct, field


class Role(StrEnum):
    """What a user or the bearer of a token may do; `core.rights` says which operation needs which."""

    READER = "reader"  # looks
    MEMBER = "member"  # submits, and acts on runs of their own
    OPERATOR = "operator"  # acts on all runs and pools
    ADMIN = "admin"  # also manages users, and reads the audit log


class Ownership(Struct, frozen=True, kw_only=True):
    """Whose a new run is, and how it is found again."""

    owner: str = ""
    project: str = ""
    tags: dict[str, str] = field(default_factory=dict[str, str])


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs of a list are wanted. The default is all of them."""

    states: tuple[str, ...] = ()
    search: str | None = None  # a text that the id or the name contains
    owner: str | None = None
    project: str | None = None
    tags: dict[str, str] = field(default_factory=dict[str, str])  # each must be there


class AccessToken(Struct, frozen=True, kw_only=True):
    """The right to use the dashboard and its API. Of the token itself only a digest is kept."""

    id: str
    name: str
    role: Role  # the most that it allows, whatever its user may
    digest: str  # SHA-256, as hex
    created_at: float
    expires_at: float | None
    user_name: str | None = (
        None  # whose it is; None: made before there were users, or by `serve` for the person who starts it
    )


class User(Struct, frozen=True, kw_only=True):
    """A person who may use the server."""

    name: str
    role: Role
    origin: str  # who keeps this row: "command", "oidc" or "proxy"
    subject: str | None  # issuer and subject, as the identity provider names them
    disabled: bool
    created_at: float


class AuditRow(Struct, frozen=True, kw_only=True):
    """Who did what to what, when and from where."""

    number: int
    at: float
    user_name: str
    token: str | None
    address: str  # "local": a command on the home's machine
    operation: str
    object: str | None
    outcome: str
    detail: dict[str, Any]
