"""The reading of a configuration file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from evalfleet import duration, plugins
from evalfleet.config import tables
from evalfleet.config.core_tables import TABLES, GeneralSettings
from evalfleet.errors import ConfigError
from evalfleet.validation import explain, quoted, sentence, suggestion

Duration = str | float | None
Machines = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Least = Annotated[int, msgspec.Meta(ge=0, le=1000)]
Dollars = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class RentedTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What may be said of a pool whose machines are made, here as over HTTP."""

    workers: Machines | None = None
    size: str | list[str] | None = None
    regions: str | list[str] | None = None
    spot: bool | None = None
    image: str | None = None
    disk_gb: Annotated[int, msgspec.Meta(ge=30, le=4095)] | None = None
    slots: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    max_hours: Annotated[float, msgspec.Meta(ge=0.5, le=720)] | None = None
    min: Least | None = None
    max: Machines | None = None
    idle: Duration = None
    idle_action: Literal["stop", "delete"] | None = None
    name_prefix: str | None = None
    setup: str | None = None  # here a path, over HTTP the shell script itself
    benchmark: str | None = None
    deadline: dict[str, str] | None = None


class PoolTable(RentedTable):
    """The options of `pool create`, by their names."""

    backend: Literal["ssh", "azure-vm"] | None = None
    hosts: str | None = None
    budget: Dollars | None = None


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


_POOL_NAMES = {"budget": "budget_usd", "min": "least", "max": "most", "name_prefix": "prefix"}


def _pools(path: Path, content: Any) -> dict[str, Any]:
    try:
        found = msgspec.convert({"pool": content}, _Pools).pool
    except msgspec.ValidationError as error:
        raise ConfigError(sentence(f"{path}: {explain(error, _Pools, {})}")) from None
    return {name: _pool(path, name, table) for name, table in found.items()}


def _pool(path: Path, name: str, table: PoolTable) -> dict[str, Any]:
    """Return what the table sets, by the names that the command's own options have."""
    found = {_POOL_NAMES.get(key, key): getattr(table, key) for key in PoolTable.__struct_fields__}
    try:
        found["idle"] = None if table.idle is None else duration.parse(table.idle)
    except ValueError as error:
        raise ConfigError(f"{path}: pool.{name}.idle: {error}.") from None
    for key in ("setup", "hosts"):
        if found[key]:  # begins at the file's own folder
            found[key] = str(path.parent / Path(found[key]).expanduser())
    return {key: value for key, value in found.items() if value is not None}
