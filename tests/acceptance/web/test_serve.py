"""`evalfleet serve` as a process: it drives queued runs, tells all of them live, and survives being killed."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from typing import Any

import pytest
from tests.support.fleet import Fleet, wait_for
from tests.support.web_server import Listener, Served, serve

from evalfleet.model import TaskState
from evalfleet.store.open import open_store

GATED = "echo $EVALFLEET_ATTEMPT >> ledger; until [ -e gate ]; do sleep 0.05; done"
STEPPING = 'i=0; while [ $i -lt 15 ]; do i=$((i+1)); echo "{\\"step\\": $i}" >> "$EVALFLEET_EVENTS"; sleep 0.05; done; echo done >> ledger'


def gated(*keys: str) -> list[dict[str, Any]]:
    return [{"key": key, "command": ["sh", "-c", GATED]} for key in keys]


def state(server: Served, run: str = "latest") -> str:
    return server.get(f"runs/{run}")["state"]


def submit(fleet: Fleet, tasks: list[dict[str, Any]], **run: Any) -> str:
    return fleet.json("run", fleet.tasks(tasks, **run), "--detach")["run"]


def test_a_queued_run_is_driven_and_told_live(fleet: Fleet):
    server = serve(fleet)
    listener = Listener(server, "?after=0")
    run = submit(fleet, [{"key": f"t{i}", "command": ["sh", "-c", STEPPING]} for i in range(4)], workers=2)
    wait_for(lambda: state(server, run) == "completed", "the run to be completed")
    wait_for(lambda: any(e["type"] == "run.left" and e["run"] == run for e in listener.events), "the last event")
    stored = fleet.events(run)
    assert [e for e in listener.events if e["run"] == run][: len(stored)] == stored
    assert listener.numbers == sorted(set(listener.numbers))
    shown, told = server.get(f"runs/{run}"), fleet.json("report", run)
    assert {name: shown[name] for name in ("scores", "tasks", "failures")} == {
        name: told[name] for name in ("scores", "tasks", "failures")
    }
    assert len(server.get(f"runs/{run}/lanes")["lanes"]) == 2
    assert server.get("runs")["runs"][0]["run"] == run
    listener.close()


@pytest.mark.slow
def test_the_next_server_replaces_a_controller_that_outlived_the_first(fleet: Fleet):
    server = serve(fleet)
    run = submit(fleet, [{"key": f"t{i}", "command": ["sh", "-c", STEPPING]} for i in range(4)], workers=1)
    wait_for(fleet.lines, "the run to be under way")
    server.kill()
    again = serve(fleet, port=server.port)
    wait_for(lambda: again.get(f"runs/{run}")["driven"], "the controller, which outlives the server")
    (controller,) = fleet.controllers()
    wait_for(lambda: len(fleet.lines()) > 1, "more of the run")
    os.kill(controller, signal.SIGKILL)
    wait_for(lambda: state(again, run) == "completed", "the run to be completed")
    assert fleet.json("report", run)["attempts"]["total"] == 4


@pytest.mark.slow
def test_a_killed_server_loses_no_event_and_no_run(fleet: Fleet):
    server = serve(fleet)
    run = submit(fleet, [{"key": f"t{i}", "command": ["sh", "-c", STEPPING]} for i in range(6)], workers=2)
    listener = Listener(server, "?after=0")
    wait_for(lambda: len(listener.events) > 15, "the run to be under way")
    server.kill()
    listener.close()
    with closing(open_store(fleet.home)) as store:
        wait_for(lambda: store.tasks.counts(run)[TaskState.DONE] > 2, "the controller, which outlives the server")
    again = serve(fleet, port=server.port)
    second = Listener(again, last=listener.last)
    wait_for(lambda: state(again, run) == "completed", "the run to be completed")
    wait_for(lambda: any(e["type"] == "run.left" and e["run"] == run for e in second.events), "the last event")
    seen = listener.numbers + second.numbers
    assert seen == list(range(1, seen[-1] + 1)), "none is missing, none came twice"
    assert len(fleet.lines()) == 6
    assert fleet.json("report", run)["attempts"]["total"] == 6
    second.close()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "systemd"])
def test_a_server_that_is_stopped_leaves_tasks_running_and_the_next_goes_on(fleet: Fleet, stop: signal.Signals):
    server = serve(fleet)
    run = submit(fleet, gated("a", "b", "c"), workers=2)
    wait_for(lambda: len(fleet.lines()) == 2, "two tasks to start")
    server.process.send_signal(stop)  # to the server alone, as systemd does with KillMode=process
    assert server.process.wait(30) == 130
    status = fleet.json("status", run)
    assert (status["state"], status["driven"], status["tasks"]["running"]) == ("running", False, 2)
    (fleet.folder / "gate").touch()
    again = serve(fleet)
    wait_for(lambda: state(again, run) == "completed", "the run to be completed")
    assert len(fleet.lines()) == 3, "the two that ran were found again"


def test_what_an_operator_does_is_done_and_told_with_a_name(fleet: Fleet):
    server = serve(fleet)
    run = submit(fleet, gated("a", "b", "c", "d"), workers=1)
    wait_for(fleet.lines, "the first task to start")
    assert server.post(f"runs/{run}/hold", {"keys": ["d"]})["tasks"] == ["d"]
    assert server.post(f"runs/{run}/pause", {"reason": "lunch"})["pausing"] == 1
    (fleet.folder / "gate").touch()
    wait_for(lambda: state(server, run) == "paused", "the run to be paused")
    shown = server.get(f"runs/{run}")
    assert (shown["reason"]["cause"], shown["tasks"]["done"]) == ("operator", 1)
    assert "lunch" in shown["reason"]["message"]
    wait_for(lambda: not server.get(f"runs/{run}")["driven"], "its controller to leave")
    assert server.post(f"runs/{run}/resume", {"workers": 2})["by"] == "this server"
    wait_for(lambda: state(server, run) == "completed", "the run to be completed")
    assert server.post(f"runs/{run}/retry", {"only": ["held"]})["tasks"] == ["d"]
    wait_for(lambda: server.get(f"runs/{run}")["tasks"]["done"] == 4, "the held task to be run")
    told = fleet.events(run)
    asked = [(e["data"]["verb"], e["data"]["by"]) for e in told if e["type"] == "run.requested"]
    assert [verb for verb, _ in asked] == ["hold", "pause", "resume", "retry"]
    assert all(by.startswith("token serve (") for _, by in asked)
    assert [e["data"]["workers"] for e in told if e["type"] == "run.amended"] == [2]


def test_a_run_is_made_widened_and_cancelled_over_http(fleet: Fleet):
    server = serve(fleet)
    document = {"tasks": gated("a", "b", "c"), "run": {"name": "made"}, "workers": 1, "folder": str(fleet.folder)}
    made = server.post("runs", document, status=201)
    assert (made["name"], made["state"], made["tasks"]) == ("made", "queued", 3)
    wait_for(lambda: len(fleet.lines()) == 1, "the first task to start")
    assert server.post(f"runs/{made['run']}/amend", {"workers": 3})["workers"] == 3
    wait_for(lambda: len(fleet.lines()) == 3, "two more tasks to start")
    server.post(f"runs/{made['run']}/cancel")
    wait_for(lambda: state(server, made["run"]) == "cancelled", "the run to be cancelled")
    assert not fleet.left_processes() or not [line for line in fleet.left_processes() if "gate" in line]
    again = server.ask(f"/api/v1/runs/{made['run']}/cancel", "POST")
    assert (again.status, "cancelled already" in again.json["error"]["message"]) == (409, True)


def test_a_quarantined_worker_gets_no_more_work(fleet: Fleet):
    server = serve(fleet)
    run = submit(fleet, gated("a", "b", "c", "d"), workers=2)
    wait_for(lambda: len(fleet.lines()) == 2, "two tasks to start")
    assert server.post(f"runs/{run}/quarantine", {"worker": "local-2"})["workers"] == ["local-2"]
    (fleet.folder / "gate").touch()
    wait_for(lambda: state(server, run) == "completed", "the run to be completed")
    by_worker = {lane["worker"]: len(lane["bars"]) for lane in server.get(f"runs/{run}/lanes")["lanes"]}
    assert by_worker == {"local-1": 3, "local-2": 1}


def test_a_run_with_its_page_beside_it(fleet: Fleet):
    controller = fleet.start("run", fleet.tasks(gated("a")), "--serve")
    assert controller.stdout is not None
    address = next(line for line in controller.stdout if line.startswith("page: ")).split()[1]
    base, _, token = address.partition("?token=")
    server = Served(controller, int(base.rsplit(":", 1)[1].strip("/")), token)
    wait_for(fleet.lines, "the task to start")
    assert server.get("me")["drives"] is False
    assert server.get("runs/latest")["workers"][0]["task"] == "a"
    (fleet.folder / "gate").touch()
    assert controller.wait(30) == 0
    with pytest.raises(OSError, match="refused"):
        server.get("me")


def test_other_addresses_need_tokens_and_tls(fleet: Fleet):
    refused = fleet.command("serve", "--host", "0.0.0.0", "--port", "0")
    assert (refused.returncode, "token new" in refused.stderr) == (2, True)
    made = fleet.json("token", "new", "boss", "--role", "operator")
    refused = fleet.command("serve", "--host", "0.0.0.0", "--port", "0")
    assert (refused.returncode, "--tls-cert" in refused.stderr) == (2, True)
    refused = fleet.command("serve", "--host", "0.0.0.0", "--port", "0", "--no-token", "--behind-proxy")
    assert refused.returncode == 2
    server = serve(fleet, "--host", "0.0.0.0", "--behind-proxy", "--allow-host", "fleet.example")
    assert server.token == "", "no token is made that nobody asked for"
    assert server.ask("/api/v1/me", token=made["token"], Host="fleet.example").json["name"] == "boss"
    assert server.ask("/api/v1/me", token=made["token"], Host="evil.example").status == 421


def test_tokens_are_kept_as_digests_and_can_be_revoked(fleet: Fleet):
    server = serve(fleet)
    made = fleet.json("token", "new", "look", "--role", "reader")
    assert server.ask("/api/v1/me", token=made["token"]).json["role"] == "reader"
    assert server.ask("/api/v1/runs", "POST", {"tasks": gated("a")}, token=made["token"]).status == 403
    rows = fleet.json("token", "list")["tokens"]
    assert [(row["name"], row["role"]) for row in rows] == [("serve", "admin"), ("look", "reader")]
    kept = b"".join(path.read_bytes() for path in fleet.home.rglob("*") if path.is_file())
    assert made["token"].encode() not in kept
    assert server.token.encode() not in kept
    assert json.dumps(rows).count("ef_") == 0
    fleet.command("token", "revoke", "look")
    wait_for(lambda: server.ask("/api/v1/me", token=made["token"]).status == 401, "the token to be worthless")
