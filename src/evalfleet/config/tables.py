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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar, cast, get_args

import msgspec
from msgspec import Meta, Struct

from evalfleet import duration, plugins
from evalfleet.errors import ConfigError
from evalfleet.validation import explain

Check: TypeAlias = tuple[Callable[[Any], bool], str]  # whether a value is good, and what it must be
Seconds: TypeAlias = Annotated[float, Meta(extra={"duration": True})]
FilePath: TypeAlias = Annotated[str, Meta(extra={"path": True})]
_HINT = 'expected a duration such as "90s" or "15m"'
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class SettingsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the configuration file. Holds no secret, only names of variables that do."""

    CHECKS: ClassVar[Mapping[str, Check]] = {}  # of fields, by their names in Python

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            holds, said = self.CHECKS.get(field.name, (None, ""))
            value = getattr(self, field.name)
            if holds is not None and value is not None and not holds(value):
                raise ValueError(f"{field.encode_name}: {said}")


Kind = TypeVar("Kind", bound=SettingsTable)


def is_path(value: str) -> bool:
    return bool(value.strip()) and "\0" not in value


def are_variables(value: Any) -> bool:
    return all(_VARIABLE.fullmatch(name) for name in value)


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

    Raises:
        ConfigError: names the file, the key and the remedy.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    hints = {f"{name}.{key}": _HINT for key, field in fields.items() if _marked(field.type, "duration")}
    if isinstance(content, dict):
        rows = cast("dict[str, Any]", content)
        content = {key: _written(path, f"{name}.{key}", fields.get(key), value) for key, value in rows.items()}
    whole = msgspec.defstruct("Document", [(name, kind)])
    try:
        found: Any = getattr(msgspec.convert({name: content}, whole), name)
    except msgspec.ValidationError as error:
        said = re.sub(rf"^{re.escape(name)}: (\w+): ", rf"{name}.\1: ", explain(error, whole, hints))
        raise ConfigError(f"{path}: {said}" + ("" if said.endswith("?") else ".")) from None
    return {field.name: getattr(found, field.name) for key, field in fields.items() if key in content}


def filled(name: str, kind: type[Kind], given: Mapping[str, Any]) -> Kind:
    """Return the table with these fields; ones that this version does not know are left out.

    Raises:
        ConfigError: a value of the environment or of another machine does not fit.
    """
    fields = msgspec.structs.fields(kind)
    written = {field.encode_name: given[field.name] for field in fields if field.name in given}
    try:
        return msgspec.convert(msgspec.to_builtins(written), kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}.{explain(error, kind, {})}.") from None


def merged(weaker: Mapping[str, Any], stronger: Mapping[str, Any]) -> dict[str, Any]:
    """Put two tables together: a key of the stronger one wins, but lists of tables are joined, its own first."""
    found = {**weaker, **stronger}
    for key in weaker.keys() & stronger.keys():
        if isinstance(weaker[key], tuple) and any(isinstance(row, Struct) for row in weaker[key]):
            found[key] = stronger[key] + weaker[key]
    return found


def _marked(kind: Any, mark: str) -> bool:
    """Whether the type, or one of those in it, is marked so."""
    extra = [part.extra or {} for part in getattr(kind, "__metadata__", ()) if isinstance(part, Meta)]
    return any(mark in each for each in extra) or any(_marked(part, mark) for part in get_args(kind))


def _written(path: Path, key: str, field: msgspec.structs.FieldInfo | None, value: Any) -> Any:
    """Turn what is written into what the field has: durations into seconds, paths from the file's folder on."""
    if field is None or not isinstance(value, str) or not value:
        return value
    if _marked(field.type, "path"):
        return str(path.parent / Path(value).expanduser())
    if not _marked(field.type, "duration"):
        return value
    try:
        return duration.parse(value)
    except ValueError as error:
        raise ConfigError(f"{path}: {key}: {error}.") from None
