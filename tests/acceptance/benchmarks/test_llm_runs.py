"""The agent `llm` as a person runs it: MiniWoB++ in a real browser, a scripted model over real HTTP."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.chat import Asked, Behaviour, Bucket, ChatServer, completion, refusal, script
from tests.support.fleet import Fleet

from evalfleet import config
from evalfleet.benchmarks.miniwob.benchmark import Miniwob

KEY = "sk-test-correct-horse-battery"
MISSING = [need for need in Miniwob(config.Settings(home=Path())).requirements() if not need.present]
TASKS = ("click-button", "click-link", "click-test", "click-dialog-2", "click-tab")
PRICE = '[[llm.price]]\nmodel = "stub*"\ninput_usd_per_million = 10\noutput_usd_per_million = 100\n'

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason="; ".join(f"{need.what} is missing: {need.install}" for need in MISSING)),
    pytest.mark.timeout(300),
    pytest.mark.slow,
]


def model(asked: Asked) -> Behaviour:
    """Click what the goal names, by the list of elements that it is sent with the screenshot."""
    assert asked.images
    goal = re.search(r"^Goal: (.*)$", asked.text, re.MULTILINE)
    assert goal
    seen = re.findall(
        r'^- (?:\w+ )+?(?:"((?:[^"\\]|\\.)*)" )?(?:focused )?at \((\d+), (\d+)\)$', asked.text, re.MULTILINE
    )
    wanted = re.findall(r'"([^"]*)"', goal[1]) or re.findall(r"Tab #\d", goal[1]) or [text for text, _, _ in seen[-1:]]
    points = [(int(x), int(y)) for text, x, y in seen if text in wanted]
    if not points:
        return completion(json.dumps({"thought": "not here", "actions": [], "done": True}))
    actions = [{"do": "click", "x": points[-1][0], "y": points[-1][1]}]
    return completion(json.dumps({"thought": f"it says {wanted[0]}", "actions": actions}), 900, 10)


def arguments(server: ChatServer, *tasks: str, repeat: int = 1) -> list[str]:
    chosen = [word for task in tasks or TASKS for word in ("--task", task)]
    named = ["--agent", "llm", "--model", "stub", "--base-url", server.url, "--repeat", str(repeat)]
    return ["run", "miniwob", *chosen, *named, "--workers", "2", "--max-steps", "3"]


def run(fleet: Fleet, *args: str, code: int = 0) -> dict[str, Any]:
    return fleet.json(*args, code=code, OPENAI_API_KEY=KEY)


def holding_the_key(fleet: Fleet) -> list[Path]:
    places = [*fleet.home.rglob("*"), *fleet.folder.rglob("*")]
    return [path for path in places if path.is_file() and KEY.encode() in path.read_bytes()]


def test_a_model_solves_tasks_and_its_cost_is_known(fleet: Fleet):
    (fleet.folder / "evalfleet.toml").write_text(PRICE)
    bucket = Bucket(model, per_s=4.0, burst=2)
    tasks = (
        "click-button",
        "click-dialog-2",
        "click-tab",
    )  # which name what is to be clicked in a way of their own each
    with ChatServer(bucket) as server:
        summary = run(fleet, *arguments(server, *tasks), "--name", "scripted")
    assert {row["key"]: row["score"] for row in summary["results"]} == {f"{task}_0": 1.0 for task in tasks}
    assert summary["attempts"]["total"] == len(tasks)
    # 900 tokens sent and 10 received for each answer: $0.01.
    assert summary["cost"]["total_usd"] == pytest.approx(0.01 * len(bucket.passed))
    assert sum(row["metrics"]["tokens"] for row in summary["results"]) == 910 * len(bucket.passed)
    assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {KEY}"}

    folder = Path(fleet.json("logs", "latest", "click-button_0")["folder"]) / "artifacts"
    first = json.loads((folder / "trajectory.jsonl").read_text().splitlines()[1])
    assert (first["tokens"], first["cost_usd"]) == (910, pytest.approx(0.01))
    assert first["note"].startswith("it says")
    assert holding_the_key(fleet) == []
    assert "$0.0" in fleet.command("report").stdout


def test_a_budget_stops_the_spending(fleet: Fleet):
    (fleet.folder / "evalfleet.toml").write_text(PRICE.replace("= 100", "= 9000"))  # $0.099 an answer
    with ChatServer(model) as server:
        summary = run(fleet, *arguments(server, "click-test", repeat=12), "--budget", "0.45", code=3)
        assert summary["state"] == "paused"
        assert summary["reason"]["cause"] == "budget"
        assert 3 <= len(server.asked) <= 5
    assert summary["cost"]["total_usd"] <= 0.5


def test_a_wrong_key_pauses_the_run_after_a_handful(fleet: Fleet):
    (fleet.folder / "evalfleet.toml").write_text('[breaker]\nprobe_base = "0.1s"\n')
    with ChatServer(script(refusal(401, f"Incorrect API key provided: {KEY}"))) as server:
        done = fleet.command(*arguments(server, repeat=4), OPENAI_API_KEY=KEY)
        assert done.returncode == 3
        assert len(server.asked) <= 12, "20 tasks, and an outage costs a handful of attempts"
    assert "no price is configured for stub" in done.stderr
    summary = fleet.json("report")
    assert set(summary["failures"]) == {"service_refused"}
    assert "check the key OPENAI_API_KEY, the model and the address" in done.stdout + done.stderr
    assert "status 401: Incorrect API key provided" in json.dumps(summary)
    assert holding_the_key(fleet) == []


def test_a_refused_question_is_the_agents_own(fleet: Fleet):
    def mind(asked: Asked) -> Behaviour:
        return refusal(400, "context too long") if 'Goal: Click on the "' in asked.text else model(asked)

    with ChatServer(mind) as server:
        summary = run(fleet, *arguments(server, "click-test", "click-button"), "--attempts", "1", code=0)
    rows = {row["key"]: row for row in summary["results"]}
    assert rows["click-test_0"]["score"] == 1.0
    assert rows["click-button_0"]["state"] == "failed"
    assert rows["click-button_0"]["failure"]["blame"] == "task"
    assert "the request was rejected: status 400: context too long" in rows["click-button_0"]["failure"]["evidence"]


def test_a_busy_model_is_waited_for_and_the_wait_is_no_stall(fleet: Fleet):
    with ChatServer(script(refusal(429, retry_after="3"), refusal(503, retry_after="1"), _click_test())) as server:
        summary = run(fleet, *arguments(server, "click-test"))
        assert len(server.asked) == 3
    assert summary["results"][0]["score"] == 1.0
    lines = [line for event in fleet.events() for line in event["data"].get("lines", [])]
    assert any("waiting 3 s for stub: the rate limit" in line.get("note", "") for line in lines)


def _click_test() -> Behaviour:
    # The only button of click-test lies somewhere in the middle of the page's upper part; all likely places are tried.
    places = [{"do": "click", "x": x, "y": y} for y in (80, 110, 140, 170, 195) for x in (40, 120)]
    return completion(json.dumps({"thought": "anywhere", "actions": places}))


@pytest.mark.parametrize(
    ("args", "env", "said"),
    [
        (("--agent", "llm"), {"OPENAI_API_KEY": KEY}, "the agent llm needs a model; name it with --model"),
        (("--agent", "llm", "--model", "m"), {}, "the environment lacks OPENAI_API_KEY"),
        (("--agent", "llm", "--model", "m", "--base-url", "here"), {}, "'here' is not an address"),
        (("--agent", "oracle", "--model", "m"), {}, "--model has no effect on the agent 'oracle'"),
    ],
)
def test_bad_input_is_told_before_anything_is_written(
    fleet: Fleet, args: tuple[str, ...], env: dict[str, str], said: str
):
    done = fleet.command("run", "miniwob", "--task", "click-test", *args, **env)
    assert done.returncode == 2
    assert said in done.stderr
    assert not fleet.home.exists()
