"""MiniWoB++ as a person runs it: real pages in a real Chromium, through the whole engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import Fleet, wait_for

from evalfleet import config
from evalfleet.benchmarks.miniwob.benchmark import Miniwob, pages
from evalfleet.benchmarks.miniwob.page import WINDOW, PageEpisode
from evalfleet.environments.browser.environment import find_chromium, launched
from evalfleet.errors import BrowserError, BrowserGone

ROOT = Path(__file__).parents[3]
MISSING = [need for need in Miniwob(config.Settings(home=Path())).requirements() if not need.present]

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason="; ".join(f"{need.what} is missing: {need.install}" for need in MISSING)),
    pytest.mark.timeout(300),
]

# Waits in its first step until the test lets it go, then does as the oracle does.
GATED = """
import os, pathlib, time
from evalfleet.agents.oracle import Oracle

class Gated(Oracle):
    def act(self, observation):
        with open("ledger", "a") as file:
            print("start", os.environ["EVALFLEET_ATTEMPT"], file=file)
        while not pathlib.Path("gate").exists():
            time.sleep(0.02)
        return super().act(observation)
"""


def run(fleet: Fleet, *args: str, code: int = 0) -> dict[str, Any]:
    process = fleet.start("run", "miniwob", *args, "--json")
    output, _ = process.communicate(timeout=280)
    assert process.returncode == code, output
    return json.loads(output)


def artifacts(fleet: Fleet, key: str, run: str = "latest") -> Path:
    return Path(fleet.json("logs", run, key)["folder"]) / "artifacts"


def goal(fleet: Fleet, key: str, run: str) -> str:
    return json.loads((artifacts(fleet, key, run) / "trajectory.jsonl").read_text().splitlines()[0])["goal"]


@pytest.mark.long  # the demo, which is tested too, plays 40 tasks with both agents
@pytest.mark.timeout(300)
def test_the_oracle_solves_40_tasks_and_chance_does_not(fleet: Fleet):
    summary = run(fleet, "--tasks", "40", "--agent", "oracle", "--workers", "2", "--seed", "7")
    scores = {row["key"]: row["score"] for row in summary["results"]}
    assert len(scores) == 40
    assert {key: score for key, score in scores.items() if score != 1.0} == {}
    assert summary["attempts"]["total"] == 40
    assert len(summary["by_domain"]) >= 20
    assert not [process for process in fleet.left_processes() if "chrom" in process]
    assert not list((fleet.home / "runs").rglob("browser"))

    key = "multi-orderings_7"
    assert key in scores
    left = artifacts(fleet, key, summary["run"])
    assert {path.name for path in left.iterdir()} == {"step_1.png", "final.png", "trajectory.jsonl"}
    # Width and height stand in a PNG's header: the reward panel, to the right, is not on the picture.
    assert struct.unpack(">II", (left / "step_1.png").read_bytes()[16:24]) == (160, 210)
    events = [line for event in fleet.events() if event["task"] == key for line in event["data"].get("lines", [])]
    assert [line.get("screenshot") for line in events] == [None, "step_1.png", "final.png"]
    assert events[0]["ready"] is True

    same = sorted(scores)[::4]
    by_chance = [option for each in same for option in ("--task", each)]
    chance = run(fleet, *by_chance, "--agent", "random", "--workers", "2", "--max-steps", "4")
    assert {row["key"] for row in chance["results"]} == set(same)
    assert chance["scores"]["coverage"] == 1.0
    assert chance["scores"]["strict"] < 0.4
    # The same seed is the same episode, whoever acts in it.
    assert [goal(fleet, each, chance["run"]) for each in same] == [goal(fleet, each, summary["run"]) for each in same]


@pytest.mark.slow
def test_a_killed_controller_costs_no_episode_and_leaves_no_browser(fleet: Fleet):
    (fleet.folder / "gated.py").write_text(GATED)
    tasks = ("--task", "click-button", "--task", "enter-text_3", "--task", "click-link")
    controller = fleet.start("run", "miniwob", *tasks, "--agent", "gated:Gated", "--workers", "2")
    wait_for(lambda: len(fleet.lines()) == 2, "two episodes to begin")
    controller.kill()
    controller.communicate()
    assert [process for process in fleet.left_processes() if "chrom" in process]
    (fleet.folder / "gate").touch()
    summary = fleet.json("resume")
    assert {row["key"]: row["score"] for row in summary["results"]} == {
        "click-button_0": 1.0,
        "enter-text_3": 1.0,
        "click-link_0": 1.0,
    }
    assert summary["attempts"]["total"] == 3
    assert len(set(fleet.lines())) == 3
    assert not [process for process in fleet.left_processes() if "chrom" in process]


@pytest.mark.slow
def test_a_cancelled_episode_leaves_neither_processes_nor_files(fleet: Fleet):
    (fleet.folder / "gated.py").write_text(GATED)
    controller = fleet.start("run", "miniwob", "--task", "click-test", "--agent", "gated:Gated")
    wait_for(fleet.lines, "the episode to begin")
    assert fleet.command("cancel").returncode == 0
    assert controller.wait(60) == 1
    assert not [process for process in fleet.left_processes() if "chrom" in process]
    assert not list(fleet.home.rglob("browser"))


@pytest.mark.slow
def test_the_example_agent(fleet: Fleet):
    (fleet.folder / "patient_agent.py").write_text((ROOT / "examples" / "patient_agent.py").read_text("utf-8"))
    tasks = ("--task", "click-button", "--task", "click-link_1", "--task", "focus-text")
    summary = run(fleet, *tasks, "--agent", "patient_agent:Patient", "--workers", "2")
    assert {row["key"]: row["score"] for row in summary["results"]} == {
        "click-button_0": 1.0,
        "click-link_1": 1.0,
        "focus-text_0": 0.0,
    }


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl: apt-get install curl")
def test_the_example_agent_that_is_a_command(fleet: Fleet):
    (fleet.folder / "curl_agent.sh").write_text((ROOT / "examples" / "curl_agent.sh").read_text("utf-8"))
    tasks = ("--task", "click-button", "--task", "click-test")
    summary = run(fleet, *tasks, "--agent", "cmd:bash curl_agent.sh", "--workers", "2")
    assert {row["key"]: (row["score"], row["steps"]) for row in summary["results"]} == {
        "click-button_0": (1.0, 1),
        "click-test_0": (1.0, 1),
    }
    assert summary["name"] == "miniwob-curl_agent"
    left = artifacts(fleet, "click-test_0", summary["run"])
    assert {path.name for path in left.iterdir()} == {"step_1.png", "final.png", "trajectory.jsonl"}
    step = json.loads((left / "trajectory.jsonl").read_text().splitlines()[1])
    assert [action["do"] for action in step["action"]] == ["click"]


@pytest.mark.slow
def test_a_command_that_fails_or_is_cancelled_leaves_nothing(fleet: Fleet):
    (fleet.folder / "gives_up.sh").write_text("echo I give up >&2; sleep 600 & exit 3")
    summary = run(fleet, "--task", "click-test", "--agent", "cmd:sh gives_up.sh", "--attempts", "1")
    failure = summary["results"][0]["failure"]
    assert (failure["kind"], failure["blame"]) == ("bad_exit", "task")
    assert "the agent's command ended with status 3: sh gives_up.sh" in failure["evidence"]
    (fleet.folder / "waits.sh").write_text("echo here >> ledger; sleep 600")
    controller = fleet.start("run", "miniwob", "--task", "click-test", "--agent", "cmd:sh waits.sh")
    wait_for(fleet.lines, "the command to begin")
    assert fleet.command("cancel").returncode == 0
    assert controller.wait(60) == 1
    assert not [process for process in fleet.left_processes() if "chrom" in process or "sleep" in process]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("miniwob",), "miniwob needs --agent: oracle, random, llm, or your own as module:Class or cmd:COMMAND"),
        (("minwob", "--agent", "oracle"), "'minwob' is neither a file nor a benchmark; did you mean \"miniwob\"?"),
        (("miniwob", "--agent", "orcale"), "there is no agent 'orcale'; did you mean 'oracle'? Known: "),
        (("miniwob", "--agent", "cmd:no-such-program -x"), "there is no program 'no-such-program'"),
        (("miniwob", "--agent", "nowhere:Agent"), "there is no module nowhere"),
        (("miniwob", "--agent", "oracle", "--domain", "dance"), 'no domain matches "dance"'),
        (("miniwob", "--agent", "oracle", "--task", "click-buton"), 'did you mean "click-button"?'),
        (("miniwob", "--agent", "oracle", "--task", "tic-tac-toe"), "the oracle has no solution for tic-tac-toe"),
        (("miniwob", "--agent", "oracle", "--tasks", "131"), "that the oracle can solve; ask for fewer"),
        (
            ("miniwob", "--agent", "oracle", "--tasks-file", "none.txt"),
            "--tasks-file none.txt: cannot be read: No such file",
        ),
        (
            ("miniwob", "--agent", "oracle", "--tasks-file", "/dev/null"),
            "--tasks-file /dev/null: names no task; write one",
        ),
        (("miniwob", "--agent", "oracle", "--timeout", "soon"), '"soon" is not a duration'),
        (("miniwob", "--agent", "oracle", "--accept", "1.5"), "1.5 is not in the range 0<=x<=1"),
        (("tasks.toml", "--tasks-file", "x"), "--tasks-file is for benchmarks only, and 'tasks.toml' is a task file"),
        (("tasks.toml", "--max-steps", "3"), "--max-steps is for benchmarks only, and 'tasks.toml' is a task file"),
    ],
)
def test_bad_input_is_told_before_anything_is_written(fleet: Fleet, args: tuple[str, ...], said: str):
    done = fleet.command("run", *args)
    assert done.returncode == 2
    assert said in done.stderr
    assert not fleet.home.exists()


def test_a_missing_browser_is_told_with_the_remedy(fleet: Fleet):
    done = fleet.command("run", "miniwob", "--agent", "oracle", EVALFLEET_CHROMIUM="/no/chromium")
    assert done.returncode == 2
    assert "apt-get install -y --no-install-recommends chromium" in done.stderr
    assert not fleet.home.exists()
    rows = fleet.json("benchmarks", EVALFLEET_CHROMIUM="/no/chromium")["benchmarks"]
    assert [row["ready"] for row in rows if row["name"] == "miniwob"] == [False]


def test_a_file_of_a_benchmarks_name_goes_first(fleet: Fleet):
    (fleet.folder / "miniwob").write_text('[[task]]\nkey = "a"\ncommand = ["true"]\n')
    assert fleet.json("run", "miniwob")["tasks"]["done"] == 1


def test_the_benchmark_is_shown(fleet: Fleet):
    told = fleet.json("benchmarks", "miniwob")
    assert told["ready"] is True
    assert len(told["tasks"]) == 130
    solved = {task["name"] for task in told["tasks"] if task["oracle"]}
    assert len(solved) >= 40
    text = fleet.command("benchmarks", "miniwob").stdout
    assert f"130 tasks in 50 domains; the oracle solves the {len(solved)} with a *" in text
    assert "miniwob" in fleet.command("benchmarks").stdout


def test_a_browser_that_dies_is_noticed_at_once_and_leaves_nothing(tmp_path: Path):
    chromium, folder = find_chromium(), pages()
    assert chromium
    assert folder
    with launched(chromium, tmp_path, WINDOW) as browser:
        episode = PageEpisode(browser.page, folder / "click-test.html", 1)
        assert episode.goal == "Click the button."
        assert episode.verdict() is None
        with pytest.raises(BrowserError, match="JavaScript failed: ReferenceError"):
            browser.page.evaluate("nonsense()")
        browser.page.evaluate("alert('an open dialog stops the page')")
        for pid in _chromiums(tmp_path):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(BrowserGone):
            episode.observe(1)
    assert list(tmp_path.iterdir()) == []


def _chromiums(folder: Path) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"--user-data-dir={folder}".encode() in command:
                found.append(int(entry.name))
    return found
