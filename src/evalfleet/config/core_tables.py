"""The tables of the configuration file that evalfleet itself has, each once: as they are written, decoded and used."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct, field

from evalfleet.config.shares import QuotaTable, ShareTable
from evalfleet.core.alerts.settings import AlertSettings
from evalfleet.core.retention import Rules
from evalfleet.model import Kind
from evalfleet.model.settings_table import Check, FilePath, Seconds, SettingsTable, between, is_path

COLOURS = ("auto", "always", "never")
LOG_LEVELS = ("debug", "info", "warning", "error")
AZURE_PROFILES = ("azure", "emulator")
AZURE_CLOUDS = ("public", "usgov", "china")
OTEL_SIGNALS = ("traces", "metrics", "logs")
MOST_SLOTS = 1024  # of one host

_PATH: Check = (is_path, "must be a path")
_COUNT: Check = (between(1, 2**31 - 1), "must be 1 or more")
_POSITIVE: Check = (lambda value: 0 <= value < math.inf, "must be 0 or more")
_SECOND: Check = (lambda value: value >= 1, "must be at least 1s")


def _is_store(url: str) -> bool:
    return re.match(r"postgres(ql)?://(?![^/@]*:[^/@]*@)(?!.*[?&]password=)", url) is not None


FILE_PLACES = (
    "must be /FOLDER, az://CONTAINER/PREFIX, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX, without credentials: "
    "those are taken from the environment"
)
_FILE_SCHEMES = ("file", "az", "azure", "abfs", "abfss", "adl", "s3", "s3a", "gs", "https")


def is_file_place(url: str) -> bool:
    """A folder, or an address of storage that holds no credential."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url.startswith("/") and is_path(url)
    host = rest.partition("/")[0]
    user = host.rpartition("@")[0]
    secret = ":" in user or (bool(user) and not scheme.startswith("abfs")) or "?" in rest or "#" in rest
    return scheme in _FILE_SCHEMES and bool(rest) and not secret


class GeneralSettings(SettingsTable, frozen=True, kw_only=True):
    """The keys outside of any table."""

    CHECKS: ClassVar[Mapping[str, Check]] = {
        "home": _PATH,
        "colour": (COLOURS.__contains__, f"must be one of {', '.join(COLOURS)}"),
        "log_level": (LOG_LEVELS.__contains__, f"must be one of {', '.join(LOG_LEVELS)}"),
    }

    home: str | None = None  # not in the home's own file
    colour: str = "auto"
    log_level: str = "warning"
    project: str = ""  # of new runs that name none


class LocalSettings(SettingsTable, frozen=True, kw_only=True):
    """`[local]`: this machine as a host."""

    CHECKS: ClassVar[Mapping[str, Check]] = {
        "price_usd_per_hour": _POSITIVE,
        "memory_mb": _COUNT,
        "slots": (between(1, MOST_SLOTS), f"must be 1 to {MOST_SLOTS}"),
        "python": _PATH,
    }

    price_usd_per_hour: float = 0.0  # of one worker
    memory_mb: int | None = None  # None: what the machine has
    slots: int | None = None  # None: as many as runs ask for
    python: str = sys.executable  # runs the runner
    runner_idle_s: Seconds = field(default=600.0, name="runner_idle")  # the runner ends after this time without work


class StoreSettings(SettingsTable, frozen=True, kw_only=True):
    """`[store]`: where runs are remembered."""

    CHECKS: ClassVar[Mapping[str, Check]] = {
        "url": (
            _is_store,
            "must be postgresql://USER@HOST/DATABASE, without a password: that goes into PGPASSWORD or ~/.pgpass",
        )
    }

    url: str | None = None  # None: in the home folder, in SQLite


class SecretsSettings(SettingsTable, frozen=True, kw_only=True):
    """`[secrets]`: where the values of the secrets come from that tasks name. The first source that has one counts."""

    CHECKS: ClassVar[Mapping[str, Check]] = {
        "file": (lambda value: "{name}" in value, "must contain {name}: each secret is a file of its own"),
        "command": (
            lambda value: not value or any("{name}" in word for word in value[1:]),
            "must be a program and its arguments, one of which contains {name}",
        ),
    }

    environment: bool = True  # the variable of that name
    file: FilePath | None = None  # a file for each: its path, with {name}
    command: tuple[str, ...] = ()  # a program that prints the value of {name}
    keep_s: Seconds = field(default=60.0, name="keep")  # how long an answer of the last two holds


class FilesSettings(SettingsTable, frozen=True, kw_only=True):
    """`[files]`: where the files of ended attempts are kept."""

    CHECKS: ClassVar[Mapping[str, Check]] = {
        "url": (
            is_file_place,
            FILE_PLACES,
        ),
        "cache": _PATH,
        "cache_mb": _COUNT,
    }

    url: str | None = None  # None: in the home folder
    cache: FilePath | None = None  # a folder; None: in the home
    cache_mb: int = 1024  # of files from elsewhere that are kept on this machine


class BrowserSettings(SettingsTable, frozen=True, kw_only=True):
    """`[browser]`"""

    CHECKS: ClassVar[Mapping[str, Check]] = {"chromium": _PATH}

    chromium: str | None = None  # None: the first on PATH


class AzureTable(SettingsTable, frozen=True, kw_only=True):
    """`[azure]`, as written; `evalfleet.azure.settings` makes of it what the clients need."""

    CHECKS: ClassVar[Mapping[str, Check]] = {
        "profile": (AZURE_PROFILES.__contains__, f"must be one of {', '.join(AZURE_PROFILES)}"),
        "ssh_port": (between(1, 65535), "must be a port, 1 to 65535"),
        "speed": _POSITIVE,
        "cloud": (AZURE_CLOUDS.__contains__, f"must be one of {', '.join(AZURE_CLOUDS)}"),
    }

    profile: str = "azure"  # or "emulator": an Azure on this machine
    subscription: str | None = None
    resource_group: str = "evalfleet"
    workspace: str | None = None  # of Azure ML
    cloud: str = "public"  # or one of those that Microsoft runs apart from it
    ssh_from: str | None = None  # the only addresses that may reach our machines
    public_ip: bool = True  # False: machines have private addresses only
    subnets: dict[str, str] = field(default_factory=dict[str, str])  # region -> id of a subnet that is there already
    jump: str | None = None  # user@address[:port] of a jump host
    proxy_command: str | None = None  # a program that carries SSH; {host}, {port}, {resource_id} stand for the machine
    identity: str | None = None  # id of a managed identity that machines get
    storage: str | None = (
        None  # name or address of the storage account that carries messages of machines we cannot call
    )
    tags: dict[str, str] = field(default_factory=dict[str, str])  # that all resources get
    budget_emails: list[str] = field(default_factory=list[str])  # that Azure notifies of a pool's budget
    batch_account: str | None = None  # name of the Batch account, in the resource group
    zone: str | None = None
    accelerated_networking: bool | None = None
    ssh_port: int = 22
    emulator: str | None = None  # where it listens
    speed: float = 1.0  # cloud seconds per second, of an emulator


class SlurmSettings(SettingsTable, frozen=True, kw_only=True):
    """`[slurm]`"""

    CHECKS: ClassVar[Mapping[str, Check]] = {"folder": _PATH, "poll_s": (between(0.1, 600), "must be 100ms to 10m")}

    folder: str | None = None  # that this machine and the nodes share; None: ~/.evalfleet/slurm
    poll_s: Seconds = field(default=2.0, name="poll")  # between two looks at the jobs


class LeaseSettings(SettingsTable, frozen=True, kw_only=True):
    """`[lease]`"""

    CHECKS: ClassVar[Mapping[str, Check]] = {"duration_s": _SECOND, "give_up_s": _SECOND}

    duration_s: Seconds = field(default=60.0, name="duration")
    give_up_s: Seconds = field(default=120.0, name="give_up")


class BreakerSettings(SettingsTable, frozen=True, kw_only=True):
    """`[breaker]`"""

    CHECKS: ClassVar[Mapping[str, Check]] = {"slow_start": _COUNT}

    probe_base_s: Seconds = field(default=2.0, name="probe_base")  # pause before the first probe
    slow_start: int = 3  # attempts in flight until the first success


class OtelSettings(SettingsTable, frozen=True, kw_only=True):
    """`[otel]`: traces, metrics and logs of runs to an OpenTelemetry collector. `OTEL_*` variables count more."""

    CHECKS: ClassVar[Mapping[str, Check]] = {
        "endpoint": (lambda value: value.startswith(("http://", "https://")), "must begin with http:// or https://"),
        "signals": (
            lambda value: set(value) <= set(OTEL_SIGNALS),
            f"must be some of {', '.join(OTEL_SIGNALS)}",
        ),
        "interval_s": _SECOND,
    }

    endpoint: str | None = None  # where OTLP over HTTP is taken, without /v1/traces; None: nothing is sent
    service_name: str = "evalfleet"
    signals: tuple[str, ...] = OTEL_SIGNALS
    interval_s: Seconds = field(default=15.0, name="interval")  # between two reports of metrics


class RetentionSettings(SettingsTable, frozen=True, kw_only=True):
    """`[retention]`: what `serve` removes of finished runs once an hour, and `prune` when it is asked. None: nothing for that reason."""

    CHECKS: ClassVar[Mapping[str, Check]] = {
        "size_gb": (lambda value: 0 < value < math.inf, "must be more than 0"),
        "count": (between(0, 2**31 - 1), "must be 0 or more"),
    }

    artifacts_s: Seconds | None = field(default=None, name="artifacts")  # age since the run's end
    logs_s: Seconds | None = field(default=None, name="logs")
    runs_s: Seconds | None = field(default=None, name="runs")  # the whole run, with its verdicts
    size_gb: float | None = None  # of the files of all runs
    count: int | None = None  # finished runs that keep their files

    @property
    def rules(self) -> Rules:
        return Rules(
            artifacts_s=self.artifacts_s,
            logs_s=self.logs_s,
            runs_s=self.runs_s,
            size=None if self.size_gb is None else int(self.size_gb * 1e9),
            count=self.count,
        )


class DiskSettings(SettingsTable, frozen=True, kw_only=True):
    """`[disk]`"""

    CHECKS: ClassVar[Mapping[str, Check]] = {"keep_free_gb": _POSITIVE}

    keep_free_gb: float | None = None  # no task starts below this; None: 1 GB, or 5 % of a smaller disk


class JudgePattern(Struct, frozen=True, forbid_unknown_fields=True):
    """`[[judge.pattern]]`: a regular expression over the evidence, and the kind of failures that match."""

    regex: str
    kind: str

    def __post_init__(self) -> None:
        from evalfleet.validation import quoted, suggestion

        if self.kind not in set(Kind):
            raise ValueError(f"kind: {quoted(self.kind)} is not a kind{suggestion(self.kind, set(Kind))}")
        if not self.regex:
            raise ValueError("regex: is empty, and would match everything")
        try:
            re.compile(self.regex)
        except re.error as error:
            raise ValueError(f"regex: {quoted(self.regex)} is not a regular expression: {error}") from None


class JudgeSettings(SettingsTable, frozen=True, kw_only=True):
    """`[judge]`"""

    builtin: bool = True  # whether built-in patterns are tried after these
    patterns: tuple[JudgePattern, ...] = field(default=(), name="pattern")  # the first match wins


TABLES: dict[str, type[SettingsTable]] = {
    "local": LocalSettings,
    "browser": BrowserSettings,
    "azure": AzureTable,
    "slurm": SlurmSettings,
    "lease": LeaseSettings,
    "breaker": BreakerSettings,
    "alerts": AlertSettings,
    "judge": JudgeSettings,
    "store": StoreSettings,
    "secrets": SecretsSettings,
    "files": FilesSettings,
    "otel": OtelSettings,
    "retention": RetentionSettings,
    "disk": DiskSettings,
    "share": ShareTable,
    "quota": QuotaTable,
}
VARIABLES: dict[str, tuple[str, str]] = {  # variable -> table and key that it sets; "": outside of any table
    "EVALFLEET_COLOUR": ("", "colour"),
    "EVALFLEET_LOG_LEVEL": ("", "log_level"),
    "EVALFLEET_PROJECT": ("", "project"),
    "EVALFLEET_STORE_URL": ("store", "url"),
    "EVALFLEET_FILES_URL": ("files", "url"),
    "EVALFLEET_FILES_CACHE": ("files", "cache"),
    "EVALFLEET_FILES_CACHE_MB": ("files", "cache_mb"),
    "EVALFLEET_LOCAL_PRICE_USD_PER_HOUR": ("local", "price_usd_per_hour"),
    "EVALFLEET_LOCAL_MEMORY_MB": ("local", "memory_mb"),
    "EVALFLEET_LOCAL_SLOTS": ("local", "slots"),
    "EVALFLEET_RUNNER_PYTHON": ("local", "python"),
    "EVALFLEET_RUNNER_IDLE": ("local", "runner_idle"),
    "EVALFLEET_DISK_KEEP_FREE_GB": ("disk", "keep_free_gb"),
    "EVALFLEET_CHROMIUM": ("browser", "chromium"),
    "EVALFLEET_AZURE_PROFILE": ("azure", "profile"),
    "EVALFLEET_AZURE_SUBSCRIPTION": ("azure", "subscription"),
    "EVALFLEET_AZURE_RESOURCE_GROUP": ("azure", "resource_group"),
    "EVALFLEET_AZURE_WORKSPACE": ("azure", "workspace"),
    "EVALFLEET_AZURE_SSH_FROM": ("azure", "ssh_from"),
    "EVALFLEET_AZURE_SSH_PORT": ("azure", "ssh_port"),
    "EVALFLEET_AZURE_CLOUD": ("azure", "cloud"),
    "EVALFLEET_AZURE_PUBLIC_IP": ("azure", "public_ip"),
    "EVALFLEET_AZURE_JUMP": ("azure", "jump"),
    "EVALFLEET_AZURE_PROXY_COMMAND": ("azure", "proxy_command"),
    "EVALFLEET_AZURE_IDENTITY": ("azure", "identity"),
    "EVALFLEET_AZURE_STORAGE": ("azure", "storage"),
    "EVALFLEET_AZURE_BATCH_ACCOUNT": ("azure", "batch_account"),
    "EVALFLEET_AZURE_ZONE": ("azure", "zone"),
    "EVALFLEET_AZURE_EMULATOR": ("azure", "emulator"),
    "EVALFLEET_AZURE_SPEED": ("azure", "speed"),
    "EVALFLEET_SLURM_FOLDER": ("slurm", "folder"),
    "EVALFLEET_SLURM_POLL": ("slurm", "poll"),
    "EVALFLEET_LEASE_DURATION": ("lease", "duration"),
    "EVALFLEET_LEASE_GIVE_UP": ("lease", "give_up"),
    "EVALFLEET_BREAKER_PROBE_BASE": ("breaker", "probe_base"),
    "EVALFLEET_BREAKER_SLOW_START": ("breaker", "slow_start"),
}
