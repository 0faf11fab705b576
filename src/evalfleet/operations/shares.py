"""Weights and quotas of users and projects: the same for the command line, the page and Python."""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import asdict

from evalfleet import config
from evalfleet.answers.shares import ShareFacts, ShareName, ShareRow, ShareUse
from evalfleet.config.shares import LEAST_WEIGHT, MOST_AT_A_TIME, MOST_WEIGHT, share_rules
from evalfleet.core.shares.quota import ANY, ShareRule, Subject, merged
from evalfleet.errors import InputError, NotFound
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store

_LONGEST_NAME = 100


class Terms(Struct, frozen=True, kw_only=True):
    """What is said of one user or project, in place of what was said before. None: nothing."""

    weight: float | None = None
    running: int | None = None
    gpus: int | None = None
    usd_per_day: float | None = None


def list_shares(settings: config.Settings, store: StoreReader | None) -> ShareFacts:
    """What was said, and what each has that something was said of or that has something.

    Args:
        store: None: there is no home yet.
    """
    given = share_rules(settings.share, settings.quota)
    stored = [] if store is None else store.shares.rules()
    rules = merged(given, stored)
    named = {(rule.subject, rule.name) for rule in rules if rule.name != ANY}
    use: list[ShareUse] = []
    if store is not None:
        with store.snapshot():
            for subject, name in sorted(named | store.shares.holders()):
                use.append(ShareUse(subject=subject, name=name, **asdict(store.shares.use(subject, name))))
    return ShareFacts(rules=[_row(rule) for rule in rules], use=use)


def set_share(store: Store, subject: str, name: str, terms: Terms) -> ShareRow:
    """Raises InputError."""
    rule = ShareRule(subject=_subject(subject), name=_name(name), **asdict(terms))
    if rule.weight is None and not rule.limits:
        raise InputError("nothing is said: give a weight, a number of running attempts or of GPUs, or dollars per day")
    if rule.weight is not None and not LEAST_WEIGHT <= rule.weight <= MOST_WEIGHT:
        raise InputError(f"weight: must be from {LEAST_WEIGHT} to {MOST_WEIGHT:.0f}")
    for word, count in (("running", rule.running), ("gpus", rule.gpus)):
        if count is not None and not 0 <= count <= MOST_AT_A_TIME:
            raise InputError(f"{word}: must be a whole number from 0 to {MOST_AT_A_TIME}")
    if rule.usd_per_day is not None and not (0 <= rule.usd_per_day < math.inf):
        raise InputError("usd_per_day: must be 0 or more")
    store.shares.set_rule(rule)
    return _row(rule)


def remove_share(store: Store, subject: str, name: str) -> ShareName:
    """Raises NotFound where nothing was said with `set_share`."""
    found = _subject(subject)
    if not store.shares.remove_rule(found, name):
        raise NotFound(f"nothing is set for {found} {name!r}; `evalfleet share list` shows what is")
    return ShareName(subject=found, name=name)


def _row(rule: ShareRule) -> ShareRow:
    return ShareRow(**asdict(rule))


def _subject(word: str) -> Subject:
    try:
        return Subject(word)
    except ValueError:
        raise InputError(f"{word[:40]!r} is neither user nor project") from None


def _name(name: str) -> str:
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise InputError(f"a name has 1 to {_LONGEST_NAME} printable letters; '*' is each one that is not named")
    return name
