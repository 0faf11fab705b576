"""What is wrong with data from outside, in the words of the person who wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args, overload

import msgspec

from evalfleet import duration
from evalfleet.errors import InputError
from evalfleet.model import MOST_PRIORITY

_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]*)`(?:, got `(?P<got>[^`]*)`)?")
_PATH = re.compile(r"^(?P<text>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_TYPES = {
    "str": "text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


def quoted(text: str, limit: int = 80) -> str:
    """Quote text from outside for one line of a message: cut, and without characters that a terminal obeys."""
    import json

    cut = text if len(text) <= limit else text[:limit] + "…"
    safe = json.dumps(cut, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in safe)


def sentence(text: str) -> str:
    """Return the text with a full stop, unless it ends with a question."""
    return text if text.endswith("?") else f"{text}."


@overload
def seconds(name: str, value: str | float, error: type[Exception] = ...) -> float: ...
@overload
def seconds(name: str, value: str | float | None, error: type[Exception] = ...) -> float | None: ...
def seconds(name: str, value: str | float | None, error: type[Exception] = InputError) -> float | None:
    """The seconds of a duration that a person wrote under this name; None where it is left out. Raises `error`, which names it."""
    try:
        return None if value is None else duration.parse(value)
    except ValueError as wrong:
        raise error(f"{name}: {wrong}") from None


def checked_priority(value: int | None, error: type[Exception] = InputError) -> int | None:
    """Raises `error` where no run can have that priority."""
    if value is not None and abs(value) > MOST_PRIORITY:
        raise error(f"priority: must be a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}")
    return value


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?", or the known words where none is near."""
    from difflib import get_close_matches

    words = sorted(known)
    near = get_close_matches(word, words, n=1)
    return f'; did you mean "{near[0]}"?' if near else f"; known here: {', '.join(words)}"


def explain(error: msgspec.ValidationError, struct: type[msgspec.Struct], hints: Mapping[str, str]) -> str:
    """Say what msgspec found: "field: what is wrong".

    Args:
        error: raised while reading `struct`.
        struct: the type that was read, for the names that it knows.
        hints: for a field's name, what to say when its type is wrong. Values never appear in the answer.
    """
    match = _PATH.match(str(error))
    text, path = (match["text"], match["path"] or "") if match else (str(error), "")
    prefix = f"{path}: " if path else ""
    if unknown := _UNKNOWN.match(text):
        name = unknown["name"]
        return f"{prefix}unknown key {quoted(name)}{suggestion(name, _fields_at(struct, path))}"
    if missing := _MISSING.match(text):
        return f'{prefix}"{missing["name"]}" is missing'
    hint = hints.get(path) or hints.get(re.split(r"[.\[]", path, maxsplit=1)[0])
    if expected := _EXPECTED.match(text):
        wanted, got = (_type(expected[part]) for part in ("wanted", "got"))
        return prefix + (hint or f"expected {wanted}") + (f", got {got}" if got and not hint else "")
    return prefix + text[:1].lower() + text[1:]


def _type(names: str | None) -> str:
    """Translate msgspec's "int | str | null"; "nothing" is left out beside another type."""
    words = [_TYPES.get(name, name) for name in (names or "").split(" | ") if name]
    return " or ".join(word for word in words if word != "nothing" or len(words) == 1)


def _fields_at(struct: type[msgspec.Struct], path: str) -> list[str]:
    """Return the names that the struct at `path` (such as "judge.pattern[0]") knows."""
    kind: Any = struct
    for step in re.findall(r"[^.\[\]]+(?=[.\[]|$)", path):
        kind = next((field.type for field in msgspec.structs.fields(kind) if field.encode_name == step), None)
        kind = _struct_in(kind)
        if kind is None:
            return []
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def _struct_in(kind: Any) -> Any:
    """Find the struct in a type such as `X | None` or `list[X]`."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((found for part in get_args(kind) if (found := _struct_in(part)) is not None), None)
