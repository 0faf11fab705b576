"""What a home and this machine have: agents, benchmarks, tokens, versions, and what doctor finds."""

from __future__ import annotations

from enum import StrEnum

from evalfleet.answers.base import Answer
from evalfleet.model import Role


class Need(Answer, frozen=True, kw_only=True):
    """Something that an agent or a benchmark needs on this machine."""

    what: str
    present: bool
    found: str | None = None  # where, or why not
    install: str | None = None  # the command that brings it


class AgentRow(Answer, frozen=True, kw_only=True):
    name: str
    title: str
    ready: bool
    broken: str | None = None  # why its package cannot be loaded
    deterministic: bool = False
    options: tuple[str, ...] = ()
    secrets: tuple[Need, ...] = ()
    modules: tuple[Need, ...] = ()


class AgentList(Answer, frozen=True, kw_only=True):
    agents: list[AgentRow]


class BenchmarkTask(Answer, frozen=True, kw_only=True):
    name: str
    domain: str
    oracle: bool  # whether the oracle can solve it


class BenchmarkFacts(Answer, frozen=True, kw_only=True):
    """As `evalfleet benchmarks NAME --json` prints it."""

    name: str
    title: str
    ready: bool
    options: dict[str, str]  # of its own, for `--option`, and what each means
    requirements: list[Need]
    tasks: list[BenchmarkTask]


class TokenRow(Answer, frozen=True, kw_only=True):
    id: str
    name: str
    role: Role  # the most that it allows
    created_at: float
    expires_at: float | None
    user_name: str | None = None


class StoreCopy(Answer, frozen=True, kw_only=True):
    """As `evalfleet store copy --json` prints it."""

    source: str
    target: str
    rows: dict[str, int]  # by table
    kept: str | None  # the file that the home used before


class JoinedHome(Answer, frozen=True, kw_only=True):
    """As `evalfleet store join --json` prints it."""

    folder: str
    home: str  # the first folder of the home that was joined


class StartedController(Answer, frozen=True, kw_only=True):
    """As `evalfleet controller --json` prints it when it takes runs."""

    controller: str  # its id


class ControllerRow(Answer, frozen=True, kw_only=True):
    """A process that takes queued runs."""

    id: str
    host: str
    folder: str
    pid: int
    since: float
    most: int  # runs at a time
    runs: list[str]  # that it looks after


class OtherDriver(Answer, frozen=True, kw_only=True):
    """A run that a process drives which takes no others, such as `evalfleet run`."""

    run: str
    driver: str


class WaitingRun(Answer, frozen=True, kw_only=True):
    """A run that no controller looks after."""

    run: str
    name: str
    why: str


class ControllerList(Answer, frozen=True, kw_only=True):
    """As `evalfleet controllers --json` prints it."""

    controllers: list[ControllerRow]
    others: list[OtherDriver]
    waiting: list[WaitingRun]
    now: float  # by the store's clock


class NewToken(TokenRow, frozen=True, kw_only=True):
    token: str  # its only copy


class TokenList(Answer, frozen=True, kw_only=True):
    tokens: list[TokenRow]


class RevokedToken(Answer, frozen=True, kw_only=True):
    revoked: str


class FilesCopy(Answer, frozen=True, kw_only=True):
    """As `evalfleet files copy --json` prints it."""

    source: str
    target: str
    attempts: int  # that the source had, each compared by the SHA-256 of its files
    copied: int  # that the target did not have
    bytes: int  # of those
    removed: int  # from the source


class Versions(Answer, frozen=True, kw_only=True):
    version: str
    python: str
    sqlite: str
    platform: str
    checkout: str | None  # the commit, where it runs from a source tree


class DemoAnswer(Answer, frozen=True, kw_only=True):
    """As `evalfleet demo --json` prints it."""

    benchmark: str | None  # None: shell tasks, because something is missing here
    runs: list[str]
    reports: list[str]


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works, and may stop to
    PROBLEM = "problem"  # it does not work, or costs something for nothing


class Check(Answer, frozen=True, kw_only=True):
    """The result of one check of `evalfleet doctor`, and how to fix a problem."""

    name: str
    level: Level = Level.OK
    message: str
    remedy: str | None = None  # one line; None where nothing need be done


class Health(Answer, frozen=True, kw_only=True):
    """As `evalfleet doctor --json` prints it."""

    home: str
    healthy: bool
    cleaned: list[str]
    checks: list[Check]


class ServerAddress(Answer, frozen=True, kw_only=True):
    url: str
    address: str  # with the token


class EmulatorSettings(Answer, frozen=True, kw_only=True):
    variables: dict[str, str]  # of the environment: they point evalfleet at the emulator
