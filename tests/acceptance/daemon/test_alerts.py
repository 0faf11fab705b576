"""Alerts by real causes, sent by a real server to a real receiver: each once, through a restart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.support.alert_receiver import Receiver, configured
from tests.support.fleet import Fleet, wait_for
from tests.support.web_server import Served, serve

from evalfleet.answers.alerts import Alert
from evalfleet.daemon.alerts import state
from evalfleet.store.open import open_store


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def sh(key: str, script: str) -> dict[str, Any]:
    return {"key": key, "command": ["sh", "-c", script]}


GATE = "until [ -e gate ]; do sleep 0.05; done"


def run(fleet: Fleet, tasks: list[dict[str, Any]], **settings: Any) -> str:
    return fleet.json("run", fleet.tasks(tasks, **settings), "--detach")["run"]


def completed(server: Served, run_id: str) -> bool:
    return server.get(f"runs/{run_id}")["state"] == "completed"


def listed(fleet: Fleet, run_id: str) -> list[Alert]:
    """What `evalfleet alerts` lists, without its start: for what is asked again and again."""
    with closing(open_store(fleet.home)) as store:
        return state.listed(store, run=run_id, state=None, limit=20, before=None)[0]


def all_delivered(fleet: Fleet, run_id: str) -> bool:
    return all(one.delivered for one in listed(fleet, run_id))


@pytest.mark.slow
def test_budget_failures_and_the_end_are_told_once_through_a_restart(fleet: Fleet, receiver: Receiver):
    configured(fleet, receiver)
    server = serve(fleet)
    spend = """echo '{"cost_usd": 0.9}' >> "$EVALFLEET_EVENTS"; """
    run_id = run(fleet, [sh("a", spend + GATE)], budget_usd=1.0)
    wait_for(lambda: len(receiver.of("budget")) == 2, "the alerts at 50 % and 80 %")
    # Whoever dies between sending and writing that down sends again, under the same id; that is another story.
    wait_for(lambda: all_delivered(fleet, run_id), "them to be kept as sent")
    server.kill()
    again = serve(fleet, port=server.port)
    (fleet.folder / "gate").touch()
    wait_for(lambda: completed(again, run_id), "the run to be completed")
    wait_for(lambda: receiver.of("finished"), "the notice of the end")
    told = fleet.json("alerts", run_id)["alerts"]
    wait_for(lambda: all_delivered(fleet, run_id), "all to be delivered")
    assert sorted((one["rule"], one["subject"]) for one in told if one["rule"] == "budget") == [
        ("budget", "50"),
        ("budget", "80"),
    ]
    ids = [message["id"] for message in receiver.messages]
    assert len(ids) == len(set(ids)), "nothing came twice"
    assert receiver.of("budget").count("fired") == 2
    assert receiver.of("finished") == ["fired"]
    assert all("run" in message["text"] for message in receiver.messages)
    kept = b"".join(path.read_bytes() for path in fleet.home.rglob("*") if path.is_file())
    assert b"very-secret-path" not in kept


@pytest.mark.slow
def test_no_progress_quarantine_and_failures_fire_and_resolve(fleet: Fleet, receiver: Receiver):
    configured(fleet, receiver, no_progress="2s", failure_rate=0.3)
    server = serve(fleet)
    failing = [sh(f"f{i}", "exit 1") for i in range(12)]
    run_id = run(fleet, [*failing, sh("slow", GATE)], workers=2, attempts=1, breaker=False, distribution="round-robin")
    wait_for(lambda: receiver.of("failure_rate"), "the failure rate to be told")
    server.post(f"runs/{run_id}/quarantine", {"worker": "local-2"})
    wait_for(lambda: receiver.of("quarantine") == ["fired"], "the quarantine to be told")
    server.post(f"runs/{run_id}/unquarantine", {"worker": "local-2"})
    wait_for(lambda: receiver.of("quarantine") == ["fired", "resolved"], "the end of the quarantine to be told")
    (fleet.folder / "gate").touch()
    wait_for(lambda: receiver.of("finished"), "the notice of the end")
    wait_for(lambda: receiver.of("failure_rate") == ["fired", "resolved"], "the end of the failure rate")
    assert not [one for one in server.get("alerts")["alerts"] if one["state"] == "firing"]


@pytest.mark.long
@pytest.mark.slow
def test_a_stuck_run_and_an_open_breaker(fleet: Fleet, receiver: Receiver):
    configured(fleet, receiver, no_progress="2s")
    server = serve(fleet)
    stuck = run(fleet, [sh("stuck", GATE)])
    wait_for(lambda: receiver.of("no_progress") == ["fired"], "the stuck run to be told")
    (fleet.folder / "gate").touch()
    wait_for(lambda: receiver.of("no_progress") == ["fired", "resolved"], "that it goes on")
    wait_for(lambda: completed(server, stuck), "the run to be completed")
    broken = """echo '{"error": "it does not answer", "error_kind": "service_failed"}' > "$EVALFLEET_RESULT"; exit 1"""
    run(fleet, [sh(f"b{i}", broken) for i in range(12)], workers=4, retry_base="1ms")
    wait_for(lambda: receiver.of("breaker"), "the open breaker to be told")
    wait_for(lambda: receiver.of("paused"), "the pause to be told")
    assert server.get("runs")["runs"][0]["problems"][0]["severity"] == "critical"


@pytest.mark.slow
def test_what_the_receiver_refuses_is_sent_again(fleet: Fleet, receiver: Receiver):
    configured(fleet, receiver)
    receiver.refuse = True
    serve(fleet)
    run(fleet, [sh("a", "true")])
    wait_for(lambda: receiver.refused, "the first try")
    receiver.refuse = False
    wait_for(lambda: receiver.of("finished") == ["fired"], "the second try")


def test_a_test_message_and_what_is_wrong_with_a_channel(fleet: Fleet, receiver: Receiver):
    assert fleet.command("alerts", "test").returncode == 2
    configured(fleet, receiver)
    assert fleet.json("alerts", "test")["channels"] == [{"channel": "webhook", "error": None, "ok": True}]
    assert receiver.messages[0]["rule"] == "test"
    done = fleet.command("alerts", "test", HOOK="http://127.0.0.1:1/very-secret-path")
    assert (done.returncode, "very-secret-path" in done.stdout + done.stderr) == (3, False)
    missing = fleet.command("alerts", "test", HOOK="")
    assert (missing.returncode, "HOOK" in missing.stdout) == (3, True)
    assert "20 rules" in fleet.command("alerts").stdout
    (fleet.folder / "evalfleet.toml").write_text('[alerts]\nwebhook = "https://hooks.example/secret"\n')
    wrong = fleet.command("alerts")
    assert (wrong.returncode, "name of a variable" in wrong.stderr) == (2, True)


@pytest.mark.long
@pytest.mark.slow
def test_apprise_is_sent_through_and_quiet_hours_are_kept(fleet: Fleet, receiver: Receiver):
    now = time.time()
    hours = [time.strftime("%H:%M", time.localtime(now + shift)) for shift in (-3600, 3600)]
    configured(fleet, receiver, notify=["JSON_URL"], quiet="-".join(hours), budget_shares=[1.0])
    fleet.env |= {"JSON_URL": f"json://127.0.0.1:{receiver.port}/other"}
    sent = fleet.json("alerts", "test")["channels"]
    assert [(one["channel"], one["ok"]) for one in sent] == [("webhook", True), ("JSON_URL", True)]
    assert "this is a test" in receiver.plain[0]["message"], "apprise's own form"
    serve(fleet)
    spend = """echo '{"cost_usd": 1.0}' >> "$EVALFLEET_EVENTS"; """
    run_id = run(fleet, [sh("a", spend + GATE)], budget_usd=1.0)
    wait_for(lambda: receiver.of("budget") == ["fired"], "what is critical to be told at night")
    wait_for(lambda: [one for one in receiver.plain if "budget" in one["title"]], "apprise to send it, too")
    (fleet.folder / "gate").touch()
    wait_for(lambda: [one for one in listed(fleet, run_id) if one.rule == "finished"], "the end")
    wait_for(lambda: receiver.of("budget") == ["fired", "resolved"], "the critical one to be over")
    assert receiver.of("finished") == [], "what is not critical waits for the morning"


def test_a_key_that_does_not_fit_is_noticed(fleet: Fleet, receiver: Receiver):
    configured(fleet, receiver)
    assert fleet.json("alerts", "test", code=3, HOOK_KEY="another key")["channels"][0]["error"] == "it answered 401"
    assert (receiver.forged, receiver.messages) == (1, [])


def tried_of(server: Served, run_id: str) -> list[dict[str, Any]]:
    return [server.get(f"runs/{run_id}/tasks/1/attempts/{number}") for number in (1, 2)]


STUCK_FIRST = """[ "${EVALFLEET_ATTEMPT##*.}" = 2 ] && exit 0; """ + GATE


@pytest.mark.long
@pytest.mark.slow
def test_rules_act_and_say_so(fleet: Fleet, receiver: Receiver):
    rules = {"slow_task": {"action": "retry_elsewhere", "severity": "critical"}, "budget": {"action": "pause"}}
    configured(fleet, receiver, slow_least="1s", budget_shares=[0.5], rules=rules)
    server = serve(fleet)
    first = run(fleet, [sh("same", "true")], name="tried")
    wait_for(lambda: completed(server, first), "how long it takes")
    second = run(fleet, [sh("same", STUCK_FIRST)], name="tried", workers=2)
    wait_for(lambda: completed(server, second), "the stuck task to be tried elsewhere")
    outcomes = [(one["outcome"], one["worker"], (one["failure"] or {}).get("kind")) for one in tried_of(server, second)]
    assert [outcome for outcome, *_ in outcomes] == ["infra_error", "ok"]
    assert outcomes[0][2] == "environment_failed"
    assert outcomes[0][1] != outcomes[1][1], "another worker"
    asked = [one["data"] for one in fleet.events(second) if one["type"] == "run.requested"]
    assert [(one["verb"], one["by"]) for one in asked] == [("withdraw", "alert slow_task")]
    assert [one["data"]["step"] for one in fleet.events(second) if one["type"] == "alert.acted"] == ["withdraw"]
    assert "withdrawn: alert slow_task" in fleet.command("events", second, "--type", "attempt.finished").stdout
    assert fleet.command("judge", second).returncode == 0, "judged again, it stays so"
    assert tried_of(server, second)[0]["failure"]["kind"] == "environment_failed"
    assert [one["severity"] for one in receiver.messages if one["rule"] == "slow_task"] == ["critical"] * 2

    spend = """echo '{"cost_usd": 0.9}' >> "$EVALFLEET_EVENTS"; """
    third = run(fleet, [sh("a", spend + GATE), sh("b", "true")], budget_usd=1.0, workers=1)
    wait_for(lambda: [one for one in fleet.events(third) if one["type"] == "alert.acted"], "the run to be paused")
    (fleet.folder / "gate").touch()
    wait_for(lambda: server.get(f"runs/{third}")["state"] == "paused", "its live task to end")
    assert "alert budget" in str(server.get(f"runs/{third}")["reason"])
