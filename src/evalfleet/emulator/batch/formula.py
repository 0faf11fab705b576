"""Autoscale formulas: the part of Batch's language that sets numbers by conditions on the time. Pure.

$TargetDedicatedNodes = time() < time("2026-01-01T12:00:00Z") ? 4 : 0;
$NodeDeallocationOption = taskcompletion;
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

_TOKEN = re.compile(r'\s*(?:(\d+(?:\.\d+)?)|"([^"]*)"|(\$?[A-Za-z]\w*)|(<=|>=|==|!=|[-+*/<>?:(),;=]))')
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


class FormulaError(Exception):
    """A formula that cannot be read."""


def evaluate(formula: str, now: float) -> dict[str, Any]:
    """Return what the formula assigns, by variable. Raises FormulaError."""
    return _Reader(_tokens(formula), now).assignments()


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    place = 0
    text = text.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise FormulaError(f"unexpected {text[place : place + 10]!r}")
        number, quoted, word, sign = match.groups()
        kind = "number" if number else "text" if quoted is not None else "word" if word else "sign"
        found.append((kind, number or word or sign or quoted or ""))
        place = match.end()
    return found


class _Reader:
    """Reads by recursive descent."""

    def __init__(self, tokens: list[tuple[str, str]], now: float) -> None:
        self._tokens = tokens
        self._now = now
        self._place = 0
        self._values: dict[str, Any] = {}

    def assignments(self) -> dict[str, Any]:
        while self._place < len(self._tokens):
            kind, name = self._take()
            if kind != "word":
                raise FormulaError(f"a variable is expected, not {name!r}")
            self._expect("=")
            self._values[name] = self._choice()
            self._expect(";")
        return {name: value for name, value in self._values.items() if name.startswith("$")}

    def _choice(self) -> Any:
        value = self._comparison()
        if not self._is("?"):
            return value
        self._expect("?")
        yes = self._choice()
        self._expect(":")
        no = self._choice()
        return yes if value else no

    def _comparison(self) -> Any:
        left = self._sum()
        if self._place < len(self._tokens) and self._tokens[self._place][1] in _COMPARED:
            compare = _COMPARED[self._take()[1]]
            return compare(left, self._sum())
        return left

    def _sum(self) -> Any:
        value = self._atom()
        while self._is("+") or self._is("-"):
            add = self._take()[1] == "+"
            other = self._atom()
            value = value + other if add else value - other
        return value

    def _atom(self) -> Any:
        kind, text = self._take()
        if kind == "number":
            return float(text)
        if text == "(":
            value = self._choice()
            self._expect(")")
            return value
        if kind == "word" and self._is("("):
            return self._called(text)
        if kind == "word":
            return self._values.get(text, text)
        raise FormulaError(f"unexpected {text!r}")

    def _called(self, name: str) -> Any:
        self._expect("(")
        given: list[Any] = []
        while not self._is(")"):
            if self._tokens[self._place][0] == "text":
                given.append(self._take()[1])
            else:
                given.append(self._choice())
            if self._is(","):
                self._expect(",")
        self._expect(")")
        if name == "time":
            return _moment(given[0]) if given else self._now
        if name in ("min", "max") and given:
            return (min if name == "min" else max)(given)
        raise FormulaError(f"{name}() is not emulated")

    def _is(self, sign: str) -> bool:
        return self._place < len(self._tokens) and self._tokens[self._place] == ("sign", sign)

    def _take(self) -> tuple[str, str]:
        if self._place >= len(self._tokens):
            raise FormulaError("it ends too early")
        self._place += 1
        return self._tokens[self._place - 1]

    def _expect(self, sign: str) -> None:
        if self._take()[1] != sign:
            raise FormulaError(f"{sign!r} is missing")


def _moment(text: str) -> float:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise FormulaError(f"{text!r} is no moment") from None
    return found.replace(tzinfo=found.tzinfo or UTC).timestamp()
