"""Checks: what a task expects of the state that a getter returned. Pure.

Each check is named in a task file as `func`, and its members are the `rules` of `expected`. A state that is not there is
None, and never what was expected.
"""

from __future__ import annotations

import math
from typing import Any, Protocol, cast

import msgspec


class Check(Protocol):
    def holds(self, found: Any) -> bool:
        """Say whether the found state is what the task wants."""
        ...


class ExactMatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state is exactly this: text, number, truth, or a list of them."""

    expected: str | float | bool | list[Any]

    def holds(self, found: Any) -> bool:
        return found is not None and _same(found, self.expected)


class TextMatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text is this one; line ends and white space at the end of lines and of the text do not count."""

    expected: str

    def holds(self, found: Any) -> bool:
        return isinstance(found, str) and _lines(found) == _lines(self.expected)


class Contains(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text or list has all of `include` in it, and none of `exclude`."""

    include: list[str] = []
    exclude: list[str] = []

    def __post_init__(self) -> None:
        if not self.include:  # else a state that nobody touched could hold
            raise ValueError("include: name at least one item that must be present")

    def holds(self, found: Any) -> bool:
        if not isinstance(found, str | list):
            return False
        inside = cast("str | list[str]", found)
        return all(each in inside for each in self.include) and not any(each in inside for each in self.exclude)


class NumberMatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state is a number, or text that is nothing but one, as near to `expected` as `tolerance` says."""

    expected: float
    tolerance: float = 1e-9

    def holds(self, found: Any) -> bool:
        try:
            number = float(found)
        except (TypeError, ValueError):
            return False
        return math.isfinite(number) and abs(number - self.expected) <= self.tolerance


CHECKS: dict[str, type[Check]] = {
    "exact_match": ExactMatch,
    "text_match": TextMatch,
    "contains": Contains,
    "number_match": NumberMatch,
}


def _same(found: Any, wanted: Any) -> bool:
    """Compare without taking 1 for true."""
    if isinstance(found, list) and isinstance(wanted, list):
        ours, theirs = cast("list[Any]", found), cast("list[Any]", wanted)
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    return isinstance(found, bool) == isinstance(wanted, bool) and found == wanted


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
