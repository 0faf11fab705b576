"""The interface of agents, and the words that they and environments exchange.

An agent is a class that is made anew for every attempt, with a `Brief`; then `act` is called, an observation at a
time, until the episode ends or the agent says that it is done. ::

    class Stubborn:
        def __init__(self, brief: Brief) -> None: ...

        def act(self, observation: Observation) -> Decision:
            return Decision(actions=(Click(x=80, y=120),))

`evalfleet run miniwob --agent my_module:Stubborn` uses it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

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
    "Move",
    "Observation",
    "Point",
    "Press",
    "Scroll",
    "Wait",
    "Write",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Where something lies, in pixels of the screenshot. May lie outside it."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the agent sees before it acts."""

    step: int  # from 1
    goal: str
    screenshot: bytes  # PNG
    width: int
    height: int
    elements: tuple[Element, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the agent does about an observation. With `done` the episode ends after the actions."""

    actions: tuple[Action, ...] = ()
    done: bool = False
    note: str = ""  # for a person: shown beside the step
    cost_usd: float = 0.0  # what making it cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What an agent is told when it is made."""

    benchmark: str
    task: str
    goal: str
    seed: int


class Agent(Protocol):
    """Acts in one episode. Made with a `Brief`; used by one thread; what it raises fails the attempt."""

    def act(self, observation: Observation) -> Decision: ...


class AgentClass(Protocol):
    """How an agent is made: its class, or anything that takes a brief and returns an agent."""

    def __call__(self, brief: Brief) -> Agent: ...
