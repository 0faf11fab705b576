"""The interface of benchmarks.

A benchmark is known in two places. Where a run is submitted it says which tasks there are and what they need. On the
worker, inside the attempt's process, it opens the episode of one task; `evalfleet.benchmarks.attempt` lets an agent
act in it. What travels between the two is the task's payload.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, runtime_checkable

from msgspec import Meta, Struct

from evalfleet.agents.base import Action, Observation
from evalfleet.core.readiness import ReadinessCheck, Update
from evalfleet.environments.base import Requirement
from evalfleet.model import Tools, Verdict

if TYPE_CHECKING:
    from evalfleet.benchmarks.selection import Chosen

__all__ = [
    "Benchmark",
    "BenchmarkOptions",
    "Episode",
    "ReadinessCheck",
    "Requirement",
    "Selection",
    "TaskInfo",
    "Tools",
]


class BenchmarkOptions(Struct, frozen=True, kw_only=True):
    """The settings of a benchmark run. The names are the same on the command line, in the HTTP API and in Python."""

    agent: str = ""
    tasks: Annotated[int, Meta(ge=1)] | None = None  # at most this many, spread over those that match
    task: tuple[str, ...] = ()  # tasks by name, or single episodes by key
    domain: str | None = None  # a pattern such as "click*"
    seed: Annotated[int, Meta(ge=0, le=999_999_999)] = 0  # of the first episode of each task
    repeat: Annotated[int, Meta(ge=1, le=1000)] = 1  # episodes of each task, with consecutive seeds
    max_steps: Annotated[int, Meta(ge=1)] | None = None  # None: the benchmark's own limit
    model: str | None = None  # for an agent that asks one
    base_url: str | None = None  # of the endpoint that serves the model
    files: tuple[str, ...] = ()  # in the run's folder, which the agent needs on a pool's hosts besides its own
    options: Mapping[str, str] = {}  # the benchmark's own; see `TakesOptions`
    json_name: str | None = None  # until 0.3: option `list` of waa
    waa_root: str | None = None  # until 0.3: option `checkout` of waa


class Selection(BenchmarkOptions, frozen=True, kw_only=True):
    """Which episodes to run, which agent acts in them, and where."""

    timeout_s: float | None = None  # of an attempt; None: the benchmark's own
    remote: bool = False  # on the hosts of a pool, not on this machine


class TaskInfo(Struct, frozen=True, kw_only=True):
    """One task of a benchmark's catalogue."""

    name: str
    domain: str
    oracle: bool  # whether the oracle can solve it


class PastTask(Struct, frozen=True, kw_only=True):
    """One task that another program has finished, to be imported."""

    key: str
    domain: str
    payload: Mapping[str, Any]
    files: Path  # the folder with what it left
    score: float | None  # None: it has no verdict
    evidence: str  # why it has none
    steps: int
    lines: tuple[Mapping[str, Any], ...]  # its steps, as event lines
    worker: str
    started_at: float
    duration_s: float


class PastResults(Struct, frozen=True, kw_only=True):
    """The results of one model."""

    model: str
    tasks: list[PastTask]


class Episode(Protocol):
    """One task under way in its environment. Used by one thread; raises EnvironmentFailed if that fails.

    It may have an attribute `environment`, an `Environment` in which agents that are commands may also run programs and
    move files. Without it they have pointer and keyboard only.
    """

    @property
    def goal(self) -> str: ...

    def observe(self, step: int) -> Observation:
        """Wait until the environment is at rest, and look."""
        ...

    def perform(self, action: Action) -> None: ...

    def verdict(self) -> Verdict | None:
        """Return what the checker says, or None while the episode is not over."""
        ...

    def finish(self) -> Verdict | None:
        """Judge the state that the agent left, once, after its last action; None for an episode that is not over."""
        ...


class Benchmark(Protocol):
    """A benchmark. It reads files and inspects the machine, writes nothing, and imports nothing heavy."""

    name: str
    title: str

    def requirements(self) -> Sequence[Requirement]: ...

    def catalogue(self) -> Sequence[TaskInfo]:
        """Return all tasks in order; empty if the requirements for listing them are missing."""
        ...

    def settings(self, selection: Selection) -> Mapping[str, Any]:
        """Return the run's settings, with the keys of `[run]` in a task file."""
        ...

    def tasks(self, selection: Selection) -> Sequence[Mapping[str, Any]]:
        """Return the tasks, with the keys of `[[task]]` in a task file.

        Raises:
            InputError: nothing fits the selection, or the agent cannot do what was asked for.
        """
        ...

    def episode(self, payload: Mapping[str, Any], folder: Path) -> AbstractContextManager[Episode]:
        """Open the episode that a payload describes, in a fresh environment that keeps its files in `folder`.

        Raises InputError where the benchmark plays its tasks itself (see `OwnAgents`).
        """
        ...


@runtime_checkable
class HasTools(Protocol):
    """Capability: names what a worker's Python must have. Other benchmarks need evalfleet and their own package."""

    tools: Tools  # what it ships and installs; the rest is filled in by `equipment`


@runtime_checkable
class SharesMachine(Protocol):
    """Capability: says how many of its tasks a machine of a pool can run at a time. Of others any number is taken."""

    machine_slots: int
    machine_gb: float  # memory that such a machine needs; 0: any


@runtime_checkable
class Prepares(Protocol):
    """Capability: can prepare the machine it runs on. For other benchmarks only the requirements are checked."""

    def prepare(
        self, tell: Callable[[ReadinessCheck], None], say: Callable[[Update], None], secrets: Mapping[str, str]
    ) -> list[ReadinessCheck]:
        """Try check after check, each with a deadline, and end with the first that does not hold.

        Args:
            tell: hears of each check as it is tried.
            say: hears what goes on inside a check: a line for people, or a `Pull` while an image is pulled.
            secrets: values of the variables that `tools.secrets` names, as far as they are set. Not to be kept.
        """
        ...

    def recheck(self, restarted: Collection[str]) -> list[ReadinessCheck]:
        """Look quickly whether the machine still is ready while tasks run; what is dead there is restarted once.

        Args:
            restarted: what was restarted before, by the checks' `of`; it is not again. The caller adds the checks that
                are marked as `restarted`.
        """
        ...


@runtime_checkable
class TakesOptions(Protocol):
    """What a benchmark has besides, if its runs take options that other benchmarks do not know."""

    @property
    def own_options(self) -> Mapping[str, str]:
        """What each means, by the names that `--option NAME=VALUE` takes."""
        ...


@runtime_checkable
class ChoosesTasks(Protocol):
    """Capability: options of a run decide which tasks there are to choose from."""

    def chosen(self, selection: Selection) -> Sequence[Chosen]:
        """The episodes that a run would submit. Raises InputError."""
        ...


class Screen(Struct, frozen=True, kw_only=True):
    """A screen that a host shows while it works for a benchmark."""

    port: int  # of the host, with noVNC or RFB behind it
    single: bool  # whether a host has one only, which then belongs to the attempt that runs there
    docker: str  # the program that reaches into the containers
    containers: tuple[str, ...]  # the first that runs is asked for a picture
    python: str  # of the container
    url: str  # where a program in the container finds a picture of the screen, as PNG


@runtime_checkable
class ShowsScreen(Protocol):
    """Capability: a host that is ready for the benchmark shows a screen."""

    screen: Screen


class Guests(Struct, frozen=True, kw_only=True):
    """The machines inside a host in which tasks of a benchmark run: one in each container."""

    docker: str  # the program that reaches into the containers
    containers: tuple[str, ...]
    python: str  # of the container
    url: str  # where a program in the container asks: the guest answers there if it can work
    screen_port: int  # of the container


@runtime_checkable
class HasGuests(Protocol):
    """Capability: a host that is ready for the benchmark has guests, which `pool status --probe` asks."""

    guests: Guests


@runtime_checkable
class ReadsResults(Protocol):
    """Capability: reads results that its own tools left in a folder, for `evalfleet import`."""

    def read_results(self, folder: str) -> PastResults:
        """Raises InputError: no results that it understands were found."""
        ...


@runtime_checkable
class OwnAgents(Protocol):
    """Capability: the benchmark brings its agents, and a program of its own that lets them act."""

    agents: Sequence[str]  # some of their names

    def check_agent(self, name: str) -> None:
        """Raises InputError: the benchmark has no such agent."""
        ...


@runtime_checkable
class HasNotes(Protocol):
    """Capability: a benchmark with its own agents tells people what they should know before the run begins."""

    def notes(self, selection: Selection) -> Sequence[str]: ...


def check_of(need: Requirement) -> ReadinessCheck:
    """What a machine must have, as a check of its readiness."""
    return ReadinessCheck(
        name=need.what, holds=need.present, seen=need.found, remedy=f"install it with: {need.install}"
    )
