"""Settings of this machine, and the only place that reads the process's environment.

From strongest to weakest: an option on the command line; a variable of the environment; ``evalfleet.toml`` in the
current folder; ``config.toml`` in the home folder; the default. ::

    home = "/data/evalfleet"      # not in config.toml, which lies there; EVALFLEET_HOME
    colour = "auto"               # "auto", "always" or "never"; NO_COLOR, EVALFLEET_COLOUR
    log_level = "warning"         # "debug", "info", "warning" or "error"; EVALFLEET_LOG_LEVEL
    project = "vision"            # of new runs that name none; EVALFLEET_PROJECT

    [local]
    price_usd_per_hour = 0        # of one worker of this machine; EVALFLEET_LOCAL_PRICE_USD_PER_HOUR
    memory_mb = 16000             # what tasks may request in all, default: the machine's; EVALFLEET_LOCAL_MEMORY_MB
    slots = 4                     # tasks at a time over all runs, homes and users, default: no limit; EVALFLEET_LOCAL_SLOTS
    python = "/usr/bin/python3"   # runs the runner, default: evalfleet's own; EVALFLEET_RUNNER_PYTHON
    runner_idle = "10m"           # the runner ends after this time without work; EVALFLEET_RUNNER_IDLE

    [store]
    url = "postgresql://me@db/runs"  # default: SQLite in the home; EVALFLEET_STORE_URL

    [secrets]                     # where the values of secrets come from, in this order
    environment = true            # the variable of that name
    file = "/run/secrets/{name}"  # a file for each
    command = ["pass", "show", "{name}"]  # a program that prints the value

    [files]
    url = "az://runs/evalfleet"   # files of ended attempts, or s3://…, gs://…, a folder; default: in the home; EVALFLEET_FILES_URL
    cache = "/scratch/evalfleet"  # default: in the home; EVALFLEET_FILES_CACHE
    cache_mb = 1024               # size of that cache; EVALFLEET_FILES_CACHE_MB

    [browser]
    chromium = "/opt/chromium"    # default: chromium, chromium-browser or google-chrome on PATH; EVALFLEET_CHROMIUM

    [azure]
    profile = "azure"             # "azure", or "emulator": an Azure on this machine; EVALFLEET_AZURE_PROFILE
    subscription = "0000-…"       # who pays; EVALFLEET_AZURE_SUBSCRIPTION
    resource_group = "evalfleet"  # holds all that we make; EVALFLEET_AZURE_RESOURCE_GROUP
    workspace = "evalfleet"       # of Azure ML, in that group; EVALFLEET_AZURE_WORKSPACE
    cloud = "public"              # "public", "usgov" or "china"; EVALFLEET_AZURE_CLOUD
    ssh_from = "203.0.113.7/32"   # the only addresses that may reach our machines; EVALFLEET_AZURE_SSH_FROM
    public_ip = true              # false: machines have private addresses only; EVALFLEET_AZURE_PUBLIC_IP
    subnets = { eastus = "/subscriptions/…" }  # region to the id of a subnet that is there already
    jump = "me@203.0.113.9"       # a jump host on the way to the machines; EVALFLEET_AZURE_JUMP
    # or a program that carries SSH to them: proxy_command = "… {resource_id} {port}"; EVALFLEET_AZURE_PROXY_COMMAND
    identity = "/subscriptions/…" # a managed identity that machines get; EVALFLEET_AZURE_IDENTITY
    batch_account = "mybatch"     # Batch account in the resource group; EVALFLEET_AZURE_BATCH_ACCOUNT
    storage = "mystorage"         # account that carries messages of machines we cannot call; EVALFLEET_AZURE_STORAGE
    tags = { team = "agents" }    # that all resources get
    zone = "1"                    # availability zone; EVALFLEET_AZURE_ZONE
    accelerated_networking = true # default: Azure's own choice
    ssh_port = 22                 # EVALFLEET_AZURE_SSH_PORT
    emulator = "http://127.0.0.1:8700"  # where the emulator listens; EVALFLEET_AZURE_EMULATOR
    speed = 1                     # cloud seconds per second, of an emulator; EVALFLEET_AZURE_SPEED

    [slurm]
    folder = "/shared/me/boxes"   # that this machine and the nodes share, default: ~/.evalfleet/slurm; EVALFLEET_SLURM_FOLDER
    poll = "2s"                   # between two looks at the jobs; EVALFLEET_SLURM_POLL

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

    [otel]
    endpoint = "http://127.0.0.1:4318"  # an OpenTelemetry collector; OTEL_EXPORTER_OTLP_ENDPOINT

    [retention]                   # what goes of finished runs; nothing, where it is not set
    artifacts = "30d"             # files that tasks left, this long after their run's end
    logs = "90d"                  # output and steps
    runs = "365d"                 # the whole run, with its verdicts
    size_gb = 200                 # of all files: artifacts of the oldest runs go first, then logs
    count = 100                   # newest finished runs that keep their files

    [disk]
    keep_free_gb = 1              # no task starts below this, default: 1, or 5 % of a smaller disk; EVALFLEET_DISK_KEEP_FREE_GB

    [share]                       # how users and projects compare; "*": each one that is not named
    users = { alice = 3 }         # default: 1 each
    projects = { nightly = 0.5 }

    [quota.users.bob]             # the most that a user or a project has; default: no limits
    running = 8                   # attempts at a time
    gpus = 2
    usd_per_day = 20.0

    [judge]
    builtin = true                # try the signatures of clients, Docker, disks and GPUs after these patterns

    [[judge.pattern]]             # those of evalfleet.toml come first, then those of config.toml
    regex = "CUDA error: device-side assert"
    kind = "task_error"

``EVALFLEET_DEBUG=1`` shows tracebacks. Benchmarks and agents declare tables of their own; see `evalfleet.config.tables`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from msgspec import Struct, field

from evalfleet import plugins
from evalfleet.config.core_tables import (
    FILE_PLACES as FILE_PLACES,
)
from evalfleet.config.core_tables import (
    TABLES,
    VARIABLES,
    AzureTable,
    BreakerSettings,
    BrowserSettings,
    DiskSettings,
    FilesSettings,
    GeneralSettings,
    JudgeSettings,
    LeaseSettings,
    LocalSettings,
    OtelSettings,
    RetentionSettings,
    SecretsSettings,
    SlurmSettings,
    StoreSettings,
)
from evalfleet.config.core_tables import (
    is_file_place as is_file_place,
)
from evalfleet.config.shares import QuotaTable, ShareTable
from evalfleet.core.alerts.settings import AlertSettings
from evalfleet.errors import ConfigError

if TYPE_CHECKING:
    from evalfleet.config.tables import Kind as Table

FILE_NAME = "evalfleet.toml"
HOME_FILE_NAME = "config.toml"
_PLAIN = re.compile(r"[\w./~+-]+")

_INHERITED = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR"),
        *("VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH", "DISPLAY", "XDG_RUNTIME_DIR"),
    }
)


class Settings(Struct, frozen=True, kw_only=True):
    """How evalfleet works on this machine: one table per subject, as in the file. Holds no secret."""

    home: Path
    home_option: str = ""  # what a command needs to find this home again: `--home DIR`, if that was given
    colour: str = "auto"
    log_level: str = "warning"
    project: str = ""
    local: LocalSettings = LocalSettings()
    browser: BrowserSettings = BrowserSettings()
    azure: AzureTable = AzureTable()
    slurm: SlurmSettings = SlurmSettings()
    lease: LeaseSettings = LeaseSettings()
    breaker: BreakerSettings = BreakerSettings()
    alerts: AlertSettings = field(default_factory=AlertSettings)
    judge: JudgeSettings = JudgeSettings()
    store: StoreSettings = StoreSettings()
    secrets: SecretsSettings = SecretsSettings()
    files: FilesSettings = FilesSettings()
    otel: OtelSettings = OtelSettings()
    retention: RetentionSettings = RetentionSettings()
    disk: DiskSettings = DiskSettings()
    share: ShareTable = ShareTable()
    quota: QuotaTable = QuotaTable()
    pools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])  # for `pool create`
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])  # of plug-ins

    def table(self, name: str, kind: type[Table]) -> Table:
        """Return the table that a plug-in declares, with what is set in place of the defaults. Raises ConfigError."""
        from evalfleet.config import tables

        return tables.filled(name, kind, self.tables.get(name, {}))


store_urls: dict[Path, str] = {}  # by home, what `[store] url` said when this process loaded its settings

files_of: dict[Path, FilesSettings] = {}  # by home, the same for `[files]`

Tables: TypeAlias = dict[str, dict[str, Any]]  # by name of the table, the fields that are set; "": outside of any


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
    chosen = _home(home, environ, here.get("", {}).pop("home", None), Path(folder or "."))
    there = _from_file(chosen / HOME_FILE_NAME)
    if "home" in there.get("", {}):
        raise ConfigError(f"{chosen / HOME_FILE_NAME}: home: cannot be set in the home's own file; remove the line.")
    found = _merged(there, here, _from_environment(environ))
    again = "" if home is None else f"--home {_quoted(str(chosen))}"
    general, pools = found.pop("", {}), found.pop("pool", {})
    ours: dict[str, Any] = {name: TABLES[name](**found.pop(name)) for name in found.keys() & TABLES.keys()}
    settings = Settings(home=chosen, home_option=again, pools=pools, tables=found, **general, **ours)
    if settings.store.url is not None:
        store_urls[chosen] = settings.store.url
    files_of[chosen] = settings.files
    return settings


def secret_values(names: Iterable[str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the secrets' values from the environment alone. They go to the task only: keep them out of every record, log and message.

    Raises:
        MissingSecret: names every variable that is not set.
    """
    from evalfleet.config.secrets import Secrets

    return Secrets(environ=os.environ if environ is None else environ).values(names)


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


def environment_with(programs: Path) -> dict[str, str]:
    """Return the environment of a child process that finds the programs of this folder first."""
    return {**os.environ, "PATH": os.pathsep.join(filter(None, (str(programs), os.environ.get("PATH"))))}


def for_workers(settings: Settings, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return, as plain JSON, the settings that a benchmark needs on the hosts of a pool. Holds no secret."""
    return {"chromium": settings.browser.chromium, **tables}


def from_controller(row: Mapping[str, Any]) -> Settings:
    """Return the settings that `for_workers` wrote on another machine; of this one nothing is read."""
    tables = {name: value for name, value in row.items() if name != "chromium"}
    return Settings(home=Path(), browser=BrowserSettings(chromium=row["chromium"]), tables=tables)


def user_folder() -> Path:
    """Where this user's own files lie, whatever the home: not those of a machine or a team."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "evalfleet"


def login_name() -> str:
    """Who uses this machine: the owner of runs that are submitted here."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "nobody"


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


def _from_file(path: Path) -> Tables:
    # Looked for before the parser is loaded: most people have no file, and loading it takes longer than the rest.
    try:
        if not path.exists():
            return {}
    except PermissionError:
        raise ConfigError(
            f"{path}: cannot be looked at: Permission denied; use another home with --home DIR."
        ) from None
    from evalfleet.config import file

    return file.read(path)


def _from_environment(environ: Mapping[str, str]) -> Tables:
    found: Tables = {"": {"colour": "never"}} if environ.get("NO_COLOR") else {}
    for variable, (name, key) in plugins.VARIABLES.items():
        if environ.get(variable):
            found.setdefault(name, {})[key] = environ[variable]
    for variable, (name, key) in VARIABLES.items():
        if text := environ.get(variable):
            from evalfleet.config import tables

            kind = TABLES.get(name, GeneralSettings)
            found.setdefault(name, {}).update(tables.read_variable(variable, name, kind, key, text))
    return found


def _merged(*sources: Tables) -> Tables:
    """Put together what several sources set, the weakest first."""
    found: Tables = {}
    for source in sources:
        for name, table in source.items():
            if name in found:
                from evalfleet.config import tables

                found[name] = tables.merged(found[name], table)
            else:
                found[name] = table
    return found
