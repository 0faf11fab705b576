"""What commands did on machines (checks, programs, screens, ports, images, reaping), and what machines a cloud rents out."""

from __future__ import annotations

from evalfleet.answers.base import Answer


class CheckRow(Answer, frozen=True, kw_only=True):
    """A readiness check and what it found."""

    check: str
    container: str | None  # where it is about one
    holds: bool
    seen: str
    remedy: str | None
    took_s: float
    restarted: bool


class Prepared(Answer, frozen=True, kw_only=True):
    """This machine, made ready for a benchmark."""

    benchmark: str
    ready: bool
    checks: list[CheckRow]


class PreparedHost(Answer, frozen=True, kw_only=True):
    host: str
    ready: bool
    checks: list[CheckRow]


class PreparedPool(Answer, frozen=True, kw_only=True):
    benchmark: str | None
    pool: str
    ready: bool
    hosts: list[PreparedHost]


class CommandEnd(Answer, frozen=True, kw_only=True):
    """How a command ended on a host."""

    exit: int | None  # None: it timed out, or the host was lost
    stdout: str
    stderr: str
    error: str | None


class CommandOnHost(CommandEnd, frozen=True, kw_only=True):
    host: str


class CommandOnPool(Answer, frozen=True, kw_only=True):
    command: str
    hosts: dict[str, CommandEnd]


class OpenTunnel(Answer, frozen=True, kw_only=True):
    host: str
    target: str
    address: str  # on this machine


class Screenshot(Answer, frozen=True, kw_only=True):
    host: str
    file: str
    of: str  # whose screen it is
    age_s: float


class MachineLogRow(Answer, frozen=True, kw_only=True):
    """A log that there is of a machine."""

    log: str  # boot, cloud-init, docker, container/NAME, or a word of its cloud's
    source: str  # "cloud": its cloud keeps it; "login": read over SSH; "kept": kept when the machine failed
    run: str | None = None  # of a kept one: the run that it is kept with
    at: float | None = None  # of a kept one: when that was
    file: str | None = None  # of a kept one: below the home


class MachineLogList(Answer, frozen=True, kw_only=True):
    pool: str
    host: str
    logs: list[MachineLogRow]
    unread: list[str]  # why others may be missing


class MachineLog(Answer, frozen=True, kw_only=True):
    """The end of one log of a machine."""

    pool: str
    host: str
    log: str
    kept: bool  # as it was when the machine failed
    run: str | None  # of a kept one: the run that it is kept with
    text: str
    cut: bool  # there is more before it


class BakedImage(Answer, frozen=True, kw_only=True):
    image: str
    version: str
    id: str
    source: str  # the machine that it is a copy of


class ImageFacts(Answer, frozen=True, kw_only=True):
    """A version of a golden image, or the copy of a disk that one is made of."""

    name: str
    version: str
    kind: str  # "image" or "snapshot"
    state: str
    owner: str
    regions: list[str]
    disk_gb: int | None
    usd_per_month: float  # at most
    leftover: bool  # nobody needs it


class ImageList(Answer, frozen=True, kw_only=True):
    images: list[ImageFacts]
    deleted: str | None


class ReapedResource(Answer, frozen=True, kw_only=True):
    type: str
    name: str
    region: str
    why: str


class Reaped(Answer, frozen=True, kw_only=True):
    """As `evalfleet reap --json` prints it."""

    dry_run: bool
    resources: list[ReapedResource]  # deleted, or to be deleted
    left: int  # could not be deleted
    runners: list[str]  # hosts whose idle runner was ended
    others: dict[str, int]  # resources of other homes, by the labels of these


class SizeFacts(Answer, frozen=True, kw_only=True):
    """A size of machine that a cloud rents out."""

    name: str
    vcpus: int
    memory_gb: float
    nested: bool  # KVM works inside
    temporary_disk: bool
    family: str  # sizes of one family share a quota


class SizeRow(SizeFacts, frozen=True, kw_only=True):
    usd_per_hour: float | None  # on demand; None: not known


class SizeList(Answer, frozen=True, kw_only=True):
    region: str
    sizes: list[SizeRow]


class PriceRow(Answer, frozen=True, kw_only=True):
    size: str
    region: str
    usd_per_hour: float
    spot_usd_per_hour: float | None
    date: str  # the day that it was read


class PriceList(Answer, frozen=True, kw_only=True):
    prices: list[PriceRow]


class QuotaCounter(Answer, frozen=True, kw_only=True):
    name: str
    used: int
    limit: int


class MissingQuota(Answer, frozen=True, kw_only=True):
    """The numbers in a quota error."""

    name: str
    limit: int
    usage: int
    required: int

    @property
    def missing(self) -> int:
        return max(0, self.usage + self.required - self.limit)

    @property
    def wanted(self) -> int:
        return self.usage + self.required


class RegionQuota(Answer, frozen=True, kw_only=True):
    region: str
    fits: int  # further machines
    counters: list[QuotaCounter]
    missing: list[str]  # what to ask for, where the machines that are needed do not fit


class QuotaList(Answer, frozen=True, kw_only=True):
    quotas: list[RegionQuota]
