"""The search space: parameters, when each of them applies, and which combinations are forbidden.

A point is a mapping from the names of the parameters that apply to their values. Parameters are looked at in the order of the
file; a condition (`when`) may use those before it.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from evalfleet.errors import InputError
from evalfleet.tune import expression
from evalfleet.tune.expression import Expression, Value
from evalfleet.validation import quoted, suggestion

Point = dict[str, Value]

GRID_POINTS = 5  # of a range, where the file does not say how many
MOST_GRID = 20_000
_KEYS = {
    "choice": {"type", "values", "when"},
    "integer": {"type", "low", "high", "log", "when", "points"},
    "continuous": {"type", "low", "high", "log", "when", "points"},
}
_TYPES = {"choice": "choice", "categorical": "choice", "integer": "integer", "continuous": "continuous"}


class Choice(Struct, frozen=True, kw_only=True):
    """One of a few values."""

    name: str
    values: tuple[Value, ...]
    when: Expression | None = None

    @property
    def count(self) -> int | None:
        return len(self.values)

    def draw(self, rng: random.Random) -> Value:
        return rng.choice(self.values)

    def grid(self) -> tuple[Value, ...]:
        return self.values

    def every(self) -> Sequence[Value]:
        return self.values


class Span(Struct, frozen=True, kw_only=True):
    """A number from `low` to `high`, both included; whole or not; `log`: every factor is as likely as any other."""

    name: str
    low: float
    high: float
    whole: bool
    log: bool = False
    points: int = GRID_POINTS
    when: Expression | None = None

    @property
    def count(self) -> int | None:
        """The number of values; None if it is infinite."""
        if self.whole:
            return int(self.high) - int(self.low) + 1
        return 1 if self.low == self.high else None

    def draw(self, rng: random.Random) -> Value:
        if self.whole and not self.log:
            return rng.randint(int(self.low), int(self.high))
        return self._at(rng.random())

    def grid(self) -> tuple[Value, ...]:
        """Evenly spread points from end to end."""
        if self.count is not None and self.count <= self.points:
            return tuple(self.every())
        if self.points == 1:
            return (self._at(0.5),)
        return tuple(dict.fromkeys(self._at(i / (self.points - 1)) for i in range(self.points)))

    def every(self) -> Sequence[Value]:
        return range(int(self.low), int(self.high) + 1) if self.whole else (float(self.low),)

    def _at(self, share: float) -> Value:
        if self.log:
            found = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            found = self.low + share * (self.high - self.low)
        found = min(max(found, self.low), self.high)
        return min(max(round(found), int(self.low)), int(self.high)) if self.whole else found


Parameter = Choice | Span


class Space(Struct, frozen=True, kw_only=True):
    parameters: tuple[Parameter, ...]
    forbid: tuple[Expression, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    @property
    def size(self) -> int | None:
        """The largest possible number of points; None if it is infinite."""
        counts = [parameter.count for parameter in self.parameters]
        return None if None in counts else math.prod(count for count in counts if count is not None)

    def allows(self, point: Mapping[str, Value]) -> bool:
        return not any(rule.holds(point) for rule in self.forbid)

    def draw(self, rng: random.Random) -> Point:
        """Draw a random point. It may be a forbidden one."""
        return self.of({parameter.name: parameter.draw(rng) for parameter in self.parameters})

    def of(self, values: Mapping[str, Value]) -> Point:
        """The point of these values: parameters that do not apply are left out."""
        point: Point = {}
        for parameter in self.parameters:
            if parameter.name in values and (parameter.when is None or parameter.when.holds(point)):
                point[parameter.name] = values[parameter.name]
        return point

    def grid(self) -> list[Point]:
        """The allowed points of the grid, each once, in the order of the file. Raises InputError where they are too many."""
        axes = [parameter.grid() for parameter in self.parameters]
        total = math.prod(len(axis) for axis in axes)
        if total > MOST_GRID:
            raise InputError(
                f"the grid has {total:,} points, more than {MOST_GRID:,}; give ranges fewer `points`, or use the strategy "
                '"random"'
            )
        return list(self._points(axes))

    def every(self) -> list[Point] | None:
        """All allowed points; None if there are infinitely many, or too many to list."""
        if self.size is None or self.size > MOST_GRID:
            return None
        return list(self._points([parameter.every() for parameter in self.parameters]))

    def _points(self, axes: Sequence[Sequence[Value]]) -> Iterator[Point]:
        seen: set[str] = set()
        for values in itertools.product(*axes):
            point = self.of(dict(zip(self.names, values, strict=True)))
            if identity(point) not in seen and self.allows(point):
                seen.add(identity(point))
                yield point


def identity(point: Mapping[str, Value]) -> str:
    """The same text for the same point, whatever its order. Used to recognise duplicates."""
    return json.dumps(dict(point), sort_keys=True)


def space_of(table: Mapping[str, Any]) -> Space:
    """Read `[parameters]`. Raises InputError."""
    rules = table.get("forbid", [])
    parameters: list[Parameter] = []
    for name, row in table.items():
        if name != "forbid":
            if not name.isidentifier() or name in ("true", "false"):
                raise InputError(f"parameters: {quoted(name)} cannot be a name; use letters, digits and '_'")
            parameters.append(_parameter(name, row, [before.name for before in parameters]))
    if not parameters:
        raise InputError("parameters: is empty; define at least one, such as: batch = [1, 2, 4]")
    if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in cast("list[Any]", rules)):
        raise InputError('parameters.forbid: expected a list of texts, such as ["tp == 4 and batch > 256"]')
    names = [parameter.name for parameter in parameters]
    forbid = tuple(expression.parse(rule, names) for rule in cast("list[str]", rules))
    return Space(parameters=tuple(parameters), forbid=forbid)


def _parameter(name: str, row: Any, before: Sequence[str]) -> Parameter:
    where = f"parameters.{name}"
    fields: dict[str, Any] = {"type": "choice", "values": row} if isinstance(row, list) else row
    if not isinstance(row, list | dict):
        raise InputError(
            f'{where}: expected a list of values, or a table such as {{ type = "integer", low = 1, high = 8 }}'
        )
    kind = _TYPES.get(str(fields.get("type", "choice" if "values" in fields else "")))
    if kind is None:
        raise InputError(
            f"{where}.type: {fields.get('type')!r} is not a type{suggestion(str(fields.get('type')), _TYPES)}"
        )
    if unknown := sorted(fields.keys() - _KEYS[kind]):
        raise InputError(f"{where}: unknown key {quoted(unknown[0])}{suggestion(unknown[0], _KEYS[kind])}")
    when = expression.parse(str(fields["when"]), before) if "when" in fields else None
    if kind == "choice":
        return Choice(name=name, values=_values(where, fields.get("values")), when=when)
    return _span(name, where, fields, whole=kind == "integer", when=when)


def _values(where: str, values: Any) -> tuple[Value, ...]:
    found = cast("list[Any]", values) if isinstance(values, list) else []
    if not found or not all(isinstance(value, bool | int | float | str) for value in found):
        raise InputError(f"{where}: expected a list of at least one text, number or true/false")
    if not all(math.isfinite(value) for value in found if isinstance(value, int | float)):
        raise InputError(f"{where}: inf and nan are not allowed")
    if len({identity({"": value}) for value in found}) < len(found):
        raise InputError(f"{where}: a value is listed twice; remove one")
    return tuple(found)


def _span(name: str, where: str, fields: Mapping[str, Any], *, whole: bool, when: Expression | None) -> Span:
    ends: list[float] = []
    for end in ("low", "high"):
        value = fields.get(end)
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not math.isfinite(value):
            raise InputError(f"{where}.{end}: expected {'a whole number' if whole else 'a number'}")
        ends.append(value)
    log, points = fields.get("log", False), fields.get("points", GRID_POINTS)
    if ends[0] > ends[1]:
        raise InputError(f"{where}: low ({ends[0]:g}) is above high ({ends[1]:g}); swap them")
    if not isinstance(log, bool):
        raise InputError(f"{where}.log: expected true or false")
    if log and ends[0] <= 0:
        raise InputError(f"{where}: with log, low must be above 0")
    if isinstance(points, bool) or not isinstance(points, int) or not 1 <= points <= MOST_GRID:
        raise InputError(f"{where}.points: expected a whole number, 1 or more")
    return Span(name=name, low=ends[0], high=ends[1], whole=whole, log=log, points=points, when=when)
