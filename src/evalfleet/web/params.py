"""What requests say: query parameters and JSON bodies, checked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from evalfleet.errors import InputError
from evalfleet.validation import explain
from evalfleet.web.queries import Page

T = TypeVar("T", bound=msgspec.Struct)

LIMIT = 100
_LONGEST_NAME = 500
MOST = 1000
LARGEST = 1 << 62


class Nothing(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A body that says nothing."""


def text(request: web.Request, name: str) -> str | None:
    """A parameter that may be missing; empty is missing."""
    value = request.query.get(name) or None
    if value is not None and ("\0" in value or len(value) > 1000):
        raise InputError(f"{name}: is too long, or holds a NUL")
    return value


def word(request: web.Request, name: str, allowed: tuple[str, ...]) -> str | None:
    value = text(request, name)
    if value is not None and value not in allowed:
        raise InputError(f"{name}: {value!r} is none of {', '.join(allowed)}")
    return value


def words(request: web.Request, name: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """A parameter that may be repeated."""
    values = tuple(value for value in request.query.getall(name, []) if value)
    wrong = next((value for value in values if value not in allowed), None)
    if wrong is not None:
        raise InputError(f"{name}: {wrong!r} is none of {', '.join(allowed)}")
    return values


def texts(request: web.Request, name: str) -> tuple[str, ...]:
    """A parameter of any text that may be repeated."""
    values = tuple(value for value in request.query.getall(name, []) if value)
    if any("\0" in value or len(value) > 1000 for value in values):
        raise InputError(f"{name}: is too long, or holds a NUL")
    return values


def whole(request: web.Request, name: str, default: int | None, least: int = 0, most: int = LARGEST) -> int | None:
    value = text(request, name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) < 20 and least <= int(value) <= most):
        raise InputError(f"{name}: {value[:40]!r} is not a whole number from {least} to {most}")
    return int(value)


def moment(request: web.Request, name: str) -> float:
    value = text(request, name)
    try:
        found = float(value or 0.0)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InputError(f"{name}: {value!r} is not a moment in seconds since 1970")
    return found


def page(request: web.Request, most: int = MOST, parts: int = 1) -> Page:
    """`limit` and `cursor`; a cursor consists of this many numbers."""
    cursor = text(request, "cursor")
    if cursor is not None:
        numbers = cursor.split(",")
        try:
            good = len(numbers) == parts and all(0 <= float(number) < LARGEST for number in numbers)
            good &= all(number.isascii() and number.isdigit() for number in numbers[1 if parts > 1 else 0 :])
        except ValueError:
            good = False
        if not good:
            raise InputError("cursor: is not one that an answer gave as `next`")
    limit = whole(request, "limit", LIMIT, 1, most)
    return Page(limit=limit or LIMIT, cursor=cursor)


def number(request: web.Request, name: str) -> int:
    """A number in the path."""
    value = request.match_info[name]
    if len(value) > 9:
        raise InputError(f"{name}: {value[:40]!r} is too large")
    return int(value)


async def body(request: web.Request, type: type[T]) -> T:
    """The JSON body. Raises InputError, HTTPUnsupportedMediaType."""
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="the body must be JSON, with Content-Type: application/json")
    content = await request.read()
    try:
        return msgspec.json.decode(content or b"{}", type=type)
    except msgspec.ValidationError as error:
        raise InputError(f"body: {explain(error, type, {})}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"body: is not JSON: {error}") from None


def finite(name: str, value: float | None) -> float | None:
    if value is not None and not 0 <= value < math.inf:
        raise InputError(f"{name}: must be a number, 0 or more")
    return value


def some(value: Any, what: str) -> None:
    """Raises InputError where nothing is given."""
    if not value:
        raise InputError(f"{what} is missing")


def workers(value: int | None, name: str = "workers", most: int = 100_000) -> int | None:
    if value is not None and not 1 <= value <= most:
        raise InputError(f"{name}: must be a whole number from 1 to {most}")
    return value


def folder(value: str | None) -> str:
    """Where tasks start: a folder that is there; the one that the server was started in, where none is given."""
    if value is None:
        return str(Path.cwd())
    path = Path(value)
    if "\0" in value or not path.is_absolute() or ".." in path.parts:
        raise InputError(f"folder: {value[:200]!r} is not the whole path of a folder; begin it with / and leave out ..")
    try:
        there = path.is_dir()
    except OSError:
        there = False
    if not there:
        raise InputError(f"folder: there is no folder {value[:200]!r} on the server's machine; make it first")
    return str(path)


def title(value: str | None) -> str | None:
    """What a run or study is to be called."""
    if value is not None and (not value.strip() or "\0" in value or len(value) > _LONGEST_NAME):
        raise InputError(f"name: must be a text of up to {_LONGEST_NAME} letters that is not empty")
    return value
