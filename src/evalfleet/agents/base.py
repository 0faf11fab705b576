"""The interface of agents, and the messages that agents and environments exchange.

An agent is a class that is made anew for every attempt, with a `Brief`; then `act` is called, an observation at a
time, until the episode ends or the agent says that it is done. ::

    class Stubborn:
        def __init__(self, brief: Brief) -> None: ...

        def act(self, observation: Observation) -> Decision:
            return Decision(actions=(Click(x=80, y=120),))

`evalfleet run miniwob --agent my_module:Stubborn` uses it. What more an agent needs, it declares; see `AgentClass`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct, field

from evalfleet.actions import Action, Click, Drag, Move, Press, Scroll, Wait, Write

__all__ = [
    "Action",
    "Agent",
    "AgentClass",
    "Box",
    "Brief",
    "Click",
    "Decision",
    "Drag",
    "Element",
    "Kit",
    "Move",
    "Observation",
    "Point",
    "Press",
    "Scroll",
    "Tell",
    "Wait",
    "Wish",
    "Write",
    "say_nothing",
]


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


class Brief(Struct, frozen=True, kw_only=True):
    """What an agent knows when it is created."""

    benchmark: str
    task: str
    goal: str
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])  # its kit's
    tell: Tell = say_nothing  # to be called at least every minute by whoever takes long


class Wish(Struct, frozen=True, kw_only=True):
    """The options that a person set for the agent; None if an option was not set."""

    model: str | None = None
    base_url: str | None = None


class Kit(Struct, frozen=True, kw_only=True):
    """What the agent's attempts get. Prepared where the run is submitted."""

    options: Mapping[str, Any] = field(
        default_factory=dict[str, Any]
    )  # plain JSON without secrets; for `Brief.options`
    secrets: tuple[str, ...] = ()  # names of variables; the values are in the attempt's environment
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    patience_s: float = 0.0  # most time of an attempt that the agent may spend waiting for a service
    notes: tuple[str, ...] = ()  # for the person, before the run begins


class Agent(Protocol):
    """Acts in one episode. Made with a `Brief`; used by one thread; what it raises fails the attempt."""

    def act(self, observation: Observation) -> Decision: ...


class AgentClass(Protocol):
    """How an agent is made: its class, or anything that takes a brief and returns an agent.

    It may declare more by attributes, which `agents.registry` reads:

    ==================  ==========================================================================================
    `title`             one line for a person; else the first line of its docstring
    `deterministic`     whether the same brief and observations give the same decisions; else False
    `wishes`            names of the fields of `Wish` that it understands; else none, and others are refused
    `secrets`           names of variables that its attempts need; else none
    `modules`           modules of other packages that must be there, each with the command that installs it
    `equip`             class method `(wish, settings) -> Kit` that puts its kit together; else a kit with `secrets`
    ==================  ==========================================================================================
    """

    def __call__(self, brief: Brief) -> Agent: ...
