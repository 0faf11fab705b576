"""The agent `oracle`: solves some tasks with known solutions, by mouse and keyboard alone.

It proves that a benchmark, its environment and the way to a verdict work: on a task that it has a solution for,
anything but a full score is a bug in evalfleet. It reads the elements of the page, as a person with the inspector
might, or the windows of a desktop; it acts as every agent does.
"""

from __future__ import annotations

from collections.abc import Callable

from evalfleet.agents.base import Decision, Observation, TaskPrompt, Wait
from evalfleet.agents.solutions import (
    desk_files,
    desk_mousepad,
    desk_numbers,
    miniwob_clicks,
    miniwob_forms,
    miniwob_widgets,
)
from evalfleet.agents.solutions.page import PAUSE_S, NotFound, OutOfReach, Page, Solver
from evalfleet.agents.solutions.screen import Player, Script
from evalfleet.errors import InputError

SOLVERS: dict[str, dict[str, Solver]] = {
    "miniwob": {**miniwob_clicks.SOLVERS, **miniwob_forms.SOLVERS, **miniwob_widgets.SOLVERS},
}
SCRIPTS: dict[str, dict[str, Script]] = {
    "desk": {**desk_mousepad.SCRIPTS, **desk_files.SCRIPTS, **desk_numbers.SCRIPTS},
}


def solvable(benchmark: str) -> frozenset[str]:
    """Return the tasks of a benchmark that the oracle has a solution for."""
    return frozenset((*SOLVERS.get(benchmark, {}), *SCRIPTS.get(benchmark, {})))


class Oracle:
    """Implements `Agent`. Raises InputError for a task without a solution."""

    title = "solves some tasks with known solutions, to prove that a benchmark and its environment work"
    deterministic = True

    def __init__(self, prompt: TaskPrompt) -> None:
        solver = SOLVERS.get(prompt.benchmark, {}).get(prompt.task)
        script = SCRIPTS.get(prompt.benchmark, {}).get(prompt.task)
        self._act: Callable[[Observation], Decision]
        if solver is not None:
            self._act = _on_page(solver)
        elif script is not None:
            self._act = Player(script).act
        else:
            raise InputError(f"the oracle has no solution for {prompt.benchmark} {prompt.task}")

    def act(self, observation: Observation) -> Decision:
        return self._act(observation)


def _on_page(solve: Solver) -> Callable[[Observation], Decision]:
    def act(observation: Observation) -> Decision:
        page = Page(observation)
        try:
            return Decision(actions=tuple(solve(page)))
        except OutOfReach as problem:
            return Decision(actions=(page.towards(problem.element),), note=str(problem))
        except NotFound as problem:
            return Decision(actions=(Wait(seconds=PAUSE_S),), note=str(problem))

    return act
