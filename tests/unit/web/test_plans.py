"""Plans everywhere: over HTTP, in Python and from the command line the same question has the same answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio.to_thread
import msgspec
import pytest
from tests.support.web_client import serving

import evalfleet
from evalfleet.cli import main as entry
from evalfleet.errors import InputError, NotFound

TOML = """
[run]
name = "mine"

[[task]]
key = "a"
command = ["true"]

[[task]]
key = "b"
command = ["true"]
requests = { memory_mb = 60000 }
"""


def same(plan: dict[str, Any]) -> dict[str, Any]:
    """Without what differs from plan to plan."""
    return {name: value for name, value in plan.items() if name not in ("schema", "id", "created_at")}


async def test_the_same_plan_by_three_ways(home: Path, capsys: pytest.CaptureFixture[str]):
    words = ["plan", "waa", "--workers", "8", "--budget", "7", "--domain", "chrome", "--minutes-per-task", "4"]
    words += ["--memory", "chrome=20", "--regions", "eastus", "--no-spot", "--image", "--start-minutes", "2"]
    asked: dict[str, Any] = {"workers": 8, "budget_usd": 7, "domain": "chrome", "minutes_per_task": 4}
    asked |= {"memory_gb": {"chrome": 20}, "regions": ["eastus"], "spot": False, "image": True, "start_minutes": 2}
    assert await anyio.to_thread.run_sync(entry.run, [*words, "--home", str(home), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    async with serving(home) as client:
        posted = await client.post("plans", {"benchmark": "waa", **asked}, 201)
        assert await client.get(f"plans/{posted['id']}") == posted
        python = await evalfleet.plan_async("waa", home=home, **asked)
        listed = [one["id"] for one in (await client.get("plans"))["plans"]]
    assert same(printed) == same(posted) == same(msgspec.to_builtins(python))
    assert listed == [python.id, posted["id"], printed["id"]]
    assert evalfleet.show_plan(python.id, home=home) == python == evalfleet.list_plans(home=home)[0]
    with pytest.raises(NotFound, match="no plan 'nope'"):
        evalfleet.show_plan("nope", home=home)


async def test_a_task_file_is_planned_over_http(home: Path, tmp_path: Path):
    (tmp_path / "mine.toml").write_text(TOML)
    async with serving(home) as client:
        posted = await client.post("plans", {"toml": TOML, "workers": 2}, 201)
    python = evalfleet.plan(tmp_path / "mine.toml", workers=2, home=home)
    assert same(posted) == same(msgspec.to_builtins(python))
    assert (posted["source"], posted["tasks"]) == ("mine.toml", 2)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "name a benchmark"),
        ({"tasks": 5, "domain": "chrome"}, "how many tasks there are and nothing else"),
        ({"toml": TOML, "tasks": 3}, "options with a benchmark only"),
        ({"benchmark": "waa", "options": {"size": "3"}}, "option size: is not known"),
        ({"benchmark": "waa", "repeat": 0}, "repeat"),
        ({"tasks": 5, "minutes_per_task": 0}, "minutes_per_task: must be a number"),
        ({"tasks": 5, "minutes_per_task": 1e300}, "minutes_per_task: must be a number"),
        ({"tasks": 5, "budget_usd": -1}, "budget_usd: must be a number"),
        ({"tasks": 5, "deadline_s": 0}, "deadline_s: must be a number"),
        ({"tasks": 5, "workers": 0}, "workers: must be a number"),
        ({"tasks": 5, "memory_gb": {"": 1e12}}, "memory_gb"),
    ],
)
async def test_what_is_refused_over_http(home: Path, body: dict[str, Any], said: str):
    async with serving(home) as client:
        reply = await client.ask("/api/v1/plans", "POST", data=body)
    assert reply.status == 400
    assert said in reply.json["error"]["message"]


def test_options_of_a_benchmark_decide_about_its_tasks(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A plan is about the tasks that a run with the same options has."""
    checkout = tmp_path / "waa"
    (checkout / "examples" / "notepad").mkdir(parents=True)
    (checkout / "few.json").write_text('{"notepad": ["a", "b"], "clock": ["c"]}')
    words = ["plan", "waa", "--workers", "1", "--option", f"checkout={checkout}", "--option", "list=few.json"]
    assert entry.run([*words, "--home", str(home), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"] == 3
    options = {"checkout": str(checkout), "list": "few.json"}
    assert evalfleet.plan("waa", workers=1, task=["notepad/a"], options=options, home=home).tasks == 1
    with pytest.raises(InputError, match="max_steps: changes nothing in a plan"):
        evalfleet.plan("waa", max_steps=3, home=home)
    with pytest.raises(InputError, match="option other: is not known; waa takes: list, checkout"):
        evalfleet.plan("waa", options={"other": "1"}, home=home)
