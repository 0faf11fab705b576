"""Agents of version 0.1 are read for one more version, with warnings that name the new words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalfleet.agents import base, registry
from evalfleet.config import Settings


@pytest.mark.parametrize(
    ("before", "after"), [("Brief", base.TaskPrompt), ("Kit", base.AgentSetup), ("Wish", base.AgentOptions)]
)
def test_a_former_class_is_the_new_one(before: str, after: type):
    with pytest.warns(DeprecationWarning, match=f"{before} is now called {after.__name__}"):
        assert getattr(base, before) is after


def test_another_name_is_not_there():
    with pytest.raises(AttributeError, match="Parcel"):
        _ = base.Parcel


class Before:
    """Declares as agents of version 0.1 did."""

    wishes = ("model",)

    def __init__(self, brief: base.TaskPrompt) -> None:
        self.goal = brief.goal

    @classmethod
    def equip(cls, wish: base.AgentOptions, settings: Settings) -> base.AgentSetup:
        return base.AgentSetup(options={"model": wish.model})

    def act(self, observation: base.Observation) -> base.Decision:
        return base.Decision(done=True)


def test_former_attributes_are_read(tmp_path: Path):
    agent: Any = Before
    with pytest.warns(DeprecationWarning, match="is now called") as warned:
        setup = registry.setup_of("mine", agent, base.AgentOptions(model="m"), Settings(home=tmp_path))
    assert setup.options == {"model": "m"}
    assert sorted({str(each.message) for each in warned}) == [
        "an agent's 'equip' is now called 'agent_setup': rename it",
        "an agent's 'wishes' is now called 'accepts': rename it",
    ]
