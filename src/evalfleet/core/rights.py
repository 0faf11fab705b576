"""Who may do what: every operation that the server offers, with the role that it needs. The only place that decides it."""

from __future__ import annotations

from msgspec import Struct

from evalfleet.model import Role

_ORDER = (Role.READER, Role.MEMBER, Role.OPERATOR, Role.ADMIN)


class Right(Struct, frozen=True):
    """What an operation needs."""

    least: Role
    own: Role | None = None  # enough for a run of one's own
    changes: bool = True  # it is written into the audit log


_LOOK = Right(Role.READER, changes=False)
_SUBMIT = Right(Role.MEMBER)
_ASK = Right(Role.MEMBER, changes=False)
_RUN = Right(Role.OPERATOR, own=Role.MEMBER)
_POOL = Right(Role.OPERATOR)
_ADMIN = Right(Role.ADMIN)

RIGHTS: dict[str, Right] = {
    "look": _LOOK,
    "run.submit": _SUBMIT,
    "run.upload": _ASK,
    "run.pause": _RUN,
    "run.resume": _RUN,
    "run.cancel": _RUN,
    "run.retry": _RUN,
    "run.hold": _RUN,
    "run.release": _RUN,
    "run.amend": _RUN,
    "run.quarantine": _RUN,
    "run.unquarantine": _RUN,
    "run.pin": _RUN,
    "run.unpin": _RUN,
    "run.take-over": _RUN,
    "study.submit": _SUBMIT,
    "study.add-trials": _RUN,
    "study.retry-failed": _RUN,
    "study.parallel": _RUN,
    "plan.make": _ASK,
    "pool.create": _POOL,
    "pool.start": _POOL,
    "pool.stop": _POOL,
    "pool.scale": _POOL,
    "pool.delete": _POOL,
    "pool.take-over": _POOL,
    "gpu.unquarantine": _POOL,
    "share.set": _POOL,
    "share.remove": _POOL,
    "home.prune": _POOL,
    "alerts.test": _POOL,
    "user.list": Right(Role.ADMIN, changes=False),
    "user.add": _ADMIN,
    "user.set": _ADMIN,
    "user.remove": _ADMIN,
    "audit.read": Right(Role.ADMIN, changes=False),
}


def reaches(role: Role, least: Role) -> bool:
    return _ORDER.index(role) >= _ORDER.index(least)


def lesser(one: Role, other: Role) -> Role:
    """What both allow."""
    return other if reaches(one, other) else one


def is_allowed(role: Role, operation: str, *, own: bool = False) -> bool:
    """
    Args:
        own: whether it is about a run of the person who asks.
    """
    right = RIGHTS[operation]
    return reaches(role, right.own if own and right.own is not None else right.least)


def refusal(role: Role, operation: str) -> str:
    """Why not, for the person who asks."""
    right = RIGHTS[operation]
    if right.own is not None and reaches(role, right.own):
        return f"{operation} is for the owner of the run, or the role {right.least}; you are {role}, and the run is another user's"
    needed = f"{right.least}" if right.own is None else f"{right.own} for your own runs, {right.least} for all"
    return f"{operation} needs the role {needed}; you are {role}"
