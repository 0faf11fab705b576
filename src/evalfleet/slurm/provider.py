"""Slurm as a backend of pools: what can be said of it without asking it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalfleet import config
from evalfleet.config import Settings
from evalfleet.errors import ConfigError, InputError
from evalfleet.layout import Home
from evalfleet.model import JsonObject
from evalfleet.pools.kinds.cloud import CloudKind
from evalfleet.pools.machine.reach import SYSTEM_MB
from evalfleet.slurm import size as sizes
from evalfleet.slurm.script import DEFAULT_PARTITION

if TYPE_CHECKING:
    from evalfleet.hosts.mailbox.boxes import Boxes, BoxStorage
    from evalfleet.slurm.cloud import SlurmCloud

FOLDER = "~/.evalfleet/slurm"
HOURS = 4.0
LEAST_HOURS = 1 / 60  # Slurm's own measure
QUEUE_S = 30 * 86400.0  # a job may wait for long; `--deadline node=` says otherwise
_CLUSTER = re.compile(r"^\s*ClusterName\s*=\s*(\S+)", re.IGNORECASE | re.MULTILINE)
_PARTITION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class SlurmProvider:
    """Implements `CloudProvider`, `ReachedByMailbox`, `ListsBoxes`, `RunsJobs` and `QueuesRequests`."""

    name = "slurm"
    title = "Jobs on a Slurm cluster"
    login_user = ""
    default_size = sizes.DEFAULT
    default_regions = (DEFAULT_PARTITION,)
    keeps_stopped = False
    start_timeout_s = 120.0
    queues_requests = True
    account_help = "Go to a machine of the pool's cluster, or set SLURM_CONF and EVALFLEET_SLURM_FOLDER to its own"

    def is_configured(self, settings: Settings) -> bool:
        from evalfleet.slurm.programs import is_installed

        return is_installed()

    def account(self, settings: Settings) -> dict[str, str]:
        return {"cluster": cluster_name(), "folder": str(folder_of(settings))}

    def require_ready(self, settings: Settings) -> None:
        if not self.is_configured(settings):
            raise ConfigError(
                "slurm: sbatch, squeue, scancel and scontrol are not on PATH, or know of no cluster (SLURM_CONF); run evalfleet where "
                "you submit jobs, such as the login node"
            )
        prepared_folder(settings)

    def speed(self, settings: Settings) -> float:
        return 1.0

    def size(self, name: str) -> str:
        sizes.parts(name)
        return name

    def region(self, name: str) -> str:
        if not _PARTITION.fullmatch(name):
            raise InputError(f"partition: {name!r} cannot be the name of a partition")
        return name

    def memory_gb(self, size: str) -> float | None:
        """More by what pools leave to the system of a machine: a job shares none."""
        found = sizes.memory_mb(size)
        return None if found is None else (found + SYSTEM_MB) / 1024

    def family(self, size: str) -> str:
        return size

    @asynccontextmanager
    async def open(self, settings: Settings, home: Home) -> AsyncGenerator[SlurmCloud]:
        from evalfleet.slurm.cloud import SlurmCloud

        if not self.is_configured(settings):
            self.require_ready(settings)
        yield SlurmCloud(_ids(settings, home), settings.slurm.poll_s)

    @asynccontextmanager
    async def boxes(self, settings: Settings, home: Home, pool: str) -> AsyncGenerator[Boxes]:
        from evalfleet.hosts.mailbox.boxes import FolderBoxes, box_owner

        yield FolderBoxes(prepared_folder(settings) / box_owner(home.id or "home", pool))

    @asynccontextmanager
    async def box_storage(self, settings: Settings) -> AsyncGenerator[BoxStorage | None]:
        from evalfleet.hosts.mailbox.boxes import FolderStorage

        yield FolderStorage(folder_of(settings))


class SlurmKind(CloudKind):
    """Takes Slurm's own words besides: a partition is a region, a node a worker, and `time` the time limit of a job."""

    options = (
        *("partition", "nodes", "time", "workers", "min", "max", "slots", "idle", "name_prefix", "budget_usd"),
        *("benchmark", "deadline", "options"),
    )

    def settings(self, options: Mapping[str, Any], settings: Settings) -> JsonObject:
        values = dict(options)
        nodes, workers = values.pop("nodes", None), values.get("workers")
        if nodes is not None and workers not in (None, nodes):
            raise InputError(f"nodes {nodes} and workers {workers} mean the same; say one of them")
        values["workers"] = nodes or workers
        if partition := values.pop("partition", None):
            values["regions"] = partition
        hours = values.pop("time", HOURS * 3600) / 3600
        if hours < LEAST_HOURS:
            raise InputError("time: must be 1 minute or more, in which Slurm counts")
        values |= {"max_hours": hours, "size": (sizes.size_of(values.pop("options", {})),), "idle_action": "delete"}
        values["deadline"] = {"node": QUEUE_S, **values.get("deadline", {})}
        return super().settings(values, settings)


def folder_of(settings: Settings) -> Path:
    """The folder of all boxes, which this machine and the nodes share."""
    path = Path(settings.slurm.folder or FOLDER).expanduser()
    return path if path.is_absolute() else settings.home / path


def prepared_folder(settings: Settings) -> Path:
    """The same, made where it is missing. Other users can neither read nor change it. Raises ConfigError."""
    folder = folder_of(settings)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise ConfigError(f"slurm.folder: {folder} cannot be made: {error.strerror}") from error
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise ConfigError(
            f"slurm.folder: {folder} must belong to you alone, because messages to the nodes lie there: chmod 700 {folder}, "
            "or name another folder that the nodes share"
        )
    return folder


def cluster_name() -> str:
    """As its configuration says; empty where that is not a file of this machine."""
    from evalfleet.slurm.programs import CONFS

    for path in filter(None, (config.environment().get("SLURM_CONF"), *CONFS)):
        try:
            found = _CLUSTER.search(Path(path).read_text("utf-8", "replace"))
        except OSError:
            continue
        return found[1] if found else ""
    return ""


def _ids(settings: Settings, home: Home) -> tuple[str, ...]:
    """The ids under which the jobs of this home go."""
    if home.id is not None:
        return (home.id, *home.former)
    from evalfleet.store.open import open_reader

    reader = open_reader(settings.home)
    if reader is None:
        return ("unknown",)
    with closing(reader):
        identity = reader.home.identity()
    return (identity.id, *(one.id for one in identity.former))


KIND = SlurmKind(SlurmProvider())
