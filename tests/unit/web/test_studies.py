"""Studies over HTTP: made from text, shown, steered; and what the form of a new run offers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.web_client import Client, serving

from evalfleet.store.open import open_store

STUDY = """
[study]
name = "flags"
objective = { minimize = "seconds" }
trials = 7

[parameters]
threads = [1, 2, 4]

[trial]
command = ["true"]
"""
EVIL = "<script>alert(1)</script>\n../../etc"


@pytest.fixture
async def client(home: Path) -> AsyncGenerator[Client]:
    async with serving(home) as client:
        yield client


async def made(client: Client, folder: Path, **more: Any) -> str:
    return (await client.post("studies", {"toml": STUDY, "folder": str(folder), **more}, 201))["run"]


async def test_a_study_is_made_shown_and_listed(client: Client, tmp_path: Path):
    assert (await client.get("studies")) == {"studies": []}
    assert (await client.ask("/api/v1/studies/latest")).status == 404
    answer = await client.post(
        "studies",
        {"toml": STUDY, "folder": str(tmp_path), "trials": 9, "parallel": 3, "gpus": "0, 2", "budget_usd": 2.5},
        201,
    )
    assert (answer["name"], answer["state"], answer["folder"]) == ("flags", "queued", str(tmp_path))
    shown = await client.get(f"studies/{answer['run']}")
    assert (shown["wanted"], shown["parallel"], shown["strategy"]) == (9, 3, "random")
    assert shown["trials"] == []
    assert (await client.get("studies/flags"))["run"] == (await client.get("studies/latest"))["run"] == answer["run"]
    (row,) = (await client.get("studies"))["studies"]
    assert (row["run"], row["name"], "trials" in row) == (answer["run"], "flags", False)
    (event,) = (await client.get(f"runs/{answer['run']}/events?type=run.requested"))["events"]
    assert event["data"]["verb"] == "submit"
    assert event["data"]["by"].startswith("token boss")
    policy = (await client.get(f"runs/{answer['run']}"))["policy"]
    assert (policy["budget_usd"], policy["gpus"]) == (2.5, [0, 2])


async def test_a_table_is_as_good_as_text(client: Client, tmp_path: Path):
    table = {
        "study": {"name": "x", "objective": {"maximize": "rate"}, "trials": 2},
        "parameters": {"n": [1, 2]},
        "trial": {"command": ["true"]},
    }
    answer = await client.post("studies", {"study": table, "name": EVIL, "folder": str(tmp_path)}, 201)
    assert answer["name"] == EVIL, "a name is text, whatever it holds"
    assert (await client.get(f"studies/{answer['run']}"))["name"] == EVIL


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "give either `toml`"),
    ({"toml": STUDY, "study": {}}, "give either `toml`"),
    ({"toml": "[study\nname = 1"}, "at line 1"),
    ({"toml": STUDY.replace("trials = 7", "trials = 0")}, "toml: study.trials: 0 is out of range"),
    ({"toml": STUDY.replace("[trial]", "[trail]")}, "trail"),
    ({"toml": STUDY.replace("trials = 7", 'files = ["../secret.py"]')}, "secret.py"),
    ({"toml": STUDY, "trials": 0}, "trials: must be a whole number from 1 to 100000"),
    ({"toml": STUDY, "parallel": -1}, "parallel: must be"),
    ({"toml": STUDY, "gpus": "0,x"}, '"0,x" is not a list of indices'),
    ({"toml": STUDY, "gpus": [-1]}, "gpus"),
    ({"toml": STUDY, "name": " "}, "name: must be a text"),
    ({"toml": STUDY, "name": "a\0b"}, "name: must be a text"),
    ({"toml": STUDY, "budget_usd": -1}, "budget_usd"),
    ({"toml": STUDY, "folder": "work"}, "not the whole path"),
    ({"toml": STUDY, "folder": "/tmp/../etc"}, "not the whole path"),
    ({"toml": STUDY, "folder": "/nowhere/at/all"}, "there is no folder"),
    ({"toml": STUDY, "folder": "/tmp\0"}, "not the whole path"),
    ({"toml": STUDY, "folder": "/" + "x" * 5000}, "there is no folder"),
    ({"toml": STUDY, "verbose": True}, "verbose"),
]


async def test_what_is_wrong_with_a_study_is_said(client: Client):
    for body, said in WRONG:
        reply = await client.ask("/api/v1/studies", "POST", data=body)
        assert (reply.status, said in reply.json["error"]["message"]) == (400, True), (body, reply.body)
    assert (await client.get("studies"))["studies"] == []


async def test_a_pool_that_is_not_there_is_missed(client: Client):
    reply = await client.ask("/api/v1/studies", "POST", data={"toml": STUDY, "pool": "../p"})
    assert reply.status == 404


async def test_more_trials_parallel_and_retry(home: Path, client: Client, tmp_path: Path):
    run = await made(client, tmp_path)
    assert (await client.post(f"studies/{run}/parallel", {"parallel": 5}))["parallel"] == 5
    reply = await client.ask(f"/api/v1/studies/{run}/add-trials", "POST", data={"trials": 3})
    assert (reply.status, "no controller drives it now" in reply.json["error"]["message"]) == (409, True)
    shown = await client.get(f"studies/{run}")
    assert (shown["wanted"], shown["parallel"]) == (10, 5)
    assert (await client.post(f"studies/{run}/retry-failed"))["tasks"] == []
    with closing(open_store(home)) as store:
        asked = [event.data for event in store.events.of_run(run) if event.type == "run.requested"]
    assert [one["verb"] for one in asked] == ["submit", "amend", "amend", "retry"]
    assert all(one["by"].startswith("token boss") for one in asked)
    assert (await client.ask(f"/api/v1/studies/{run}/add-trials", "POST", data={"trials": 0})).status == 400
    plain = await client.post("runs", {"tasks": [{"key": "a", "command": ["true"]}]}, 201)
    reply = await client.ask(f"/api/v1/studies/{plain['run']}/add-trials", "POST", data={"trials": 1})
    assert (reply.status, "is no study" in reply.json["error"]["message"]) == (400, True)


async def test_a_run_is_made_of_the_text_of_a_task_file(client: Client, tmp_path: Path):
    text = '[run]\nname = "typed"\n[[task]]\nkey = "a"\ncommand = ["true"]\n'
    answer = await client.post("runs", {"toml": text, "folder": str(tmp_path)}, 201)
    assert (answer["name"], answer["tasks"]) == ("typed", 1)
    reply = await client.ask("/api/v1/runs", "POST", data={"toml": text + "key = = 1", "folder": str(tmp_path)})
    assert (reply.status, "toml, line 6" in reply.json["error"]["message"]) == (400, True)
    for body in ({"toml": text, "tasks": []}, {}):
        assert (await client.ask("/api/v1/runs", "POST", data=body)).status == 400
    reply = await client.ask("/api/v1/runs", "POST", data={"toml": text, "folder": "../.."})
    assert (reply.status, "whole path" in reply.json["error"]["message"]) == (400, True)


async def test_the_benchmarks_of_the_form(client: Client):
    found = {row["name"]: row for row in (await client.get("benchmarks"))["benchmarks"]}
    assert {"desk", "miniwob", "waa"} <= set(found)
    assert found["desk"]["tasks"] > 10
    assert len(found["desk"]["domains"]) > 2
    assert "oracle" in found["desk"]["agents"]
    assert "oracle" not in found["waa"]["agents"], "it brings its own"


async def test_answer_times_are_kept_by_address(client: Client):
    await client.get("studies")
    await client.ask("/api/v1/studies/none")
    rows = {(row["method"], row["route"]): row for row in client.server.site.latency.rows()}
    assert rows["GET", "/api/v1/studies"]["count"] == 1
    one = rows["GET", "/api/v1/studies/{run}"]
    assert one["count"] == 1, "errors count, and names do not make new rows"
    assert 0 < one["sum_s"] < 10
    assert [count for _, count in one["buckets"]] == sorted(count for _, count in one["buckets"])
