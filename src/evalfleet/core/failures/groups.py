"""Groups of failures with the same message, after the parts that differ between tasks are removed.

This is for people, and coarser than `core.failures.same_cause`, by which blame is moved: paths and ids are taken out, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from evalfleet.core.failures.kinds import is_specific, same_cause

_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_ID = re.compile(r"\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[A-Za-z0-9][\w-]{9,}\b")
_PATH = re.compile(r"(?<![\w:/.>])/(?:[^\s/'\":,()]+/)+[^\s/'\":,()]*")
_LEAST_TASKS = 3


class Line(Struct, frozen=True, kw_only=True):
    """The failures of one task that left the same evidence."""

    kind: str
    blame: str
    evidence: str
    key: str
    attempts: int
    ended_at: float


class Group(Struct, frozen=True, kw_only=True):
    """Failures of one kind with the same message; blame, key and evidence are those of the latest."""

    kind: str
    blame: str
    message: str
    attempts: int
    tasks: int
    key: str
    evidence: str


@lru_cache(maxsize=10_000)
def message_of(evidence: str, key: str) -> str:
    """The evidence without numbers, ids, paths, times and the task's key."""
    return same_cause(_ID.sub("#", _PATH.sub("<path>", _UUID.sub("#", same_key(evidence, key)))))


def same_key(evidence: str, key: str) -> str:
    return re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", "<task>", evidence) if key else evidence


def groups(lines: Iterable[Line]) -> list[Group]:
    """The groups, most attempts first."""
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        found.setdefault((line.kind, message_of(line.evidence, line.key)), []).append(line)
    made = [_group(message, members) for (_, message), members in found.items()]
    return sorted(made, key=lambda group: (-group.attempts, -group.tasks, group.kind, group.message))


def _group(message: str, members: list[Line]) -> Group:
    latest = max(members, key=lambda line: line.ended_at)
    return Group(
        kind=latest.kind,
        blame=latest.blame,
        message=message,
        attempts=sum(line.attempts for line in members),
        tasks=len({line.key for line in members}),
        key=latest.key,
        evidence=latest.evidence,
    )


def most_of(found: list[Group]) -> Group | None:
    """The group that makes up more than half of all failures, of several tasks, and says something; None: there is none."""
    if not found:
        return None
    first = found[0]
    most = 2 * first.attempts > sum(group.attempts for group in found)
    return first if most and first.tasks >= _LEAST_TASKS and is_specific(first.evidence) else None
