"""Choosing episodes, finding benchmarks and agents, and playing an episode, without any browser."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

from evalfleet import config
from evalfleet.actions import to_json
from evalfleet.agents import registry as agents
from evalfleet.agents.base import Action, Box, Click, Decision, Element, Observation, Point, Press, TaskPrompt
from evalfleet.agents.oracle import Oracle, solvable
from evalfleet.agents.random import RandomAgent
from evalfleet.benchmarks import attempt, registry
from evalfleet.benchmarks.base import Selection, TaskInfo
from evalfleet.benchmarks.miniwob import benchmark as miniwob
from evalfleet.benchmarks.selection import choose
from evalfleet.config.core_tables import BrowserSettings
from evalfleet.errors import InputError
from evalfleet.model import Verdict
from evalfleet.plugins import BENCHMARKS, BUILT_IN
from evalfleet.testing.clock import FakeClock

CATALOGUE = [
    TaskInfo(name=name, domain=name.partition("-")[0], oracle=oracle)
    for name, oracle in [("click-a", True), ("click-b", False), ("drag-a", False), ("enter-a", True), ("enter-b", True)]
]


def keys(**wanted: Any) -> list[str]:
    return [chosen.key for chosen in choose("mini", CATALOGUE, Selection(**{"agent": "random", **wanted}))]


def test_all_tasks_once_with_seed_0():
    assert keys() == ["click-a_0", "click-b_0", "drag-a_0", "enter-a_0", "enter-b_0"]


def test_repeat_gives_seeds_that_follow_each_other():
    assert keys(domain="drag", seed=7, repeat=3) == ["drag-a_7", "drag-a_8", "drag-a_9"]


def test_some_tasks_are_spread_over_those_that_fit():
    assert keys(tasks=2) == ["click-a_0", "drag-a_0"]
    assert keys(tasks=3, agent="oracle") == ["click-a_0", "enter-a_0", "enter-b_0"]


def test_tasks_by_name_and_episodes_by_key():
    assert keys(task=("enter-b_9", "enter-b_3", "click-a", "enter-b_9"), seed=5) == [
        "click-a_5",
        "enter-b_9",
        "enter-b_3",
    ]


def test_the_oracle_gets_what_it_can_solve():
    assert keys(agent="oracle", domain="click*") == ["click-a_0"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"domain": "dance"}, 'no domain matches "dance"; known here: click, drag, enter'),
        ({"task": ("click-z_1",)}, 'mini has no task "click-z"; did you mean "click-b"?'),
        ({"task": ("qqqqqqqqq",)}, "`evalfleet benchmarks mini` lists the tasks"),
        ({"task": ("click-a",), "domain": "drag"}, 'none of the named tasks is in a domain that matches "drag"'),
        ({"task": ("drag-a",), "agent": "oracle"}, "no solution for drag-a; it has one for 3 of 5 tasks"),
        ({"domain": "drag", "agent": "oracle"}, "no solution for drag-a"),
        ({"tasks": 6}, "--tasks 6: only 5 tasks fit; ask for fewer"),
        ({"tasks": 4, "agent": "oracle"}, "only 3 tasks fit that the oracle can solve"),
    ],
)
def test_what_cannot_be_chosen(wanted: dict[str, Any], said: str):
    with pytest.raises(InputError) as caught:
        keys(**wanted)
    assert said in str(caught.value)


def test_finding_benchmarks():
    settings = config.Settings(home=Path())
    assert "miniwob" in registry.names()
    assert registry.find("miniwob", settings).name == "miniwob"
    with pytest.raises(InputError, match="no benchmark 'minwob'; did you mean"):
        registry.find("minwob", settings)


class Plugin:
    def __init__(self, name: str, value: object) -> None:
        self.name, self.value, self._value = name, "some.package:thing", value

    def load(self) -> object:
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


def test_benchmarks_of_other_packages(monkeypatch: pytest.MonkeyPatch):
    plugins = {"paint": Plugin("paint", miniwob.Miniwob), "broken": Plugin("broken", ImportError("no gym"))}
    monkeypatch.setattr("evalfleet.plugins.installed", lambda group: plugins if group == BENCHMARKS else {})
    assert registry.names() == sorted(["broken", "paint", *BUILT_IN[BENCHMARKS]])
    assert isinstance(registry.find("paint", config.Settings(home=Path())), miniwob.Miniwob)
    with pytest.raises(InputError, match=r"'broken': some\.package:thing cannot be loaded: ImportError: no gym"):
        registry.find("broken", config.Settings(home=Path()))


def test_packages_are_read_again_only_when_one_was_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    reads: list[str] = []
    real = importlib.metadata.entry_points
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: reads.append(group) or real(group=group))
    assert [registry.is_known("painting") for _ in range(100)] == [False] * 100
    assert len(reads) == 1, "it costs 40 ms, and controllers ask at every turn"
    info = tmp_path / "painting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: painting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[evalfleet.benchmarks]\npainting = painting:Painting\n")
    assert registry.is_known("painting")


def test_what_miniwob_needs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(miniwob, "find_spec", lambda _: None)
    benchmark = miniwob.Miniwob(config.Settings(home=Path(), browser=BrowserSettings(chromium="/no/chromium")))
    chromium, package = benchmark.requirements()
    assert (chromium.present, package.present) == (False, False)
    assert "no /no/chromium, which is configured" in chromium.found
    assert package.install == "pip install miniwob==1.1.0"
    assert benchmark.catalogue() == []


def test_finding_agents(tmp_path: Path):
    (tmp_path / "mine_agents.py").write_text("class Mine:\n    pass\nx = 1\n")
    (tmp_path / "mine_broken.py").write_text("import no_such_module_at_all\n")
    (tmp_path / "mine_raises.py").write_text("1 / 0\n")
    assert agents.load("random") is RandomAgent
    assert agents.load("mine_agents:Mine", folder=str(tmp_path)).__name__ == "Mine"  # pyright: ignore[reportFunctionMemberAccess, reportAttributeAccessIssue]
    for name, text in {
        "orcale": "no agent 'orcale'; did you mean 'oracle'? Known: oracle, random, llm, or your own as module:Class",
        "mine_agents:": "no agent",
        "mine_agents:x": "mine_agents has no class x",
        "mine_agents:Yours": "mine_agents has no class Yours",
        "mine_nowhere:X": "there is no module mine_nowhere",
        "mine_broken:X": "importing mine_broken failed: No module named 'no_such_module_at_all'",
        "mine_raises:X": "importing mine_raises failed: ZeroDivisionError",
    }.items():
        with pytest.raises(InputError) as caught:
            agents.load(name)
        assert text in str(caught.value)


def element(index: int, tag: str, text: str = "", *, parent: int | None = None, y: float | None = None) -> Element:
    """One of a column of elements; with `y`, one that is out of view there."""
    return Element(
        index=index,
        parent=parent,
        tag=tag,
        text=text,
        value=None,
        checked=None,
        focused=False,
        box=Box(x=10, y=60 + 20 * index if y is None else y, width=40, height=16),
        point=Point(x=30, y=68 + 20 * index) if y is None else None,
    )


def observation(*elements: Element, step: int = 1, goal: str = "") -> Observation:
    return Observation(step=step, goal=goal, screenshot=b"PNG", width=160, height=210, elements=elements)


def test_actions_as_json():
    assert to_json(Click(x=1, y=0)) == {"do": "click", "x": 1, "y": 0}
    assert to_json(Press(key="a", held=("Control",))) == {"do": "press", "key": "a", "held": ("Control",)}


def test_the_oracle_clicks_what_the_goal_names():
    goal = 'Click on the "ok" button.'
    oracle = Oracle(TaskPrompt(benchmark="miniwob", task="click-button", goal=goal, seed=1))
    seen = observation(element(0, "button", "Ok"), element(1, "button", "ok"), goal=goal)
    assert oracle.act(seen).actions == (Click(x=30, y=88),)


def test_the_oracle_waits_for_what_is_not_there_and_scrolls_to_what_is_out_of_view():
    goal = 'Click on the "ok" button.'
    oracle = Oracle(TaskPrompt(benchmark="miniwob", task="click-button", goal=goal, seed=1))
    assert [to_json(action)["do"] for action in oracle.act(observation(goal=goal)).actions] == ["wait"]
    outer = element(0, "div")
    hidden = element(1, "button", "ok", parent=0, y=400)
    (scroll,) = oracle.act(observation(outer, hidden, goal=goal)).actions
    assert to_json(scroll) == {"do": "scroll", "x": 30, "y": 68, "dy": 340}


def test_the_oracle_knows_what_it_does_not_know():
    assert len(solvable("miniwob")) >= 40
    assert solvable("chess") == frozenset()
    with pytest.raises(InputError, match="no solution for miniwob tic-tac-toe"):
        Oracle(TaskPrompt(benchmark="miniwob", task="tic-tac-toe", goal="", seed=1))


def test_chance_is_the_same_for_the_same_seed():
    seen = observation(*(element(n, "button", str(n)) for n in range(5)))

    def acts(seed: int) -> list[Decision]:
        agent = RandomAgent(TaskPrompt(benchmark="b", task="t", goal="Click on 3", seed=seed))
        return [agent.act(seen) for _ in range(10)]

    assert acts(1) == acts(1) != acts(2)
    assert RandomAgent(TaskPrompt(benchmark="b", task="t", goal="", seed=1)).act(observation()).done


class FakeEpisode:
    """Is over after so many actions."""

    goal = "press it"

    def __init__(self, over_after: int) -> None:
        self.left = over_after
        self.done: list[Action] = []

    def observe(self, step: int) -> Observation:
        return observation(step=step, goal=self.goal)

    def perform(self, action: Action) -> None:
        self.done.append(action)
        self.left -= 1

    def verdict(self) -> Verdict | None:
        return Verdict(score=1.0, success=True, metrics={"reward": 1}) if self.left <= 0 else None

    def finish(self) -> Verdict | None:
        return self.verdict()


class TwoClicks:
    def __init__(self, done: bool = False) -> None:
        self._done = done

    def act(self, observation: Observation) -> Decision:
        return Decision(actions=(Click(x=1, y=1), Click(x=2, y=2)), done=self._done, note="hm", cost_usd=0.5)


def play(tmp_path: Path, over_after: int, *, done: bool = False) -> tuple[Verdict, int, FakeEpisode]:
    episode = FakeEpisode(over_after)
    recorder = attempt.Recorder(tmp_path / "events", tmp_path)
    return *attempt.play(episode, TwoClicks(done), recorder, max_steps=3), episode


def test_an_episode_ends_with_the_checkers_word(tmp_path: Path):
    verdict, steps, episode = play(tmp_path, 3)
    assert (verdict.score, steps, len(episode.done)) == (1.0, 2, 3)
    lines = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert [line.get("step") for line in lines] == [1, 2, None]
    assert lines[0]["action"] == [{"do": "click", "x": 1, "y": 1}, {"do": "click", "x": 2, "y": 2}]
    assert (lines[0]["note"], lines[0]["cost_usd"], lines[0]["screenshot"]) == ("hm", 0.5, "step_1.png")
    assert (tmp_path / "step_2.png").read_bytes() == b"PNG"
    trajectory = [json.loads(line) for line in (tmp_path / "trajectory.jsonl").read_text().splitlines()]
    assert [line.get("score") for line in trajectory] == [None, None, 1.0]
    assert all("at_s" in line for line in trajectory)


def test_an_episode_that_is_not_brought_to_its_end_scores_0(tmp_path: Path):
    verdict, steps, _ = play(tmp_path, 100)
    assert (verdict.score, verdict.success, verdict.metrics, steps) == (0.0, False, {"reason": "max_steps"}, 3)
    verdict, steps, _ = play(tmp_path, 100, done=True)
    assert (verdict.score, verdict.metrics, steps) == (0.0, {"reason": "agent_done"}, 1)


class Slow:
    """Takes 40 seconds for a decision, of which a busy service kept it waiting for some."""

    def __init__(self, clock: FakeClock, waited_s: float) -> None:
        self._clock = clock
        self._waited_s = waited_s

    def act(self, observation: Observation) -> Decision:
        self._clock.advance(40.0)
        return Decision(actions=(Click(x=1, y=1),), waited_s=self._waited_s, tokens=10)


@pytest.mark.parametrize(("waited_s", "steps", "reason"), [(0.0, 3, "timeout"), (35.0, 9, "max_steps")])
def test_waiting_is_not_taken_from_the_agents_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited_s: float, steps: int, reason: str
):
    clock = FakeClock()
    monkeypatch.setattr(attempt.time, "monotonic", clock)
    recorder = attempt.Recorder(tmp_path / "events", tmp_path)
    verdict, taken = attempt.play(FakeEpisode(100), Slow(clock, waited_s), recorder, max_steps=9, time_limit_s=100.0)
    assert (verdict.score, verdict.metrics, taken) == (0.0, {"reason": reason}, steps)
    recorder.tell("hm", cost_usd=0.5, tokens=5)
    assert recorder.metrics() == {"tokens": 10 * steps + 5}
    lines = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert (lines[0]["tokens"], lines[-1]) == (10, {"note": "hm", "cost_usd": 0.5, "tokens": 5})


def test_an_episode_may_be_judged_by_the_state_at_its_end_alone(tmp_path: Path):
    class Judged(FakeEpisode):
        def finish(self) -> Verdict:
            return Verdict(score=1.0, success=True, metrics={"actions": len(self.done)})

    recorder = attempt.Recorder(tmp_path / "events", tmp_path)
    verdict, steps = attempt.play(Judged(100), TwoClicks(), recorder, max_steps=3)
    assert (verdict.score, verdict.metrics, steps) == (1.0, {"actions": 6}, 3)
