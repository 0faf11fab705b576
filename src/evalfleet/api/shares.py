"""Weights and quotas of users and projects."""

from __future__ import annotations

from contextlib import closing
from typing import Literal

from evalfleet import config
from evalfleet.answers.shares import ShareFacts, ShareName, ShareRow
from evalfleet.api.tasks import Folder
from evalfleet.operations import shares
from evalfleet.report.reader import opened
from evalfleet.store.open import open_store


def list_shares(*, home: Folder | None = None) -> ShareFacts:
    """What users and projects may have of the machines, and what they have now."""
    settings = config.load(home)
    with opened(settings.home) as store:
        return shares.list_shares(settings, store)


def set_share(
    subject: Literal["user", "project"],
    name: str,
    *,
    weight: float | None = None,
    running: int | None = None,
    gpus: int | None = None,
    usd_per_day: float | None = None,
    home: Folder | None = None,
) -> ShareRow:
    """Say what a user or project may have, in place of all that was said of it before.

    Args:
        subject: whether it is a user or a project.
        name: of the user or project; "*" is each one that is not named.
        weight: how much it gets beside others; 1 where nothing is said.
        running: the most attempts at a time.
        gpus: the most GPUs at a time.
        usd_per_day: the most dollars since 00:00 UTC.
        home: where everything is kept; else EVALFLEET_HOME, or ~/.evalfleet.

    Raises:
        InputError: a value cannot be.
    """
    terms = shares.Terms(weight=weight, running=running, gpus=gpus, usd_per_day=usd_per_day)
    with closing(open_store(config.load(home).home)) as store:
        return shares.set_share(store, subject, name, terms)


def remove_share(subject: Literal["user", "project"], name: str, *, home: Folder | None = None) -> ShareName:
    """Forget what was said of a user or project. Raises NotFound where nothing was."""
    with closing(open_store(config.load(home).home)) as store:
        return shares.remove_share(store, subject, name)
