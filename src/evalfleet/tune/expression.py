"""Small expressions over parameters, such as "tp == 4 and max_num_seqs > 256".

An expression is parsed into a tree of a few known node types and evaluated here; Python never runs it. Numbers know `+ - * / // %`; all
values know comparisons, `in [..]`, `and`, `or`, `not`; `min(..)` and `max(..)` are the only functions.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec import Struct

from evalfleet.errors import InputError
from evalfleet.validation import quoted, suggestion

Value = bool | int | float | str

_LONGEST = 1000
_WORDS: dict[str, Value] = {"true": True, "false": False}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda one, other: one / other,
    ast.FloorDiv: lambda one, other: one // other,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}


class Expression(Struct, frozen=True):
    """A parsed expression, which can be evaluated any number of times."""

    text: str
    names: frozenset[str]
    _tree: ast.expr

    def value(self, values: Mapping[str, Value]) -> Value:
        """Raises InputError where the types of the values do not match, and KeyError for a name without a value."""
        try:
            return _value(self._tree, values)
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            raise InputError(f"{quoted(self.text)} cannot be evaluated for {dict(values)}: {error}") from None

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Whether it is true. An expression that uses a parameter without a value is false."""
        return self.names <= values.keys() and bool(self.value(values))


def parse(text: str, known: Collection[str]) -> Expression:
    """Read an expression over the names `known`. Raises InputError."""
    if len(text) > _LONGEST:
        raise InputError(f"{quoted(text)}: longer than {_LONGEST} characters; write several shorter ones")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        names = frozenset(_check(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error) or "nested too deeply"
        raise InputError(
            f'{quoted(text)} is not an expression: {why}; write it like "tp == 4 and batch > 256"'
        ) from None
    if unknown := sorted(names - set(known)):
        raise InputError(f"{quoted(text)}: there is no parameter {quoted(unknown[0])}{suggestion(unknown[0], known)}")
    return Expression(text, names, tree)


def _check(tree: ast.expr) -> set[str]:
    """The names that it uses. Raises ValueError for syntax that is not supported."""
    match tree:
        case ast.Constant(value=bool() | int() | float() | str()):
            return set()
        case ast.Name(id=name):
            return set() if name in _WORDS else {name}
        case ast.BoolOp(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
            return set[str]().union(*(_check(part) for part in parts))
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            return _check(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _check(left) | _check(right)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARISONS for op in ops):
            return _check(left).union(*(_check(other) for other in others))
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in _FUNCTIONS and parts:
            return set[str]().union(*(_check(part) for part in parts))
        case _:
            raise ValueError(f"{quoted(ast.unparse(tree))} is not allowed in an expression")


def _value(tree: ast.expr, values: Mapping[str, Value]) -> Any:
    match tree:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _WORDS[name] if name in _WORDS else values[name]
        case ast.BoolOp(op=op, values=parts):
            return (all if isinstance(op, ast.And) else any)(_value(part, values) for part in parts)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part, values) for part in parts]
        case ast.UnaryOp(op=op, operand=operand):
            found = _value(operand, values)
            return not found if isinstance(op, ast.Not) else -_number(found)
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_number(_value(left, values)), _number(_value(right, values)))
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _compare(_value(left, values), ops, [_value(other, values) for other in others])
        case ast.Call(func=ast.Name(id=name), args=parts):
            return _FUNCTIONS[name](*(_number(_value(part, values)) for part in parts))
        case _:
            raise AssertionError(f"not checked: {ast.dump(tree)}")


def _compare(left: Any, ops: list[ast.cmpop], others: list[Any]) -> bool:
    for op, other in zip(ops, others, strict=True):
        if not _COMPARISONS[type(op)](left, other):
            return False
        left = other
    return True


def _number(value: Any) -> Any:
    # A text times a number would be a text of any length.
    if isinstance(value, str | list):
        raise TypeError(f"{value!r} is not a number")
    return value
