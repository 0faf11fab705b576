"""The interface of agents, and the messages that agents and environments exchange.

A new object of the agent's class is made for every attempt, with a `TaskPrompt`. Then `act` is called with one
observation after another, until the episode ends or the agent says that it is done. ::

    class Stubborn:
        def __init__(self, prompt: TaskPrompt) -> None: ...

        def act(self, observation: Observation) -> Decision:
            return Decision(actions=(Click(x=80, y=120),))

`evalfleet run miniwob --agent my_module:Stubborn` uses it. An agent declares what else it needs; see `AgentClass`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct, field

from evalfleet.actions import Action, Click, Drag, Move, Press, Scroll, Wait, Write

__all__ = [
    "Action",
    "Agent",
    "AgentClass",
    "AgentOptions",
    "AgentSetup",
    "Box",
    "Click",
    "Decision",
    "Drag",
    "Element",
    "Move",
    "Observation",
    "Point",
    "Press",
    "Scroll",
    "TaskPrompt",
    "Tell",
    "Wait",
    "Write",
    "say_nothing",
]

_BEFORE = {"Brief": "TaskPrompt", "Kit": "AgentSetup", "Wish": "AgentOptions"}  # names of version 0.1


def __getattr__(name: str) -> Any:
    """Agents of version 0.1 import the former names; they can for one more version."""
    if name not in _BEFORE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{name} is now called {_BEFORE[name]}: import that", DeprecationWarning, stacklevel=2)
    return globals()[_BEFORE[name]]


class Box(Struct, frozen=True, kw_only=True):
    """Where something lies, in pixels of the screenshot. May lie outside it."""

    x: float
    y: float
    width: float
    height: float


class Point(Struct, frozen=True, kw_only=True):
    x: float
    y: float


class Element(Struct, frozen=True, kw_only=True):
    """One element of the page, as an accessibility tool or a person with the inspector would know it."""

    index: int  # its place in the observation's `elements`
    parent: int | None  # index of the element around it
    tag: str
    text: str  # of itself and everything in it, spaces collapsed; not only what is in view
    value: str | None  # of an input, a textarea or a select
    checked: bool | None
    focused: bool
    box: Box
    point: Point | None  # where a click would hit it; None if it is hidden, covered or out of view
    attributes: dict[str, str] = field(default_factory=dict[str, str])


class Observation(Struct, frozen=True, kw_only=True):
    """What the agent sees before it acts."""

    step: int  # from 1
    goal: str
    screenshot: bytes  # PNG
    width: int
    height: int
    elements: tuple[Element, ...] = ()


class Decision(Struct, frozen=True, kw_only=True):
    """What the agent does about an observation. With `done` the episode ends after the actions."""

    actions: tuple[Action, ...] = ()
    done: bool = False
    note: str = ""  # for a person: shown beside the step
    cost_usd: float = 0.0  # what making it cost
    tokens: int = 0  # of a model, sent and received
    waited_s: float = 0.0  # for a service that was busy; not counted against the agent's time


class Tell(Protocol):
    """Reports something between two decisions: progress for the runner, a note for people, or a cost for the budget."""

    def __call__(self, note: str, *, cost_usd: float = 0.0, tokens: int = 0) -> None: ...


def say_nothing(note: str, *, cost_usd: float = 0.0, tokens: int = 0) -> None:
    """A `Tell` that ignores its input."""


class TaskPrompt(Struct, frozen=True, kw_only=True):
    """What an agent knows when it is created."""

    benchmark: str
    task: str
    goal: str
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])  # from its `AgentSetup`
    tell: Tell = say_nothing  # an agent that takes long calls it at least every minute


class AgentOptions(Struct, frozen=True, kw_only=True):
    """The options that a person set for the agent; None if an option was not set."""

    model: str | None = None
    base_url: str | None = None


class AgentSetup(Struct, frozen=True, kw_only=True):
    """What the agent's attempts get. Prepared where the run is submitted."""

    options: Mapping[str, Any] = field(
        default_factory=dict[str, Any]
    )  # plain JSON without secrets; for `TaskPrompt.options`
    secrets: tuple[str, ...] = ()  # names of variables; the values are in the attempt's environment
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    patience_s: float = 0.0  # most time of an attempt that the agent may spend waiting for a service
    notes: tuple[str, ...] = ()  # for the person, before the run begins


class Agent(Protocol):
    """Acts in one episode. Made with a `TaskPrompt`; used by one thread; what it raises fails the attempt."""

    def act(self, observation: Observation) -> Decision: ...


class AgentClass(Protocol):
    """How an agent is made: its class, or anything that takes a `TaskPrompt` and returns an agent.

    It may declare more by attributes, which `agents.registry` reads:

    ==================  ==========================================================================================
    `title`             one line for a person; else the first line of its docstring
    `deterministic`     whether the same prompt and observations give the same decisions; else False
    `accepts`           names of the fields of `AgentOptions` that it understands; else none; others are refused
    `secrets`           names of variables that its attempts need; else none
    `modules`           modules of other packages that must be there, each with the command that installs it
    `agent_setup`       class method `(options, settings) -> AgentSetup`; else a setup with its `secrets`
    ==================  ==========================================================================================
    """

    def __call__(self, prompt: TaskPrompt, /) -> Agent: ...
