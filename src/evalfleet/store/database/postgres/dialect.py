"""From the shared statements, which are worded as SQLite takes them, to those that PostgreSQL takes. Pure.

What SQLite has of its own and PostgreSQL has not (`total`, `max` of two values, `json_extract`) is made by the first migration.
The rest is translated here, word by word; a statement for which that is not enough has a file in `sql/postgres/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from evalfleet.store.database.statements import statements

DIALECT = "postgres"

_WORDS: tuple[tuple[str, str], ...] = (
    (r"--[^\n]*", ""),
    (r"\bindexed by \w+", ""),  # a hint to SQLite's planner
    (r"\bcross join\b(?=[^()]*?\bon\b)", "join"),  # the same
    (r"\bglob '([\w.]+)\*'", r"like '\1%'"),
    (r"\blike (?=:)", "ilike "),  # SQLite does not tell apart upper and lower case of ASCII
)
_WRITES = re.compile(r"^(insert|update|delete)\b", re.MULTILINE)
_PLACE = re.compile(r"(?<!:):([a-z_]+)")

_FLOAT = re.compile(r"(\w+_)?(at|s|usd|until|since|hour|day)|now|latest|score|rank|not_before|older_than|weight")
_INT = re.compile(
    r"(\w+_)?(number|mb)|after|attempts|before|begins|consumes|disabled|epoch|files|forced|freed|gone|gpus|is_clean|judge_version|last_event|limit"
    r"|line|open|pack|pid|place|programs|retry|retryable|runs|shard|siblings|step|steps|success|thin|workers"
)


class Statement(NamedTuple):
    text: str
    names: tuple[str, ...]  # of its values, in the order of their numbers
    makers: tuple[Callable[[Any], Any], ...]  # from each value to one of the type that is declared for it
    writes: bool
    answers: bool  # whether it may return rows

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = []
        for name, make in zip(self.names, self.makers, strict=True):
            value = given[name]
            found.append(None if value is None else make(value))
        return found


@cache
def translated() -> dict[str, Statement]:
    """All statements by name."""
    return {name: translate(text) for name, text in statements(DIALECT).items()}


def translate(sql: str) -> Statement:
    for pattern, word in _WORDS:
        sql = re.sub(pattern, word, sql)
    names: list[str] = []

    def placed(match: re.Match[str]) -> str:
        name = match[1]
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}::{_type(name)[0]}"

    text = _PLACE.sub(placed, sql).strip()
    writes = _WRITES.search(text) is not None
    answers = not writes or re.search(r"\breturning\b", text) is not None
    return Statement(text, tuple(names), tuple(_type(name)[1] for name in names), writes, answers)


def _type(name: str) -> tuple[str, Callable[[Any], Any]]:
    """The type of a value, and what makes it of the values that the store gives."""
    if _FLOAT.fullmatch(name):
        return "double precision", float
    if _INT.fullmatch(name):
        return "bigint", int
    return ("bytea", bytes) if name == "samples" else ("text", text_of)


def text_of(value: Any) -> str:
    """Without the character of number 0, which no text of PostgreSQL can hold. Raises UnicodeEncodeError."""
    text = str(value)
    if not text.isascii():
        text.encode()
    return text.replace("\x00", "\ufffd") if "\x00" in text else text
