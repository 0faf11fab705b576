"""What every agent must do. An agent's tests subclass `AgentContract` and give the fixture `agent`, its class::

    class TestMine(AgentContract):
        @pytest.fixture
        def agent(self) -> AgentClass:
            return Mine

An agent that acts only in some benchmarks or tasks, or that needs options, gives `prompt` as well; one that looks for
something special on the page gives `seen`.
"""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from evalfleet.actions import Action, from_json, to_json
from evalfleet.agents.base import AgentClass, Decision, Observation, TaskPrompt
from evalfleet.agents.registry import declared
from evalfleet.testing.pages import looking

_STEPS = 3


class AgentContract:
    """The promises of `agents.base`, one test each."""

    @pytest.fixture
    def prompt(self) -> TaskPrompt:
        return TaskPrompt(benchmark="contract", task="click-ok", goal='Click "Ok".', seed=7)

    @pytest.fixture
    def seen(self, prompt: TaskPrompt) -> Observation:
        return looking(prompt.goal, "Cancel", "Ok")

    def test_it_is_made_from_a_prompt_and_decides(
        self, agent: AgentClass, prompt: TaskPrompt, seen: Observation
    ) -> None:
        assert isinstance(agent(prompt).act(seen), Decision)

    def test_its_decisions_can_be_written_down(self, agent: AgentClass, prompt: TaskPrompt, seen: Observation) -> None:
        for decision in _decisions(agent, prompt, seen):
            for action in decision.actions:
                assert isinstance(action, Action)
                assert from_json(json.loads(json.dumps(to_json(action)))) == action
            json.dumps([decision.note, decision.done], allow_nan=False)

    def test_its_figures_are_no_nonsense(self, agent: AgentClass, prompt: TaskPrompt, seen: Observation) -> None:
        for decision in _decisions(agent, prompt, seen):
            assert 0 <= decision.cost_usd < float("inf")
            assert 0 <= decision.waited_s < float("inf")
            assert isinstance(decision.tokens, int)
            assert decision.tokens >= 0

    def test_it_survives_a_page_with_nothing_on_it(self, agent: AgentClass, prompt: TaskPrompt) -> None:
        empty = looking(prompt.goal)
        assert isinstance(agent(prompt).act(empty), Decision)
        assert isinstance(agent(prompt).act(replace(empty, screenshot=b"")), Decision)

    def test_an_agent_knows_nothing_of_the_one_before(
        self, agent: AgentClass, prompt: TaskPrompt, seen: Observation
    ) -> None:
        if not declared(agent).deterministic:
            pytest.skip("it does not say that it is deterministic")
        assert _decisions(agent, prompt, seen) == _decisions(agent, prompt, seen)

    def test_what_it_declares_can_be_used(self, agent: AgentClass) -> None:
        said = declared(agent)
        assert said.title, "a title, or a docstring, tells a person what it is"
        assert all(name.isidentifier() for name in (*said.accepts, *said.secrets))
        assert all(said.modules.values()), "every module comes with the command that installs it"


def _decisions(agent: AgentClass, prompt: TaskPrompt, seen: Observation) -> list[Decision]:
    """Let a new agent see the same page a few times."""
    acting = agent(prompt)
    found: list[Decision] = []
    for step in range(1, _STEPS + 1):
        found.append(acting.act(looking(seen.goal, *(e.text for e in seen.elements), step=step) if step > 1 else seen))
    return found
