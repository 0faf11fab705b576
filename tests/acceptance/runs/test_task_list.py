"""`evalfleet tasks` and `evalfleet artifacts`: which tasks, in which order, on a terminal and off it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.fleet import Fleet

LONG = "a-task-whose-key-is-much-longer-than-any-terminal-that-a-person-has-in-front-of-them-ever-was"
STORY = "the disk of this machine said something that takes more than eighty columns to be told to a person"


def sh(key: str, script: str, **words: Any) -> dict[str, Any]:
    return {"key": key, "command": ["sh", "-c", script], **words}


@pytest.fixture
def done(fleet: Fleet) -> Fleet:
    left = "mkdir -p $EVALFLEET_ARTIFACTS/deep; printf abc > $EVALFLEET_ARTIFACTS/deep/one.txt"
    tasks = [
        sh("click_1", left, domain="click"),
        sh("click_2", 'echo \'{"score": 0.4, "success": false}\' > $EVALFLEET_RESULT', domain="click-more"),
        sh("enter_1", f"echo '{STORY}' >&2; exit 1", domain="enter"),
        sh(LONG, 'echo \'{"score": 0, "success": false}\' > $EVALFLEET_RESULT', domain="a-domain-that-is-long-as-well"),
    ]
    assert fleet.command("run", fleet.tasks(tasks, attempts=1), "--workers", "2").returncode == 0
    return fleet


def keys(fleet: Fleet, *args: str) -> list[str]:
    return [row["key"] for row in fleet.json("tasks", "latest", *args)["tasks"]]


def test_filters_and_orders(done: Fleet):
    assert keys(done) == ["click_1", "click_2", "enter_1", LONG]
    assert keys(done, "--failed") == ["enter_1"]
    assert keys(done, "--state", "failed", "--state", "held") == ["enter_1"]
    assert keys(done, "--domain", "click*") == ["click_1", "click_2"]
    assert keys(done, "--domain", "click") == ["click_1"]
    assert keys(done, "--failed", "--domain", "click*") == []
    assert keys(done, "--sort", "-score")[:2] == ["click_1", "click_2"]
    assert keys(done, "--sort", "key")[0] == LONG
    assert keys(done, "--sort", "-number") == [LONG, "enter_1", "click_2", "click_1"]
    assert done.command("tasks", "--sort", "luck").returncode == 2
    assert done.command("tasks", "--state", "asleep").returncode == 2
    assert done.command("tasks", "--domain", "none*").stdout.startswith("no task of run ")


def test_json_has_the_words_of_the_report(done: Fleet):
    told = {row["key"]: row for row in done.json("report")["results"]}
    for row in done.json("tasks")["tasks"]:
        assert set(row) <= set(told[row["key"]])
        assert [row[name] for name in ("state", "score", "attempts")] == [
            told[row["key"]][name] for name in ("state", "score", "attempts")
        ]


def test_on_a_terminal_it_fits_and_elsewhere_nothing_is_cut(done: Fleet):
    narrow = done.command("tasks", COLUMNS="80").stdout
    assert max(map(len, narrow.splitlines())) <= 80
    assert " ".join(narrow.split()).count(STORY) == 1, "it is broken between words, and whole"
    assert LONG not in narrow
    whole = done.command("tasks").stdout
    assert LONG in whole
    (line,) = (line for line in whole.splitlines() if line.startswith("enter_1"))
    assert line.endswith(STORY)
    for word in ("passed", "score 0.4", "failed", "not passed"):
        assert word in whole, word


def test_artifacts_are_listed_and_printed(done: Fleet):
    answer = done.json("artifacts", "latest", "click_1")
    assert answer["artifacts"] == [{"path": "deep/one.txt", "size": 3}]
    assert done.command("artifacts", "latest", "click_1", "deep/one.txt").stdout == "abc"
    for wrong in ("deep", "deep/two.txt", "../result.json", "/etc/passwd"):
        assert done.command("artifacts", "latest", "click_1", wrong).returncode == 2, wrong
    none = done.command("artifacts", "latest", "enter_1")
    assert (none.returncode, none.stdout, "has no files" in none.stderr) == (0, "", True)
    assert done.command("artifacts", "latest", "nope").returncode == 2
    assert done.command("artifacts", "latest", "click_1", "--attempt", "7").returncode == 2


def test_the_list_of_runs_is_filtered(done: Fleet):
    done.command("run", done.tasks([sh("a", "true")], "other.jsonl"), "--detach", "--name", "waiting")
    assert [row["name"] for row in done.json("status", "--state", "queued")["runs"]] == ["waiting"]
    assert [row["name"] for row in done.json("status", "--search", "ask")["runs"]] == ["tasks"]
    assert json.loads(done.command("status", "--search", "nothing", "--json").stdout)["runs"] == []
