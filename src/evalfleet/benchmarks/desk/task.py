"""One task of `desk`: its file, checked as a whole, and what became of it.

The file follows Windows Agent Arena: `id`, `instruction`, `config` with typed steps, and an `evaluator` with `func`,
`result`, `expected` and `conj`. docs/reference/desk-tasks.md is the contract.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from evalfleet.benchmarks.desk.checks import CHECKS, Check
from evalfleet.benchmarks.desk.getters import GETTERS, Getter
from evalfleet.benchmarks.desk.setup_steps import SETUPS, Setup
from evalfleet.errors import TaskFileError
from evalfleet.validation import explain, quoted, sentence, suggestion

BUILT_IN = Path(__file__).parent / "tasks"
_ID = re.compile(r"[a-z0-9][a-z0-9.-]{0,79}")
_CONJUNCTIONS = ("and", "or")
_HINTS = {
    "config": 'expected a list of steps such as {"type": "create_folder", "parameters": {"path": "Documents"}}',
    "related_apps": "expected a list of names",
    "evaluator.func": "expected the name of a check, or a list of them",
    "evaluator.result": 'expected a getter such as {"type": "clipboard"}, or a list of them',
    "evaluator.expected": 'expected {"type": "rule", "rules": {…}}, or a list of them',
}


class _Step(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    parameters: dict[str, Any] = {}


class _Expected(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    rules: dict[str, Any]


class _Evaluator(msgspec.Struct, forbid_unknown_fields=True):
    func: str | list[str]
    result: dict[str, Any] | list[dict[str, Any]]
    expected: _Expected | list[_Expected]
    conj: str = "and"


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    instruction: str
    evaluator: _Evaluator
    config: list[_Step] = []
    related_apps: list[str] = []
    source: str = ""


class Point(Struct, frozen=True, kw_only=True):
    """One thing that is looked at: where, and what must be found there."""

    func: str
    getter: Getter
    check: Check


class DeskTask(Struct, frozen=True, kw_only=True):
    id: str
    domain: str
    instruction: str
    setups: tuple[Setup, ...]
    points: tuple[Point, ...]
    conj: str  # "and": all points must hold; "or": one is enough
    definition: Mapping[str, Any]  # the file's content, which travels to the worker


def load(folder: Path) -> list[DeskTask]:
    """Read all tasks of a folder: `<domain>/<id>.json`, in the order of their names.

    Raises:
        TaskFileError: names the file, the key and the remedy.
    """
    if not folder.is_dir():
        raise TaskFileError(f"{folder}: there is no such folder; it should contain <domain>/<id>.json.")
    found = [read(path) for path in sorted(folder.glob("*/*.json"))]
    if not found:
        raise TaskFileError(f"{folder}: contains no tasks; a task is a file <domain>/<id>.json in it.")
    return found


def read(path: Path) -> DeskTask:
    """Read one task's file. Raises TaskFileError."""
    try:
        value: Any = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise TaskFileError(f"{path}: cannot be read: {error.strerror}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TaskFileError(f"{path}: is not valid JSON: {error}.") from None
    task = parse(value, domain=path.parent.name, where=str(path))
    if task.id != path.stem:
        raise TaskFileError(f"{path}: id: must be {quoted(path.stem)}, like the name of the file.")
    return task


def parse(definition: Any, *, domain: str, where: str) -> DeskTask:
    """Check a task's definition as a whole. Raises TaskFileError, which begins with `where`."""
    try:
        return _parsed(definition, domain)
    except _Problem as problem:
        raise TaskFileError(f"{where}: {sentence(str(problem))}") from None


class _Problem(Exception):
    """ "key: what is wrong, and what to do", without a full stop."""


def _parsed(definition: Any, domain: str) -> DeskTask:
    row = _converted(definition, _Row, "", _HINTS)
    if not _ID.fullmatch(row.id):
        raise _Problem("id: use lower-case letters, digits, dots and hyphens, at most 80 characters")
    if not row.instruction.strip():
        raise _Problem("instruction: is empty; write what the agent should do")
    evaluator = row.evaluator
    if evaluator.conj not in _CONJUNCTIONS:
        raise _Problem(f'evaluator.conj: must be "and" or "or", got {quoted(evaluator.conj)}')
    return DeskTask(
        id=row.id,
        domain=domain,
        instruction=row.instruction,
        setups=tuple(
            _made(SETUPS, step.type, step.parameters, f"config[{index}].type", f"config[{index}].parameters")
            for index, step in enumerate(row.config)
        ),
        points=_points(evaluator),
        conj=evaluator.conj,
        definition=cast("Mapping[str, Any]", definition),
    )


def _points(evaluator: _Evaluator) -> tuple[Point, ...]:
    single = isinstance(evaluator.func, str)
    functions = _listed(evaluator.func)
    results = _listed(evaluator.result)
    expected = _listed(evaluator.expected)
    if not functions:
        raise _Problem("evaluator.func: is empty; name at least one check")
    if not len(functions) == len(results) == len(expected):
        raise _Problem("evaluator: func, result and expected must have the same length")
    points: list[Point] = []
    for index, (func, result, rule) in enumerate(zip(functions, results, expected, strict=True)):
        place = "" if single else f"[{index}]"
        if rule.type != "rule":
            raise _Problem(f'evaluator.expected{place}.type: must be "rule", got {quoted(rule.type)}')
        if not isinstance(kind := result.get("type"), str):
            raise _Problem(f'evaluator.result{place}: "type" is missing')
        members = {name: value for name, value in result.items() if name != "type"}
        getter = _made(GETTERS, kind, members, f"evaluator.result{place}.type", f"evaluator.result{place}")
        check = _made(CHECKS, func, rule.rules, f"evaluator.func{place}", f"evaluator.expected{place}.rules")
        points.append(Point(func=func, getter=getter, check=check))
    return tuple(points)


_Made = TypeVar("_Made")


def _made(kinds: Mapping[str, type[_Made]], name: str, members: Any, name_key: str, members_key: str) -> _Made:
    """Make the step, getter or check of that name; the keys are those under which the file has name and members."""
    kind = kinds.get(name)
    if kind is None:
        raise _Problem(f"{name_key}: there is no {quoted(name)}{suggestion(name, kinds)}")
    return _converted(members, cast("Any", kind), members_key, {})


def _converted(value: Any, kind: Any, where: str, hints: Mapping[str, str]) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        said = explain(error, kind, hints)
        if not where:
            raise _Problem(said) from None
        joint = "." if re.match(r"[\w.\[\]]+: ", said) else ": "
        raise _Problem(f"{where}{joint}{said}") from None


def _listed(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else [value]
