"""What a pool and a cloud tell each other about machines. Cloud-neutral and pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from evalfleet.core.hosts.lifecycle import Power, Stage
from evalfleet.pools.cloud.problems import Problem

# Labels (tags): how a resource of ours is known without our database.
LABEL_POOL = "evalfleet-pool"
LABEL_RUN = "evalfleet-run"
LABEL_WORKER = "evalfleet-worker"
LABEL_OWNER = "evalfleet-owner"
LABEL_EXPIRES = "evalfleet-expires"
LABEL_IMAGE = "evalfleet-image"

DISK_GB = 128


class Offering(Struct, frozen=True, kw_only=True):
    """What is bought: a size in a region, at a fixed price or at that of the spot market."""

    size: str
    region: str
    spot: bool = False


class HostKey(Struct, frozen=True, kw_only=True):
    """The SSH host key of a machine, made by us, so that the first connection is verified already.

    The private half goes to the new machine and nowhere else; the first connection replaces it.
    """

    public: str  # "ssh-ed25519 AAAA…"
    private: str  # shown by no repr

    def __repr__(self) -> str:
        return f"HostKey(public={self.public!r})"


class Pilot(Struct, frozen=True, kw_only=True):
    """The program with which a machine that cannot be called reads its box."""

    command: str  # for /bin/sh
    secrets: dict[str, str]  # for its environment, and for nothing that is shown; in no repr

    def __repr__(self) -> str:
        return f"Pilot(secrets={sorted(self.secrets)})"


class MachineSpec(Struct, frozen=True, kw_only=True):
    """One wanted machine. Our ids are in its labels; its name is unique in the pool's account."""

    name: str
    worker: str  # the name and the mark of its host key: whose machine it is
    pool: str
    pool_limit: int = 1  # machines that the pool may have
    run: str = ""
    owner: str
    expires_at: float  # seconds since 1970; after it anybody may reap the machine
    size: str
    region: str
    spot: bool = False
    max_price_usd: float | None = None  # of spot; None: up to the price on demand
    image: str | None = None  # id of an image, as `Cloud.image` returns it; None: the cloud's own
    disk_gb: int = DISK_GB
    login_key: str  # public key that may log in
    host_key: HostKey
    slots: int = 1  # tasks that it runs at a time
    images: tuple[str, ...] = ()  # of containers that its tasks need
    kvm: bool = False  # whether its tasks need KVM
    pilot: Pilot | None = None  # None: it is reached over SSH
    drain_s: float = 0.0  # how long before its deadline it takes no new tasks, where it is a job

    @property
    def offering(self) -> Offering:
        return Offering(size=self.size, region=self.region, spot=self.spot)

    def labels(self) -> dict[str, str]:
        found = {
            LABEL_POOL: self.pool,
            LABEL_RUN: self.run,
            LABEL_WORKER: self.worker,
            LABEL_OWNER: self.owner,
            LABEL_EXPIRES: expires_text(self.expires_at),
        }
        return {name: value for name, value in found.items() if value}


def expires_text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def expires_of(labels: Mapping[str, str]) -> float | None:
    """The moment in the label, or None where there is none that can be read."""
    try:
        return datetime.strptime(labels[LABEL_EXPIRES], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except (KeyError, ValueError):
        return None


class MachineView(Struct, frozen=True, kw_only=True):
    """One machine as the cloud sees it."""

    name: str
    region: str
    size: str
    spot: bool
    labels: Mapping[str, str]
    stage: Stage
    power: Power | None  # None: not known (yet)
    problem: Problem | None = None  # why its creation failed, where the cloud tells
    ends_at: float | None = None  # when the job is over that it is, whether a controller lives or not


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where a machine answers SSH."""

    address: str
    port: int = 22
    jump: str | None = None  # user@address[:port] of a host on the way
    proxy: str | None = None  # a command that carries the connection by its standard input and output


class Verb(StrEnum):
    """The long operations."""

    CREATE = "create"
    START = "start"
    STOP = "stop"
    DELETE = "delete"

    @classmethod
    def _missing_(cls, value: object) -> Verb | None:
        return cls.STOP if value == "deallocate" else None  # as older versions wrote it


class Creation(Struct, frozen=True, kw_only=True):
    """What became of the request for a machine."""

    continuation: str | None  # None: it is there already, by an earlier request; nothing was changed
    deadline_problem: Problem | None = None  # why the cloud did not take the deadline: it must be asked again


class Progress(Struct, frozen=True, kw_only=True):
    """How far a long operation is."""

    done: bool
    problem: Problem | None = None  # of one that is done, and failed
    forgotten: bool = False  # the cloud knows of no such operation any more: `view` tells what came of it
    look_again_s: float = 0.0  # of one that is not done: when the cloud wants to be asked again
    waits: str | None = None  # of one that is not done: what the cloud says it waits for, for people


class Kind(StrEnum):
    """What a resource is."""

    MACHINE = "machine"
    DEADLINE = "deadline"
    PART = "part"  # of one machine: its disk, its address
    NETWORK = "network"  # shared by machines of a pool
    IMAGE = "image"


class Resource(Struct, frozen=True, kw_only=True):
    """Anything that carries our labels, whether or not it costs."""

    id: str
    name: str
    kind: Kind
    type: str  # in the cloud's own words
    region: str
    labels: Mapping[str, str]
    machine: str | None = None  # the machine that it is, or is a part of
    order: int = 0  # lower ones are deleted first, because others need them


class Price(Struct, frozen=True, kw_only=True):
    """What a machine costs in an hour of the cloud's clock."""

    usd_per_hour: float | None  # while it runs; None: not known
    kept_usd_per_hour: float  # as long as it exists: disk and address
    at_most: bool = False  # the price on demand stands for a spot price that is not known


class Quota(Struct, frozen=True, kw_only=True):
    """The counter that binds most."""

    family: str
    used: int
    limit: int
    region: str

    def to_json(self) -> dict[str, Any]:
        return {"family": self.family, "used": self.used, "limit": self.limit, "region": self.region}


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Diagnosis(Struct, frozen=True, kw_only=True):
    """What was found out about an account before anything is bought, and what to do if it is a problem."""

    name: str
    level: Level = Level.OK
    message: str
    remedy: str | None = None


class KeptImage(Struct, frozen=True, kw_only=True):
    """Something that costs storage until it is deleted: a version of an image, or the copy of a disk that one is made of."""

    name: str
    version: str
    kind: str  # "image" or "snapshot"
    state: str  # in the cloud's own words
    owner: str
    regions: tuple[str, ...]
    disk_gb: int | None
    usd_per_month: float  # at most
    is_leftover: bool  # nobody needs it: what it was made for has failed, or is done


class ImageRequest(Struct, frozen=True, kw_only=True):
    """A golden image to be made of a machine's disk."""

    name: str
    owner: str
    machine: str
    regions: tuple[str, ...]  # where machines shall be created from it, besides the machine's own
    disk_gb: int


class Image(Struct, frozen=True, kw_only=True):
    """One version of an image."""

    name: str
    version: str
    id: str
    regions: tuple[str, ...]
