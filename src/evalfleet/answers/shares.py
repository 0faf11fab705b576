"""What users and projects may have of the machines, and what they have."""

from __future__ import annotations

from evalfleet.answers.base import Answer


class ShareName(Answer, frozen=True, kw_only=True):
    """A user or a project; `*` is each one that is not named."""

    subject: str  # user, project
    name: str


class ShareRow(ShareName, frozen=True, kw_only=True):
    """What one may have. None: not said."""

    weight: float | None
    running: int | None
    gpus: int | None
    usd_per_day: float | None


class ShareUse(ShareName, frozen=True, kw_only=True):
    """What one has now, and has spent since 00:00 UTC."""

    running: int
    gpus: int
    spent_usd: float
    committed_usd: float


class ShareFacts(Answer, frozen=True, kw_only=True):
    rules: list[ShareRow]  # of the configuration and of the store together
    use: list[ShareUse]
