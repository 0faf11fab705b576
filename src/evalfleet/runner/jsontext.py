"""JSON as the runner reads and writes it.

Output of a task is not trusted: anything that could break another JSON reader (huge numbers, deep nesting, lone surrogates) is
refused or repaired here, once. NaN and infinities, which many libraries write, become null.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False  # typing is not imported at run time: it would cost a tenth of the start-up
if TYPE_CHECKING:
    from typing import Any

MAX_DEPTH = 200
MAX_DIGITS = 400


class _NoNumber(str):
    """NaN or an infinity, as written in the text."""

    __slots__ = ()


def _whole(digits: str) -> int:
    # Python before 3.11 takes quadratic time for a million digits
    if len(digits) > MAX_DIGITS:
        raise ValueError("a number has too many digits")
    return int(digits)


def _real(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return number


_decode = json.JSONDecoder(parse_constant=_NoNumber, parse_int=_whole, parse_float=_real).decode
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
_encode_raw = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode


def as_object(value: Any) -> dict[str, Any] | None:
    """The value if it is a JSON object."""
    found: Any = value
    return found if isinstance(value, dict) else None


def as_list(value: Any) -> list[Any] | None:
    """The value if it is a JSON array."""
    found: Any = value
    return found if isinstance(value, list) else None


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        deeper: list[Any] = []
        for item in level:
            deeper.extend((as_object(item) or {}).values())
            deeper.extend(as_list(item) or ())
        if not deeper:
            return False
        level = deeper
    return True


def _finite(value: Any) -> Any:
    """The value with null in place of NaN and infinities. Not for deeply nested values."""
    if isinstance(value, _NoNumber):
        return None
    fields, items = as_object(value), as_list(value)
    if fields is not None:
        return {name: _finite(item) for name, item in fields.items()}
    return value if items is None else [_finite(item) for item in items]


def parse(data: bytes, number: str = "") -> Any:
    """Parse one JSON text.

    Args:
        number: a member of the outermost object that must be a number: NaN or an infinity there becomes text, not null.

    Raises:
        ValueError: with a reason of a few words, whatever is wrong.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    try:
        value = _decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError("not JSON: %s (line %d, column %d)" % (error.msg, error.lineno, error.colno)) from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deep(value):
        raise ValueError("nested too deeply")
    if "NaN" in text or "Infinity" in text:
        odd = (as_object(value) or {}).get(number)
        value = _finite(value)
        if isinstance(odd, _NoNumber):
            value[number] = str(odd)
    if "\\u" in text:
        # half surrogates pass Python's reader but no strict one
        value = _decode(_encode_raw(value).encode("utf-8", "replace").decode("utf-8"))
    return value


def parse_own(data: bytes) -> Any:
    """Parse JSON that this program wrote; it may be nested a little deeper than foreign input.

    Raises:
        ValueError: it was damaged by a crash.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def encode(value: Any) -> bytes:
    """One line of ASCII JSON, including the newline."""
    return _encode(value).encode("ascii") + b"\n"
