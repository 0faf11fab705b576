"""Whose a new run is: its owner, its project and its tags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from evalfleet import config
from evalfleet.errors import InputError
from evalfleet.model import Ownership

_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}", re.ASCII)  # a member of a JSON path, as both databases write it
_LONGEST_VALUE = 200
_MOST_TAGS = 32


def ownership(
    settings: config.Settings, project: str | None, tags: Mapping[str, str], owner: str | None = None
) -> Ownership:
    """Checked. Without an owner it is the person at this terminal. Raises InputError."""
    chosen = settings.project if project is None else project
    return Ownership(owner=owner or config.login_name(), project=checked_project(chosen), tags=checked_tags(tags))


def checked_project(name: str) -> str:
    """Empty for none. Raises InputError."""
    if name and not _PROJECT.fullmatch(name):
        raise InputError(
            f"{name[:80]!r} cannot name a project; use up to 63 letters, digits, '.', '_' and '-', a letter or digit first"
        )
    return name


def checked_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Raises InputError."""
    if len(tags) > _MOST_TAGS:
        raise InputError(f"a run has at most {_MOST_TAGS} tags, and {len(tags)} are given")
    for key, value in tags.items():
        if not _KEY.fullmatch(key):
            raise InputError(f"tag {key[:80]!r}: use up to 63 letters, digits, '_' and '-', a letter first")
        if not value or len(value) > _LONGEST_VALUE or not value.isprintable():
            raise InputError(f"tag {key}: the value must be printable text of 1 to {_LONGEST_VALUE} letters")
    return dict(tags)


def tags_of(words: Iterable[str]) -> dict[str, str]:
    """The tags that words such as "model=x" give. Raises InputError."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"{word[:80]!r} is no tag; write it as KEY=VALUE, such as model=small")
        found[key] = value
    return checked_tags(found)
