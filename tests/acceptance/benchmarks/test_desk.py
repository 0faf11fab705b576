"""Desk as a person runs it: real applications on real desktops, through the whole engine."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import Fleet, wait_for

from evalfleet import config
from evalfleet.agents.base import Action, Decision, Observation, Press, Write
from evalfleet.agents.oracle import SCRIPTS
from evalfleet.agents.solutions.screen import PATIENCE_S, Player
from evalfleet.benchmarks.attempt import Recorder, play
from evalfleet.benchmarks.desk.benchmark import MAX_STEPS, Desk
from evalfleet.benchmarks.desk.episode import DeskEpisode
from evalfleet.benchmarks.desk.task import BUILT_IN, load
from evalfleet.environments.desktop.environment import launched

MISSING = [need for need in Desk(config.Settings(home=Path())).requirements() if not need.present]
TASKS = {task.id: task for task in load(BUILT_IN)}

needs_a_desktop = pytest.mark.skipif(
    bool(MISSING), reason="; ".join(f"{need.found}: {need.install}" for need in MISSING)
)
pytestmark = pytest.mark.timeout(300)

# Twice through these, a desktop that is used again shows what the first time left: a setting, windows, a full trash can.
TELLING = ("show-hidden", "trash-file")
ONE_OF_EACH = ("write-note", "multiply", "trash-file", "count-lines", "change-cell", "close-windows")


# Waits in its first step until the test lets it go, then does as the oracle does.
GATED = """
import os, pathlib, time
from evalfleet.agents.oracle import Oracle

class Gated(Oracle):
    def act(self, observation):
        if observation.step == 1:
            with open("ledger", "a") as file:
                print("start", os.environ["EVALFLEET_ATTEMPT"], file=file)
            while not pathlib.Path("gate").exists():
                time.sleep(0.02)
        return super().act(observation)
"""


class Clumsy:
    """Does something, and nothing of what it was told."""

    def __init__(self) -> None:
        self._left: list[Action] = [Write(text="abc"), Press(key="s", held=("Control",)), Press(key="Escape")]

    def act(self, observation: Observation) -> Decision:
        return Decision(actions=(self._left.pop(0),), done=not self._left)


def scores(names: Sequence[str], folder: Path, *, reset: bool) -> list[float]:
    """Let the oracle play tasks one after the other on one desktop, which is reset between them, or is not."""
    found: list[float] = []
    folder.mkdir()
    with launched(folder) as desktop:
        for name in names:
            agent = Player(SCRIPTS["desk"][name], patience_s=10.0 if found else PATIENCE_S)
            verdict, _ = play(DeskEpisode(desktop, TASKS[name]), agent, Recorder(folder / "events", folder), MAX_STEPS)
            found.append(verdict.score)
            if reset:
                desktop.reset()
    return found


def run(fleet: Fleet, *args: str, code: int = 0, **env: str) -> dict[str, Any]:
    process = fleet.start("run", "desk", *args, "--json", **env)
    output, _ = process.communicate(timeout=280)
    assert process.returncode == code, output
    return json.loads(output)


def desktops_of(fleet: Fleet) -> list[str]:
    return [process for process in fleet.left_processes() if "Xvfb" in process or "openbox" in process]


@needs_a_desktop
@pytest.mark.slow
def test_the_oracle_solves_tasks_in_every_application_and_leaves_nothing(fleet: Fleet):
    chosen = ("write-note", "add-prices", "rename-file", "sort-names", "sum-column", "calculate-and-note")
    tasks = [option for name in chosen for option in ("--task", name)]
    summary = run(fleet, *tasks, "--agent", "oracle", "--workers", "3")
    assert {row["key"]: row["score"] for row in summary["results"]} == {f"{name}_0": 1.0 for name in chosen}
    assert summary["attempts"]["total"] == len(chosen)
    assert set(summary["by_domain"]) == {"mousepad", "galculator", "pcmanfm", "xterm", "calc", "several"}
    wait_for(lambda: not desktops_of(fleet), "the desktops to end")
    assert not list(fleet.home.rglob("desktop"))
    left = Path(fleet.json("logs", "latest", "write-note_0")["folder"]) / "artifacts"
    assert struct.unpack(">II", (left / "step_1.png").read_bytes()[16:24]) == (1280, 800)
    told = [json.loads(line) for line in (left / "trajectory.jsonl").read_text().splitlines()]
    assert told[-1]["checks"] == [{"func": "text_match", "holds": True, "found": "Buy milk and bread"}]


@needs_a_desktop
@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_doing_nothing_is_not_enough(name: str, tmp_path: Path):
    with launched(tmp_path) as desktop:
        assert DeskEpisode(desktop, TASKS[name]).finish().score == 0.0


@needs_a_desktop
@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_doing_something_else_is_not_enough(name: str, tmp_path: Path):
    with launched(tmp_path) as desktop:
        episode = DeskEpisode(desktop, TASKS[name])
        verdict, steps = play(episode, Clumsy(), Recorder(tmp_path / "events", tmp_path), MAX_STEPS)
    assert (verdict.score, verdict.success, steps) == (0.0, False, 3)


@pytest.mark.long
@needs_a_desktop
@pytest.mark.slow
def test_the_score_falls_where_the_desktop_is_not_fresh(tmp_path: Path):
    assert scores(TELLING * 2, tmp_path / "fresh", reset=True) == [1.0] * 4
    used = scores(TELLING * 2, tmp_path / "used", reset=False)
    assert used[0] == 1.0
    assert sum(used) <= 2.0, used


@needs_a_desktop
@pytest.mark.slow
def test_chance_scores_far_below_the_oracle(fleet: Fleet):
    tasks = [option for name in ("write-note", "multiply", "count-lines") for option in ("--task", name)]
    summary = run(fleet, *tasks, "--agent", "random", "--workers", "3", "--max-steps", "4")
    assert summary["scores"]["coverage"] == 1.0
    assert summary["scores"]["strict"] < 0.5


@needs_a_desktop
@pytest.mark.slow
def test_desktops_outlive_the_controller_and_not_their_attempts(fleet: Fleet):
    (fleet.folder / "gated.py").write_text(GATED)
    options = ("--task", "write-note", "--task", "rename-file", "--agent", "gated:Gated", "--workers", "2")
    controller = fleet.start("run", "desk", *options)
    wait_for(lambda: len(fleet.lines()) == 2, "two episodes to begin")
    controller.kill()
    controller.communicate()
    assert desktops_of(fleet)
    (fleet.folder / "gate").touch()
    summary = fleet.json("resume")
    assert {row["key"]: row["score"] for row in summary["results"]} == {"write-note_0": 1.0, "rename-file_0": 1.0}
    assert summary["attempts"]["total"] == 2
    wait_for(lambda: not desktops_of(fleet), "the desktops to end")

    (fleet.folder / "gate").unlink()
    controller = fleet.start("run", "desk", "--task", "write-note", "--agent", "gated:Gated")
    wait_for(lambda: len(fleet.lines()) == 3, "one more episode to begin")
    assert desktops_of(fleet)
    assert fleet.command("cancel").returncode == 0
    assert controller.wait(60) == 1
    wait_for(lambda: not desktops_of(fleet), "the desktops to end")


@needs_a_desktop
@pytest.mark.slow
def test_a_person_s_own_task(fleet: Fleet):
    own = fleet.folder / "mine" / "editor"
    own.mkdir(parents=True)
    definition = {
        **TASKS["append-line"].definition,
        "id": "buy-ink",
        "instruction": "Make an empty file ink.txt in the home folder. A terminal is open.",
        "config": [{"type": "launch", "parameters": {"command": ["xterm", "-T", "Terminal"], "window": "Terminal"}}],
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "file_text", "path": "ink.txt"},
            "expected": {"type": "rule", "rules": {"expected": ""}},
        },
    }
    (own / "buy-ink.json").write_text(json.dumps(definition))
    (fleet.folder / "evalfleet.toml").write_text('[desk]\ntasks = "mine"\n')
    (fleet.folder / "typist.py").write_text(
        "from evalfleet.agents.base import Decision, Press, Write\n"
        "class Typist:\n"
        "    def __init__(self, prompt): pass\n"
        "    def act(self, observation):\n"
        "        gone = not [e for e in observation.elements if e.tag == 'window']\n"
        "        typed = (Write(text='touch ink.txt; exit'), Press(key='Enter'))\n"
        "        return Decision(actions=() if gone else typed, done=gone)\n"
    )
    assert "buy-ink" in fleet.command("benchmarks", "desk").stdout
    summary = run(fleet, "--task", "buy-ink", "--agent", "typist:Typist")
    assert {row["key"]: (row["domain"], row["score"]) for row in summary["results"]} == {"buy-ink_0": ("editor", 1.0)}


def test_a_machine_without_the_applications_is_told_what_to_install(fleet: Fleet, tmp_path: Path):
    done = fleet.command("run", "desk", "--agent", "oracle", PATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "desk needs a desktop and its applications (no Xvfb, openbox" in done.stderr
    assert "install it with: apt-get install -y --no-install-recommends xvfb openbox" in done.stderr
    shown = fleet.command("benchmarks", "desk", PATH=str(tmp_path))
    assert shown.returncode == 0
    assert "install it with: apt-get install" in shown.stdout
    assert "27 tasks in 6 domains" in shown.stdout


def test_a_bad_task_file_is_told_before_anything_is_written(fleet: Fleet):
    folder = fleet.folder / "mine" / "editor"
    folder.mkdir(parents=True)
    (folder / "half.json").write_text('{"id": "half", "instruction": "Do half of it."}')
    done = fleet.command("run", "desk", "--agent", "random", EVALFLEET_DESK_TASKS="mine")
    assert done.returncode == 2
    assert done.stderr == 'evalfleet: mine/editor/half.json: "evaluator" is missing.\n'
    assert not fleet.home.exists()
