"""Settings of this machine, and the only place that reads the process's environment.

From strongest to weakest: an option on the command line; a variable of the environment; ``evalfleet.toml`` in the
current folder; ``config.toml`` in the home folder; the default. ::

    home = "/data/evalfleet"      # not in config.toml, which lies there; EVALFLEET_HOME
    colour = "auto"               # "auto", "always" or "never"; NO_COLOR, EVALFLEET_COLOUR
    log_level = "warning"         # "debug", "info", "warning" or "error"; EVALFLEET_LOG_LEVEL

    [local]
    price_usd_per_hour = 0        # of one worker of this machine; EVALFLEET_LOCAL_PRICE_USD_PER_HOUR
    memory_mb = 16000             # what tasks may request in all, default: the machine's; EVALFLEET_LOCAL_MEMORY_MB
    slots = 4                     # tasks at a time over all runs, homes and users, default: no limit; EVALFLEET_LOCAL_SLOTS
    python = "/usr/bin/python3"   # runs the runner, default: evalfleet's own; EVALFLEET_RUNNER_PYTHON
    runner_idle = "10m"           # the runner ends after this time without work; EVALFLEET_RUNNER_IDLE

    [browser]
    chromium = "/opt/chromium"    # default: chromium, chromium-browser or google-chrome on PATH; EVALFLEET_CHROMIUM

    [azure]
    profile = "azure"             # "azure", or "emulator": an Azure on this machine; EVALFLEET_AZURE_PROFILE
    subscription = "0000-…"       # who pays; EVALFLEET_AZURE_SUBSCRIPTION
    resource_group = "evalfleet"  # holds all that we make; EVALFLEET_AZURE_RESOURCE_GROUP
    ssh_from = "203.0.113.7/32"   # the only address that may reach our machines; EVALFLEET_AZURE_SSH_FROM
    ssh_port = 22                 # EVALFLEET_AZURE_SSH_PORT
    emulator = "http://127.0.0.1:8700"  # where the emulator listens; EVALFLEET_AZURE_EMULATOR
    speed = 1                     # cloud seconds per second, of an emulator; EVALFLEET_AZURE_SPEED

    [pool.nightly]                # what `evalfleet pool create nightly` makes; keys: the options of that command
    backend = "azure-vm"
    workers = 5

    [lease]
    duration = "60s"              # EVALFLEET_LEASE_DURATION

    [breaker]
    probe_base = "2s"             # pause before the first probe; EVALFLEET_BREAKER_PROBE_BASE
    slow_start = 3                # attempts in flight until the first success; EVALFLEET_BREAKER_SLOW_START

    [alerts]                      # all keys: `AlertSettings`
    webhook = "ALERT_WEBHOOK"     # name of the variable with the address; it may hold a secret, so it is never written here

    [judge]
    builtin = true                # try the signatures of clients, Docker, disks and GPUs after these patterns

    [[judge.pattern]]             # those of evalfleet.toml come first, then those of config.toml
    regex = "CUDA error: device-side assert"
    kind = "task_error"

``EVALFLEET_DEBUG=1`` shows tracebacks. Benchmarks and agents declare tables of their own; see `evalfleet.config.tables`.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from msgspec import Struct, field

from evalfleet import duration, plugins
from evalfleet.config.alerts import AlertSettings
from evalfleet.errors import ConfigError, MissingSecret
from evalfleet.model import Kind

if TYPE_CHECKING:
    from evalfleet.config.tables import Kind as Table

FILE_NAME = "evalfleet.toml"
HOME_FILE_NAME = "config.toml"
_PLAIN = re.compile(r"[\w./~+-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_QUIET = re.compile(r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d")
COLOURS = ("auto", "always", "never")
AZURE_PROFILES = ("azure", "emulator")
MOST_SLOTS = 1024  # of one host
LOG_LEVELS = ("debug", "info", "warning", "error")

_INHERITED = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR"),
        *("VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH", "DISPLAY", "XDG_RUNTIME_DIR"),
    }
)


class Settings(Struct, frozen=True, kw_only=True):
    """How evalfleet works on this machine. Holds no secret."""

    home: Path
    home_option: str = ""  # what a command needs to find this home again: `--home DIR`, if that was given
    colour: str = "auto"
    log_level: str = "warning"
    local_price_usd_per_hour: float = 0.0
    local_memory_mb: int | None = None  # None: what the machine has
    local_slots: int | None = None  # None: as many as runs ask for
    runner_python: str = sys.executable
    runner_idle_s: float = 600.0
    chromium: str | None = None  # None: the first on PATH
    azure_profile: str = "azure"
    azure_subscription: str | None = None
    azure_resource_group: str = "evalfleet"
    azure_ssh_from: str | None = None  # None: nobody was named
    azure_ssh_port: int = 22
    azure_emulator: str | None = None
    azure_speed: float = 1.0
    pools: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict[str, Mapping[str, Any]]
    )  # as `pool create` takes
    lease_s: float = 60.0
    give_up_s: float = 120.0
    breaker_probe_base_s: float = 2.0
    breaker_slow_start: int = 3
    alerts: AlertSettings = field(default_factory=AlertSettings)
    judge_builtin: bool = True  # whether the signatures of `core.signatures` are tried after the patterns
    judge_patterns: tuple[tuple[str, Kind], ...] = ()  # regular expression over the evidence -> kind, first match wins
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])  # of plug-ins

    def table(self, name: str, kind: type[Table]) -> Table:
        """Return the table that a plug-in declares, with what is set in place of the defaults. Raises ConfigError."""
        from evalfleet.config import tables

        return tables.filled(name, kind, self.tables.get(name, {}))


_VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "EVALFLEET_COLOUR": ("colour", str),
    "EVALFLEET_LOG_LEVEL": ("log_level", str),
    "EVALFLEET_LOCAL_PRICE_USD_PER_HOUR": ("local_price_usd_per_hour", float),
    "EVALFLEET_LOCAL_MEMORY_MB": ("local_memory_mb", int),
    "EVALFLEET_LOCAL_SLOTS": ("local_slots", int),
    "EVALFLEET_RUNNER_PYTHON": ("runner_python", str),
    "EVALFLEET_RUNNER_IDLE": ("runner_idle_s", duration.parse),
    "EVALFLEET_CHROMIUM": ("chromium", str),
    "EVALFLEET_AZURE_PROFILE": ("azure_profile", str),
    "EVALFLEET_AZURE_SUBSCRIPTION": ("azure_subscription", str),
    "EVALFLEET_AZURE_RESOURCE_GROUP": ("azure_resource_group", str),
    "EVALFLEET_AZURE_SSH_FROM": ("azure_ssh_from", str),
    "EVALFLEET_AZURE_SSH_PORT": ("azure_ssh_port", int),
    "EVALFLEET_AZURE_EMULATOR": ("azure_emulator", str),
    "EVALFLEET_AZURE_SPEED": ("azure_speed", float),
    "EVALFLEET_LEASE_DURATION": ("lease_s", duration.parse),
    "EVALFLEET_LEASE_GIVE_UP": ("give_up_s", duration.parse),
    "EVALFLEET_BREAKER_PROBE_BASE": ("breaker_probe_base_s", duration.parse),
    "EVALFLEET_BREAKER_SLOW_START": ("breaker_slow_start", int),
}


def load(
    home: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Settings:
    """Gather the settings. Writes nothing; the home folder need not exist.

    Args:
        home: the command line's `--home`.
        environ: the environment; the process's own where it is None.
        folder: where `evalfleet.toml` is looked for; the current one where it is None.

    Raises:
        ConfigError: names the file or variable, the key and the remedy.
    """
    environ = os.environ if environ is None else environ
    here = _from_file(Path(folder or ".") / FILE_NAME)
    chosen = _home(home, environ, here.pop("home", None), Path(folder or "."))
    there = _from_file(chosen / HOME_FILE_NAME)
    if "home" in there:
        raise ConfigError(f"{chosen / HOME_FILE_NAME}: home: cannot be set in the home's own file; remove the line.")
    patterns = here.pop("judge_patterns", ()) + there.pop("judge_patterns", ())
    tables = _tables(there.pop("tables", {}), here.pop("tables", {}), environ)
    alerts = AlertSettings.of(there.pop("alerts", {}), here.pop("alerts", {}))
    merged = {**there, **here, **_from_environment(environ)}
    again = "" if home is None else f"--home {_quoted(str(chosen))}"
    return Settings(home=chosen, home_option=again, alerts=alerts, judge_patterns=patterns, tables=tables, **merged)


def secret_values(names: Iterable[str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the secrets' values. They go to the task only: keep them out of every record, log and message.

    Raises:
        MissingSecret: names every variable that is not set.
    """
    environ = os.environ if environ is None else environ
    wanted = sorted(set(names))
    missing = [name for name in wanted if not environ.get(name)]  # an empty one is how CI systems pass none
    if missing:
        names, them = ("secrets", "them") if len(missing) > 1 else ("secret", "it")
        raise MissingSecret(
            f"the environment lacks the {names} {', '.join(missing)}; set {them} (export {missing[0]}=…)"
        )
    return {name: environ[name] for name in wanted}


def set_secrets(names: Iterable[str]) -> dict[str, str]:
    """Return the values of those secrets that are set, as `secret_values` does of those that must be."""
    return {name: value for name in names if (value := os.environ.get(name))}


def base_env(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the few plain variables that local attempts inherit; a secret is never among them."""
    environ = os.environ if environ is None else environ
    return {name: value for name, value in environ.items() if name in _INHERITED or name.startswith("LC_")}


def environment() -> Mapping[str, str]:
    """Return the process's environment, for those who must look a name up in it."""
    return os.environ


def for_workers(settings: Settings, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return, as plain JSON, the settings that a benchmark needs on the hosts of a pool. Holds no secret."""
    return {"chromium": settings.chromium, **tables}


def from_controller(row: Mapping[str, Any]) -> Settings:
    """Return the settings that `for_workers` wrote on another machine; of this one nothing is read."""
    tables = {name: value for name, value in row.items() if name != "chromium"}
    return Settings(home=Path(), chromium=row["chromium"], tables=tables)


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream is a terminal that can move its cursor and show colours."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def debug() -> bool:
    """Whether tracebacks are wanted."""
    return os.environ.get("EVALFLEET_DEBUG", "") not in ("", "0")


def _quoted(path: str) -> str:
    return path if _PLAIN.fullmatch(path) else "'" + path.replace("'", "'\\''") + "'"


def _home(option: str | os.PathLike[str] | None, environ: Mapping[str, str], written: str | None, folder: Path) -> Path:
    if option is not None and not os.fspath(option):
        raise ConfigError("--home: is empty; name a folder.")
    name = option or environ.get("EVALFLEET_HOME")
    try:
        if name:
            return Path(name).expanduser().absolute()
        if written:
            return (folder / Path(written).expanduser()).absolute()
        return Path("~/.evalfleet").expanduser()
    except RuntimeError as error:
        raise ConfigError(f"there is no home folder ({error}); name one with --home or EVALFLEET_HOME.") from None


def _from_file(path: Path) -> dict[str, Any]:
    # Looked for before the parser is loaded: most people have no file, and loading it takes longer than the rest.
    try:
        if not path.exists():
            return {}
    except PermissionError:
        raise ConfigError(
            f"{path}: cannot be looked at: Permission denied; use another home with --home DIR."
        ) from None
    from evalfleet.config import file

    found = file.read(path) or {}
    alerts = [(f"alerts.{key}", value) for key, value in found.get("alerts", {}).items()]
    for name, value in [*found.items(), *alerts]:
        _check(name, value, str(path))
    return found


def _tables(there: Mapping[str, Any], here: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Put the tables of plug-ins together: of the home's file, of the folder's, and of the environment."""
    found = {**there, **here}
    for name in there.keys() & here.keys():
        from evalfleet.config.tables import merged

        found[name] = merged(there[name], here[name])
    for variable, (name, key) in plugins.VARIABLES.items():
        if environ.get(variable):
            found[name] = {**found.get(name, {}), key: environ[variable]}
    return found


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if environ.get("NO_COLOR"):
        found["colour"] = "never"
    for variable, (name, convert) in _VARIABLES.items():
        text = environ.get(variable)
        if not text:
            continue
        try:
            found[name] = convert(text)
        except ValueError as error:
            said = str(error) if convert is duration.parse else f'"{text[:40]}" is not a number'
            raise ConfigError(f"{variable}: {said}.") from None
        _check(name, found[name], variable)
    return found


def _check(name: str, value: Any, where: str) -> None:
    """Refuse a value that is out of range, whoever set it."""
    key, holds, said = _RANGES.get(name, (name, None, ""))
    if holds is not None and not holds(value):
        raise ConfigError(f"{where}: {key}: {said}.")


def _is_path(value: Any) -> bool:
    return bool(value.strip()) and "\0" not in value


def _is_count(value: Any) -> bool:
    return 1 <= value < 2**31


def _are_variables(value: Any) -> bool:
    return all(_VARIABLE.fullmatch(name) for name in value)


def _is_quiet(value: Any) -> bool:
    return _QUIET.fullmatch(value) is not None


def _are_shares(value: Any) -> bool:
    return all(0 < share <= 10 for share in value)


_RANGES: dict[str, tuple[str, Callable[[Any], bool], str]] = {
    "home": ("home", _is_path, "must be a path"),
    "colour": ("colour", COLOURS.__contains__, f"must be one of {', '.join(COLOURS)}"),
    "log_level": ("log_level", LOG_LEVELS.__contains__, f"must be one of {', '.join(LOG_LEVELS)}"),
    "local_price_usd_per_hour": ("local.price_usd_per_hour", lambda v: 0 <= v < math.inf, "must be 0 or more"),
    "local_memory_mb": ("local.memory_mb", _is_count, "must be 1 or more"),
    "local_slots": ("local.slots", lambda v: 1 <= v <= MOST_SLOTS, f"must be 1 to {MOST_SLOTS}"),
    "runner_python": ("local.python", _is_path, "must be a path"),
    "chromium": ("browser.chromium", _is_path, "must be a path"),
    "azure_profile": ("azure.profile", AZURE_PROFILES.__contains__, f"must be one of {', '.join(AZURE_PROFILES)}"),
    "azure_ssh_port": ("azure.ssh_port", lambda v: 1 <= v <= 65535, "must be a port, 1 to 65535"),
    "azure_speed": ("azure.speed", lambda v: 0 <= v < math.inf, "must be 0 or more"),
    "alerts.webhook": (
        "alerts.webhook",
        lambda v: _are_variables([v]),
        "must be the name of a variable, not an address",
    ),
    "alerts.secret": (
        "alerts.secret",
        lambda v: _are_variables([v]),
        "must be the name of a variable, never its value",
    ),
    "alerts.notify": ("alerts.notify", _are_variables, "must be names of variables, not addresses"),
    "alerts.quiet": ("alerts.quiet", _is_quiet, 'must be like "22:00-07:00"'),
    "alerts.failure_rate": ("alerts.failure_rate", lambda v: 0 < v <= 1, "must be more than 0 and at most 1"),
    "alerts.retry_rate": ("alerts.retry_rate", lambda v: 0 < v <= 1, "must be more than 0 and at most 1"),
    "alerts.budget_shares": ("alerts.budget_shares", _are_shares, "must be shares such as [0.8, 1.0]"),
    "alerts.pool_budget_shares": ("alerts.pool_budget_shares", _are_shares, "must be shares such as [0.8, 1.0]"),
    "alerts.load": ("alerts.load", lambda v: 0 < v <= 1, "must be more than 0 and at most 1"),
    "alerts.slow": ("alerts.slow", lambda v: 1 <= v < math.inf, "must be 1 or more"),
    "lease_s": ("lease.duration", lambda v: v >= 1, "must be at least 1s"),
    "give_up_s": ("lease.give_up", lambda v: v >= 1, "must be at least 1s"),
    "breaker_slow_start": ("breaker.slow_start", _is_count, "must be 1 or more"),
}
