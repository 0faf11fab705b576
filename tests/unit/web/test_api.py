"""What the API tells, over real HTTP, of runs that stand in the store."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.store import cases
from tests.support.web_client import Client, serving

from evalfleet.daemon.readers import Answer
from evalfleet.layout import Home
from evalfleet.model import Policy, TaskState
from evalfleet.store.database.file_lock import FileLock
from evalfleet.store.open import open_store
from evalfleet.store.reader import StoreReader

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 30


@pytest.fixture
def run(home: Path) -> str:
    """Twelve tasks: 6 with a verdict, 2 failed, 1 held, 1 running, 2 waiting."""
    with closing(open_store(home)) as store:
        found = cases.drive(store, 12, Policy(workers=3, attempts=1, budget_usd=100.0))
        for number in range(1, 7):
            attempt = cases.claimed(store, found, number).attempt
            cases.finished(store, found, cases.with_verdict(attempt, score=1.0 if number % 2 else 0.0))
        for number in (7, 8):
            attempt = cases.claimed(store, found, number).attempt
            cases.finished(store, found, cases.with_failure(attempt, TaskState.FAILED))
        store.tasks.hold(found, ["task_9"], "look")
        cases.claimed(store, found, 10)
    return found.id


@pytest.fixture
async def client(home: Path) -> AsyncGenerator[Client]:
    async with serving(home) as client:
        yield client


async def test_the_runs_with_their_problems(run: str, client: Client):
    (row,) = (await client.get("runs"))["runs"]
    assert (row["run"], row["tasks"]["done"], row["tasks"]["failed"], row["budget_usd"]) == (run, 6, 2, 100.0)
    assert row["scores"]["valid"] == pytest.approx(3 / 8)
    texts = [problem["text"] for problem in row["problems"]]
    assert texts[0].startswith("no controller drives it"), "what is worst stands first"
    assert "2 tasks failed" in texts
    assert (await client.get("runs?state=completed"))["runs"] == []
    assert len((await client.get("runs?state=completed&state=running&search=a%20r"))["runs"]) == 1
    assert (await client.get("runs?search=%25"))["runs"] == [], "no pattern of SQL"


async def test_runs_come_in_pages(home: Path, client: Client):
    with closing(open_store(home)) as store:
        made = [cases.submit(store).id for _ in range(25)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = await client.get(f"runs?limit=10{cursor}")
        seen += [row["run"] for row in page["runs"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen == made[::-1]


async def test_tasks_by_state_key_and_page(run: str, client: Client):
    page = await client.get(f"runs/{run}/tasks?limit=5")
    assert [task["number"] for task in page["tasks"]] == [1, 2, 3, 4, 5]
    rest = await client.get(f"runs/{run}/tasks?limit=100&cursor={page['next']}")
    assert ([task["number"] for task in rest["tasks"]][-1], rest["next"]) == (12, None)
    failed = (await client.get(f"runs/{run}/tasks?state=failed"))["tasks"]
    assert [(task["key"], task["failure"]["kind"]) for task in failed] == [
        ("task_7", "bad_exit"),
        ("task_8", "bad_exit"),
    ]
    assert len((await client.get(f"runs/{run}/tasks?key=task_1"))["tasks"]) == 1
    assert len((await client.get(f"runs/{run}/tasks?search=task_1"))["tasks"]) == 4
    grid = await client.get(f"runs/{run}/grid")
    assert {len(column) for column in grid.values()} == {12}
    assert grid["success"][:2] == [True, False]


async def test_a_run_before_its_first_end_has_an_empty_series(home: Path, client: Client):
    with closing(open_store(home)) as store:
        fresh = cases.submit(store, 2)
    found = await client.get(f"runs/{fresh.id}/series")
    assert found["at"] == found["valid"] == found["cost_usd"] == []


async def test_lanes_series_failures_and_queue(run: str, client: Client):
    (lane,) = (await client.get(f"runs/{run}/lanes"))["lanes"]
    looks = [bar[4] for bar in lane["bars"]]
    assert (lane["worker"], looks.count("pass"), looks.count("wrong"), looks.count("own"), looks.count("live")) == (
        "w1",
        3,
        3,
        2,
        1,
    )
    series = await client.get(f"runs/{run}/series")
    assert (series["decided"][-1], series["done"][-1], series["cost_usd"][-1]) == (8, 6, 4.0)
    assert series["waste_usd"][-1] == 1.0
    failures = await client.get(f"runs/{run}/failures?limit=1")
    assert (failures["kinds"][0]["attempts"], len(failures["attempts"])) == (2, 1)
    following = await client.get(f"runs/{run}/failures?limit=1&cursor={failures['next']}")
    assert following["attempts"] != failures["attempts"]
    assert (await client.get(f"runs/{run}/failures?kind=timeout"))["attempts"] == []
    queue = await client.get(f"runs/{run}/queue")
    assert ([task["key"] for task in queue["due"]], queue["waiting"]) == (["task_11", "task_12"], 2)


async def test_events_forward_backward_and_chosen(run: str, client: Client):
    first = await client.get(f"runs/{run}/events?limit=3")
    assert [event["type"] for event in first["events"]] == ["run.submitted", "run.taken", "run.started"]
    after = await client.get(f"runs/{run}/events?limit=1&cursor={first['next']}")
    assert after["events"][0]["number"] == first["events"][-1]["number"] + 1
    back = await client.get(f"runs/{run}/events?order=desc&limit=2")
    older = await client.get(f"runs/{run}/events?order=desc&limit=1&cursor={back['next']}")
    assert older["events"][0]["number"] == back["events"][-1]["number"] - 1
    chosen = (await client.get(f"runs/{run}/events?type=task.*&task=task_7"))["events"]
    assert [event["type"] for event in chosen] == ["task.failed"]


async def test_a_task_an_attempt_and_its_files(run: str, home: Path, client: Client):
    folder = Home(home).attempt(run, "task_1", 1)
    (folder / "artifacts").mkdir(parents=True)
    (folder / "stdout.log").write_bytes(b"hello \xff world\n")
    (folder / "artifacts" / "s1.png").write_bytes(PNG)
    (folder / "artifacts" / "trajectory.jsonl").write_text(
        '{"goal": "click it"}\n{"step": 1, "screenshot": "s1.png", "action": {"do": "click"}, "tokens": 5}\n{"score": 1.0}\n'
    )
    task = await client.get(f"runs/{run}/tasks/1")
    assert (task["instruction"], task["spec"]["command"], len(task["attempt_list"])) == ("click it", ["true"], 1)
    attempt = await client.get(f"runs/{run}/tasks/1/attempts/1")
    assert [frame["picture"] for frame in attempt["film"]["frames"]] == ["s1.png", None]
    assert {file["path"] for file in attempt["artifacts"]} == {"s1.png", "trajectory.jsonl"}
    assert (attempt["logs"], attempt["desktop"]) == ({"stdout": 14, "stderr": 0}, {"vnc": False, "screenshot": True})
    picture = await client.ask(f"/api/v1/runs/{run}/tasks/1/attempts/1/files/s1.png")
    assert (picture.body, picture.headers["Content-Type"]) == (PNG, "image/png")
    log = await client.get(f"runs/{run}/tasks/1/attempts/1/logs/stdout?offset=6&limit=3")
    assert (log["text"], log["next"], log["size"]) == ("\ufffd w", 9, 14)
    assert (await client.get(f"runs/{run}/tasks/1/attempts/1/logs/stdout?tail=6"))["text"] == "world\n"
    for missing in ("tasks/99", "tasks/1/attempts/2", "tasks/2/attempts/1/screenshot"):
        assert (await client.ask(f"/api/v1/runs/{run}/{missing}")).status == 404


async def test_an_answer_is_shared_until_something_happens(run: str, home: Path):
    now = time.monotonic()
    computed: list[Hashable] = []
    with closing(FileLock(home / "locks" / "alerts.lock")) as lock:
        assert lock.acquire(
            0.0
        )  # the watch for alerts is another server's: its events, too, are something that happens
        async with serving(home) as client:
            readers = client.server.site.readers
            readers._clock = lambda: now  # pyright: ignore[reportPrivateUsage]
            real = readers.answer

            async def counted(key: Hashable, function: Callable[[StoreReader], Any]) -> Answer:
                return await real(key, lambda store: (computed.append(key), function(store))[1])

            readers.answer = counted  # pyright: ignore[reportAttributeAccessIssue]
            first = await client.ask(f"/api/v1/runs/{run}/grid")
            assert (await client.ask(f"/api/v1/runs/{run}/grid")).body == first.body
            assert computed == [("grid", run)]
            with closing(open_store(home)) as store:
                found = store.runs.take(run, "other")
                store.tasks.retry(found, ["task_7"], [TaskState.FAILED])
                number = store.events.last_number()
            readers.happened(number)
            again = await client.ask(f"/api/v1/runs/{run}/grid")
            assert again.json["state"][6] == "queued"
            assert int(again.headers["X-Evalfleet-Event"]) >= number
            assert computed == [("grid", run)] * 2


async def test_wrong_questions_are_explained(run: str, client: Client):
    for path, word in (
        ("runs?limit=0", "limit"),
        ("runs?limit=x", "limit"),
        ("runs?cursor=abc", "cursor"),
        ("runs?state=odd", "state"),
        (f"runs/{run}/events?order=up", "order"),
        (f"runs/{run}/lanes?after_at=nan", "after_at"),
        ("compare?a=x", "`b`"),
        (f"compare?a={run}&b={run}", "different"),
    ):
        reply = await client.ask(f"/api/v1/{path}")
        assert reply.status == 400, path
        assert word in reply.json["error"]["message"], reply.json
    assert (await client.ask("/api/v1/runs/nope")).status == 404
    wrong = await client.ask("/api/v1/runs", "POST", data={"tasks": [{"key": "a"}]})
    assert (wrong.status, "command" in wrong.json["error"]["message"]) == (400, True)
    odd = await client.ask(f"/api/v1/runs/{run}/amend", "POST", data={"workers": 2, "colour": "red"})
    assert (odd.status, "colour" in odd.json["error"]["message"]) == (400, True)


async def test_a_server_that_drives_nothing_says_so(run: str, client: Client):
    refused = await client.ask(f"/api/v1/runs/{run}/resume", "POST")
    assert (refused.status, "evalfleet serve" in refused.json["error"]["message"]) == (409, True)


async def test_metrics_are_what_prometheus_reads(run: str, client: Client):
    text = (await client.ask("/metrics")).body.decode()
    assert f'evalfleet_run_tasks{{run="{run}",state="done"}} 6' in text
    assert f'evalfleet_run_cost_usd{{run="{run}"}} 4' in text
    assert 'evalfleet_runs{state="running"} 1' in text
    parser = pytest.importorskip("prometheus_client.parser")
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert families["evalfleet_run_failures"].samples[0].labels == {"run": run, "kind": "bad_exit", "blame": "task"}
    assert (await client.ask("/healthz", token=None)).json == {"status": "ok"}
