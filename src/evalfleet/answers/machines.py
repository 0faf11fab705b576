"""What commands did on machines: checks, programs, screens, ports, images, and what was reaped."""

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


class BakedImage(Answer, frozen=True, kw_only=True):
    image: str
    version: str
    id: str
    source: str  # the machine that it is a copy of


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
