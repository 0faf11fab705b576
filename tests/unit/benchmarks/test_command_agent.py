"""Agents that are commands: real processes that speak HTTP, in an episode that is only pretended."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from evalfleet.actions import Action, Click, Write
from evalfleet.agents import registry as agents
from evalfleet.agents.base import Box, Element, Observation, Point, TaskPrompt
from evalfleet.agents.command import Command
from evalfleet.benchmarks import attempt
from evalfleet.benchmarks.command_agent import CommandAgent
from evalfleet.errors import AgentFailed, EnvironmentFailed, InputError
from evalfleet.model import Verdict

CALL = """
import json, os, sys, urllib.error, urllib.request

def call(path, body=None, raw=False):
    request = urllib.request.Request(os.environ["EVALFLEET_GUEST"] + path, None if body is None else json.dumps(body).encode())
    request.add_header("Authorization", "Bearer " + os.environ["EVALFLEET_GUEST_TOKEN"])
    try:
        data = urllib.request.urlopen(request, timeout=30).read()
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
    return 200, data if raw else json.loads(data)

def tell(**what):
    print(json.dumps(what), file=open("told", "a"))

click = {"do": "click", "x": 1, "y": 2}
"""


class FakeEpisode:
    """Is over after so many actions."""

    goal = "press it"

    def __init__(self, over_after: int = 100) -> None:
        self.left = over_after
        self.done: list[Action] = []
        self.broken = False

    def observe(self, step: int) -> Observation:
        place = Box(x=1, y=2, width=3, height=4)
        button = Element(
            index=0, parent=None, tag="button", text="Go", value=None, checked=None, focused=False, box=place, point=Point(x=5, y=6)
        )  # fmt: skip
        return Observation(
            step=step, goal=self.goal, screenshot=b"PNG%d" % step, width=16, height=9, elements=(button,)
        )

    def perform(self, action: Action) -> None:
        if self.broken:
            raise EnvironmentFailed("the world is gone")
        self.done.append(action)
        self.left -= 1

    def verdict(self) -> Verdict | None:
        return Verdict(score=1.0, success=True, metrics={}) if self.left <= 0 else None

    def finish(self) -> Verdict | None:
        return self.verdict()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def play(source: str, episode: FakeEpisode, max_steps: int = 5) -> tuple[Verdict, int]:
    Path("agent.py").write_text(CALL + source)
    prompt = TaskPrompt(benchmark="b", task="t", goal=episode.goal, seed=7)
    with CommandAgent([sys.executable, "agent.py"], prompt, None, max_steps) as agent:
        return attempt.play(episode, agent, attempt.Recorder(Path("events"), Path()), max_steps)


def told() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("told").read_text().splitlines()]


def test_a_command_acts_and_is_recorded_like_other_agents():
    episode = FakeEpisode(over_after=2)
    verdict, steps = play(
        """
tell(goal=os.environ["EVALFLEET_GOAL"], most=os.environ["EVALFLEET_MAX_STEPS"], task=call("/task")[1])
tell(probe=call("/probe")[1], shot=call("/screenshot", raw=True)[1].decode())
tell(element=json.loads(call("/elements", raw=True)[1].splitlines()[0]))
tell(answer=call("/input", click))
tell(shot=call("/screenshot", raw=True)[1].decode())
tell(answer=call("/input", {"do": "write", "text": "ü"}))
tell(answer=call("/input", click))
""",
        episode,
    )
    assert (verdict.score, steps) == (1.0, 2)
    assert episode.done == [Click(x=1, y=2), Write(text="ü")]
    first, second, third, *rest = told()
    task = {"benchmark": "b", "task": "t", "seed": 7, "goal": "press it", "step": 1, "max_steps": 5}
    assert first == {"goal": "press it", "most": "5", "task": task}
    assert second["probe"]["screen"] == {"width": 16, "height": 9}
    assert second["shot"] == "PNG1"
    assert (third["element"]["tag"], third["element"]["point"]) == ("button", {"x": 5, "y": 6})
    assert rest[0]["answer"] == [200, {"step": 2, "over": False}]
    assert rest[1]["shot"] == "PNG2"
    assert rest[2]["answer"] == [200, {"step": 2, "over": True}]
    assert rest[3]["answer"][0] == 410
    lines = [json.loads(line) for line in Path("trajectory.jsonl").read_text().splitlines()]
    assert [line.get("action") for line in lines[:2]] == [
        [{"do": "click", "x": 1, "y": 2}],
        [{"do": "write", "text": "ü"}],
    ]
    assert Path("step_2.png").read_bytes() == b"PNG2"


def test_steps_are_limited():
    verdict, steps = play("while call('/input', click)[0] == 200: pass\nsys.exit(9)", FakeEpisode(), max_steps=3)
    assert (verdict.score, verdict.metrics, steps) == (0.0, {"reason": "max_steps"}, 3)


def test_exit_0_is_done():
    verdict, steps = play("call('/input', click)", FakeEpisode())
    assert (verdict.metrics, steps) == ({"reason": "agent_done"}, 2)


def test_another_exit_is_the_agents_failure():
    with pytest.raises(AgentFailed, match=r"ended with status 3: .*agent\.py"):
        play("sys.exit(3)", FakeEpisode())
    with pytest.raises(AgentFailed, match="was killed by signal 9"):
        play("os.kill(os.getpid(), 9)", FakeEpisode())
    prompt = TaskPrompt(benchmark="b", task="t", goal="", seed=7)
    with CommandAgent(["./nothing"], prompt, None, 1) as agent, pytest.raises(AgentFailed, match="cannot be started"):
        agent.act(FakeEpisode().observe(1))


def test_what_cannot_be_done_is_refused_and_costs_no_step():
    episode = FakeEpisode(over_after=1)
    _, steps = play(
        """
for body in ({"do": "press", "key": "Return"}, {"do": "click", "x": 1, "y": 1, "held": ["Ctrl"]}, {"do": "fly"}, {}):
    tell(code=call("/input", body)[0])
for path in ("/execute", "/setup/launch"):
    tell(code=call(path, {"command": ["ls"]})[0])
tell(code=call("/file?path=a")[0])
tell(code=call("/setup/reset", {"x": 1})[0])
call("/input", click)
""",
        episode,
    )
    assert [line["code"] for line in told()] == [400] * 8
    assert steps == 1


def test_a_world_that_breaks_is_told_as_such_and_takes_the_command_along():
    episode = FakeEpisode()
    episode.broken = True
    begun = time.monotonic()
    with pytest.raises(EnvironmentFailed, match="the world is gone"):
        play("tell(pid=os.getpid())\ncall('/input', click)\nimport time\ntime.sleep(600)", episode)
    assert time.monotonic() - begun < 60
    with pytest.raises(ProcessLookupError):
        os.kill(told()[0]["pid"], 0)


def test_finding_commands(tmp_path: Path):
    found = agents.load("cmd:python3 'my agent.py' -x")
    assert isinstance(found, Command)
    assert found.words == ["python3", "my agent.py", "-x"]
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    (tmp_path / "mine").chmod(0o755)
    assert isinstance(agents.load("cmd:./mine", folder=str(tmp_path)), Command)
    for name, said in {
        "cmd:": "the command is missing",
        "cmd:  ": "the command is missing",
        "cmd:'": "no closing quotation; quote it as for a shell",
        "cmd:no-such-program": "there is no program 'no-such-program'",
        "cmd:./yours": "there is no program './yours'",
    }.items():
        with pytest.raises(InputError, match=said):
            agents.load(name, folder=str(tmp_path))
    assert agents.label("cmd:python3.11 deep/my_agent.py http://x.com") == "my_agent"
    assert agents.label("cmd:/opt/agent -v") == "agent"
    assert agents.label("module:Class") == "Class"


def test_a_command_is_not_given_what_the_checker_looks_for(monkeypatch: pytest.MonkeyPatch):
    task = {"key": "k", "payload": {"task": "t", "definition": {"evaluator": {"expected": "42"}}, "seed": 7}}
    Path("task.json").write_text(json.dumps(task))
    monkeypatch.setenv("EVALFLEET_TASK", str(Path("task.json").absolute()))
    play('tell(task=json.load(open(os.environ["EVALFLEET_TASK"])))', FakeEpisode())
    assert told() == [{"task": {"key": "k", "payload": {"task": "t", "seed": 7}}}]
