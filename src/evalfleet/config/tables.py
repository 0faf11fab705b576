"""Settings of plug-ins: a benchmark or an agent declares a table that `evalfleet.toml` may have.

A package declares it by an entry point of the group `evalfleet.settings`, whose name is the table's and whose value is
a subclass of `SettingsTable`. `Settings.table(name, kind)` gives it, with what the files say in place of the defaults. ::

    class SumsSettings(SettingsTable, frozen=True, kw_only=True):
        CHECKS = {"digits": (lambda value: 1 <= value <= 9, "must be from 1 to 9")}

        digits: int = 2
        timeout_s: Seconds = msgspec.field(default=60.0, name="timeout")  # written as "90s"
        words: FilePath | None = None  # begins at the folder of the file that names it

The module should import little: it is loaded by every command where the file has the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import msgspec
from msgspec import Meta, Struct

from evalfleet import duration, plugins
from evalfleet.errors import ConfigError
from evalfleet.model.settings_table import Check, FilePath, Seconds, SettingsTable, are_variables, is_path

__all__ = ["Check", "FilePath", "Seconds", "SettingsTable", "are_variables", "is_path"]

_HINT = 'expected a duration such as "90s" or "15m"'

Kind = TypeVar("Kind", bound=SettingsTable)


def declared(name: str) -> type[SettingsTable] | None:
    """Return the table of that name that a plug-in declares. Raises ConfigError where it cannot be loaded."""
    if name in plugins.BUILT_IN[plugins.SETTINGS]:
        return plugins.built_in(plugins.SETTINGS, name)
    point = plugins.installed(plugins.SETTINGS).get(name)
    if point is None:
        return None
    try:
        found = point.load()
    except Exception as error:
        raise ConfigError(f"[{name}]: {point.value} cannot be loaded: {type(error).__name__}: {error}.") from error
    if not (isinstance(found, type) and issubclass(found, SettingsTable)):
        raise ConfigError(f"[{name}]: {point.value} is no SettingsTable.")
    return found


def read(path: Path, name: str, kind: type[SettingsTable], content: Any) -> dict[str, Any]:
    """Check the table that a file has, and return the fields that it sets.

    Args:
        name: of the table; "" for the keys outside of any.

    Raises:
        ConfigError: names the file, the key and the remedy.
    """
    from evalfleet.validation import sentence

    prefix = f"{name}." if name else ""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    if isinstance(content, dict):
        rows = cast("dict[str, Any]", content)
        content = {key: _written(path, f"{prefix}{key}", fields.get(key), value) for key, value in rows.items()}
    whole = msgspec.defstruct("Document", [(name, kind)]) if name else kind
    try:
        converted: Any = msgspec.convert({name: content} if name else content, whole)
    except msgspec.ValidationError as error:
        raise ConfigError(sentence(f"{path}: {_explained(error, name, kind, whole)}")) from None
    found = getattr(converted, name) if name else converted
    return {field.name: getattr(found, field.name) for key, field in fields.items() if key in content}


def read_variable(variable: str, name: str, kind: type[SettingsTable], key: str, text: str) -> dict[str, Any]:
    """Check what a variable of the environment sets, and return that field.

    Raises:
        ConfigError: names the variable, the key and the remedy.
    """
    field = next(field for field in msgspec.structs.fields(kind) if field.encode_name == key)
    try:
        value = duration.parse(text) if _marked(field.type, "duration") else text
        found = msgspec.convert({key: value}, kind, strict=False)
    except msgspec.ValidationError as error:
        said = str(error)
        said = f'"{text[:40]}" is not a number' if said.startswith("Expected") else f"{name}.{said}".lstrip(".")
        raise ConfigError(f"{variable}: {said}.") from None
    except ValueError as error:
        raise ConfigError(f"{variable}: {error}.") from None
    return {field.name: getattr(found, field.name)}


def _explained(error: msgspec.ValidationError, name: str, kind: type[SettingsTable], whole: type[Struct]) -> str:
    from evalfleet.validation import explain

    hints = {
        f"{name}.{field.encode_name}": _HINT
        for field in msgspec.structs.fields(kind)
        if _marked(field.type, "duration")
    }
    said = explain(error, whole, hints)
    said = re.sub(rf"^{re.escape(name)}: ([\w.]+): ", rf"{name}.\1: ", said)
    return re.sub(r"^([\w.]+)\[(\d+)\]", lambda found: f"[[{found[1]}]] number {int(found[2]) + 1}", said)


def filled(name: str, kind: type[Kind], given: Mapping[str, Any]) -> Kind:
    """Return the table with these fields; ones that this version does not know are left out.

    Raises:
        ConfigError: a value of the environment or of another machine does not fit.
    """
    from evalfleet.validation import explain

    fields = msgspec.structs.fields(kind)
    written = {field.encode_name: given[field.name] for field in fields if field.name in given}
    try:
        return msgspec.convert(msgspec.to_builtins(written), kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}.{explain(error, kind, {})}.") from None


def merged(weaker: Mapping[str, Any], stronger: Mapping[str, Any]) -> dict[str, Any]:
    """Put two tables together: a key of the stronger one wins, but tables in it are joined, its own first."""
    found = {**weaker, **stronger}
    for key in weaker.keys() & stronger.keys():
        old, new = weaker[key], stronger[key]
        if isinstance(old, tuple) and any(isinstance(row, Struct) for row in cast("tuple[Any, ...]", old)):
            found[key] = new + old
        elif isinstance(old, dict) and any(isinstance(row, Struct) for row in cast("dict[str, Any]", old).values()):
            found[key] = {**old, **new}
    return found


def _marked(kind: Any, mark: str) -> bool:
    """Whether the type, or one of those in it, is marked so."""
    extra = [part.extra or {} for part in getattr(kind, "__metadata__", ()) if isinstance(part, Meta)]
    return any(mark in each for each in extra) or any(_marked(part, mark) for part in get_args(kind))


def _written(path: Path, key: str, field: msgspec.structs.FieldInfo | None, value: Any) -> Any:
    """Turn what is written into what the field has: durations into seconds, paths from the file's folder on."""
    if field is None or value == "" or not isinstance(value, str | int | float) or isinstance(value, bool):
        return value
    if _marked(field.type, "path") and isinstance(value, str):
        return str(path.parent / Path(value).expanduser())
    if not _marked(field.type, "duration"):
        return value
    try:
        return duration.parse(value)
    except ValueError as error:
        raise ConfigError(f"{path}: {key}: {error}.") from None
