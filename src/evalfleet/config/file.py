"""The reading of a configuration file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from evalfleet import plugins
from evalfleet.config import tables
from evalfleet.config.core_tables import TABLES, GeneralSettings
from evalfleet.config.pools import Dollars, PoolOptions, given
from evalfleet.errors import ConfigError, InputError
from evalfleet.validation import explain, quoted, sentence, suggestion

Duration = str | float | None


class PoolTable(PoolOptions):
    """The options of `pool create`, by their names."""

    backend: str | None = None
    budget: Dollars | None = None  # as the option is called


class _Pools(msgspec.Struct):
    pool: dict[str, PoolTable]


GENERAL = {field.encode_name for field in msgspec.structs.fields(GeneralSettings)}


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Read a configuration file: by table the fields that it sets; "" stands for the keys outside of any.

    Raises:
        ConfigError: names the file, the key and the remedy.
    """
    content = _parsed(path)
    general = {key: content.pop(key) for key in content.keys() & GENERAL}
    found = {"": tables.read(path, "", GeneralSettings, general)} if general else {}
    for name, table in content.items():
        found[name] = _pools(path, table) if name == "pool" else tables.read(path, name, _kind(path, name), table)
    return found


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at offset {error.start}; save the file as UTF-8.") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}.") from None


def _kind(path: Path, name: str) -> type[tables.SettingsTable]:
    """Return the shape of a table, of evalfleet or of a plug-in. Raises ConfigError where there is none."""
    kind = TABLES.get(name) or tables.declared(name)
    if kind is None:
        known = {*GENERAL, *TABLES, "pool", *plugins.names(plugins.SETTINGS)}
        raise ConfigError(sentence(f"{path}: unknown key {quoted(name)}{suggestion(name, known)}"))
    return kind


def _pools(path: Path, content: Any) -> dict[str, Any]:
    try:
        found = msgspec.convert({"pool": content}, _Pools).pool
    except msgspec.ValidationError as error:
        raise ConfigError(sentence(f"{path}: {explain(error, _Pools, {})}")) from None
    return {name: _pool(path, name, table) for name, table in found.items()}


def _pool(path: Path, name: str, table: PoolTable) -> dict[str, Any]:
    """What the table sets, as a kind of pool takes it."""
    try:
        found = given(table)
    except InputError as error:
        raise ConfigError(f"{path}: pool.{name}.{error}.") from None
    for key in ("setup", "hosts"):
        if key in found:
            found[key] = _beside(path, found[key])
    more = {"backend": table.backend, "budget_usd": table.budget_usd or table.budget}
    return found | {key: value for key, value in more.items() if value is not None}


def _beside(path: Path, folder: str) -> str:
    """A path that the file names, which begins at the file's own folder."""
    return str(path.parent / Path(folder).expanduser())
