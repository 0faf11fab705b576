"""The configuration file: its keys, and the reading of one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from evalfleet import duration, plugins
from evalfleet.config.alerts import RuleSettings
from evalfleet.errors import ConfigError
from evalfleet.model import Kind
from evalfleet.validation import explain, quoted, sentence, suggestion

Duration = str | float | None
_HINTS: dict[str, str] = dict.fromkeys(
    (
        *("local.runner_idle", "lease.duration", "lease.give_up", "breaker.probe_base"),
        *("alerts.no_progress", "alerts.stall_least", "alerts.undriven", "alerts.slow_least", "alerts.pull"),
        *("alerts.load_for", "alerts.idle", "alerts.reap"),
    ),
    'expected a duration such as "90s" or "15m"',
)


class LocalTable(msgspec.Struct, forbid_unknown_fields=True):
    price_usd_per_hour: float | None = None
    memory_mb: int | None = None
    slots: int | None = None
    python: str | None = None
    runner_idle: Duration = None


class BrowserTable(msgspec.Struct, forbid_unknown_fields=True):
    chromium: str | None = None


class AzureTable(msgspec.Struct, forbid_unknown_fields=True):
    profile: str | None = None
    subscription: str | None = None
    resource_group: str | None = None
    ssh_from: str | None = None
    ssh_port: int | None = None
    emulator: str | None = None
    speed: float | None = None


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


class LeaseTable(msgspec.Struct, forbid_unknown_fields=True):
    duration: Duration = None
    give_up: Duration = None


class BreakerTable(msgspec.Struct, forbid_unknown_fields=True):
    probe_base: Duration = None
    slow_start: int | None = None


class PatternTable(msgspec.Struct, forbid_unknown_fields=True):
    regex: str
    kind: str


class JudgeTable(msgspec.Struct, forbid_unknown_fields=True):
    builtin: bool | None = None
    pattern: list[PatternTable] = []


class RuleTable(msgspec.Struct, forbid_unknown_fields=True):
    enabled: bool | None = None
    severity: Literal["critical", "warning", "info"] | None = None
    action: Literal["notify", "pause", "retry_elsewhere", "restart_worker"] | None = None


class AlertTable(msgspec.Struct, forbid_unknown_fields=True):
    webhook: str | None = None
    secret: str | None = None
    notify: tuple[str, ...] | None = None
    off: tuple[str, ...] | None = None
    quiet: str | None = None
    no_progress: Duration = None
    failure_rate: float | None = None
    retry_rate: float | None = None
    budget_shares: tuple[float, ...] | None = None
    pool_budget_shares: tuple[float, ...] | None = None
    slow: float | None = None
    load: float | None = None
    stall_least: Duration = None
    undriven: Duration = None
    slow_least: Duration = None
    pull: Duration = None
    load_for: Duration = None
    idle: Duration = None
    reap: Duration = None
    rules: dict[str, RuleTable] | None = None


class ConfigDocument(msgspec.Struct, forbid_unknown_fields=True):
    home: str | None = None
    colour: str | None = None
    log_level: str | None = None
    local: LocalTable = msgspec.field(default_factory=LocalTable)
    browser: BrowserTable = msgspec.field(default_factory=BrowserTable)
    azure: AzureTable = msgspec.field(default_factory=AzureTable)
    pool: dict[str, PoolTable] = {}
    lease: LeaseTable = msgspec.field(default_factory=LeaseTable)
    breaker: BreakerTable = msgspec.field(default_factory=BreakerTable)
    alerts: AlertTable = msgspec.field(default_factory=AlertTable)
    judge: JudgeTable = msgspec.field(default_factory=JudgeTable)


def read(path: Path) -> dict[str, Any] | None:
    """Read a configuration file into the fields of `config.Settings` that it sets; None where there is no such file.

    Values are of the right type; `config` checks their ranges, as it does for those of the environment.

    Raises:
        ConfigError: names the file, the key and the remedy.
    """
    try:
        content = tomllib.loads(path.read_bytes().decode())
        others = {name: content.pop(name) for name in content.keys() - _CORE}
        document = msgspec.convert(content, ConfigDocument)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at offset {error.start}; save the file as UTF-8.") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}.") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, ConfigDocument, _HINTS)}.") from None
    found: dict[str, Any] = {
        "home": document.home,
        "colour": document.colour,
        "log_level": document.log_level,
        "local_price_usd_per_hour": document.local.price_usd_per_hour,
        "local_memory_mb": document.local.memory_mb,
        "local_slots": document.local.slots,
        "runner_python": document.local.python,
        "runner_idle_s": _seconds(path, "local.runner_idle", document.local.runner_idle),
        "chromium": document.browser.chromium,
        "tables": {name: _table(path, name, content) for name, content in others.items()} or None,
        **{f"azure_{name}": value for name, value in msgspec.structs.asdict(document.azure).items()},
        "pools": {name: _pool(path, name, table) for name, table in document.pool.items()} or None,
        "lease_s": _seconds(path, "lease.duration", document.lease.duration),
        "give_up_s": _seconds(path, "lease.give_up", document.lease.give_up),
        "breaker_probe_base_s": _seconds(path, "breaker.probe_base", document.breaker.probe_base),
        "breaker_slow_start": document.breaker.slow_start,
        "alerts": _alerts(path, document.alerts) or None,
        "judge_builtin": document.judge.builtin,
        "judge_patterns": tuple(_pattern(path, n, row) for n, row in enumerate(document.judge.pattern, 1)) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


_CORE = set(ConfigDocument.__struct_fields__)


def _table(path: Path, name: str, content: Any) -> dict[str, Any]:
    """Read a table that a plug-in declares. Raises ConfigError where none does."""
    from evalfleet.config import tables

    kind = tables.declared(name)
    if kind is None:
        known = {*_CORE, *plugins.names(plugins.SETTINGS)}
        raise ConfigError(sentence(f"{path}: unknown key {quoted(name)}{suggestion(name, known)}"))
    return tables.read(path, name, kind, content)


_POOL_NAMES = {"budget": "budget_usd", "min": "least", "max": "most", "name_prefix": "prefix"}


def _pool(path: Path, name: str, table: PoolTable) -> dict[str, Any]:
    """Return what the table sets, by the names that the command's own options have."""
    found = {_POOL_NAMES.get(key, key): getattr(table, key) for key in PoolTable.__struct_fields__}
    found["idle"] = _seconds(path, f"pool.{name}.idle", table.idle)
    found["setup"] = _beside(path, table.setup)
    found["hosts"] = _beside(path, table.hosts)
    return {key: value for key, value in found.items() if value is not None}


def _alerts(path: Path, table: AlertTable) -> dict[str, Any]:
    """Return what the table sets, by the names of `config.AlertSettings`."""
    found = {name: getattr(table, name) for name in AlertTable.__struct_fields__}
    for name in ("no_progress", "stall_least", "undriven", "slow_least", "pull", "load_for", "idle", "reap"):
        found[f"{name}_s"] = _seconds(path, f"alerts.{name}", found.pop(name))
    if table.rules is not None:
        found["rules"] = {name: RuleSettings(**msgspec.structs.asdict(row)) for name, row in table.rules.items()}
    return {name: value for name, value in found.items() if value is not None}


def _beside(path: Path, folder: str | None) -> str | None:
    """Return a path that the file names, which begins at the file's own folder."""
    return str(path.parent / Path(folder).expanduser()) if folder else folder


def _seconds(path: Path, key: str, value: Duration) -> float | None:
    try:
        return None if value is None else duration.parse(value)
    except ValueError as error:
        raise ConfigError(f"{path}: {key}: {error}.") from None


def _pattern(path: Path, number: int, row: PatternTable) -> tuple[str, Kind]:
    where = f"{path}: [[judge.pattern]] number {number}"
    if row.kind not in set(Kind):
        raise ConfigError(sentence(f"{where}: kind: {quoted(row.kind)} is not a kind{suggestion(row.kind, set(Kind))}"))
    try:
        if not row.regex:
            raise ConfigError(f"{where}: regex: is empty, and would match everything.")
        re.compile(row.regex)
    except re.error as error:
        raise ConfigError(f"{where}: regex: {quoted(row.regex)} is not a regular expression: {error}.") from None
    return row.regex, Kind(row.kind)
