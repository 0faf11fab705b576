"""Every built-in rule: fired by a real cause, received by a real HTTP server once, and not again after the watcher was killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from examples.fake_waa.arena import arena
from tests.support import sshd
from tests.support.alert_receiver import Receiver, configured
from tests.support.fleet import Fleet, wait_for
from tests.support.rented import rented
from tests.support.web_server import Served, serve
from tests.support.wheelhouse import base_python, wheelhouse

from evalfleet.core.alerts.rules import RULES

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(400)]

GATE = "until [ -e gate ]; do sleep 0.05; done"
SPEND = """echo '{"cost_usd": 1.5}' >> "$EVALFLEET_EVENTS"; """
READY = """echo '{"ready": true}' >> "$EVALFLEET_EVENTS"; """
BROKEN = """echo '{"error": "no answer", "error_kind": "service_failed"}' > "$EVALFLEET_RESULT"; exit 1"""
STEPS = """for n in 1 2 3 4 5 6 7; do echo '{"step": '$n'}' >> "$EVALFLEET_EVENTS"; sleep 0.4; done; """
ONCE = """[ "${EVALFLEET_ATTEMPT##*.}" = 2 ] || exit 1"""
BURN = f"(while :; do :; done) & (while :; do :; done) & {GATE}; kill %1 %2"
SHORT: dict[str, Any] = {
    "no_progress": "4s",
    "stall_least": "3s",
    "undriven": "2s",
    "slow_least": "2s",
    "load": 0.2,
    "load_for": "4s",
    "idle": "1s",
    "pull": "2s",
    "reap": "2s",
}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def sh(key: str, script: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "command": ["sh", "-c", script], **more}


def submit(fleet: Fleet, name: str, tasks: list[dict[str, Any]], **settings: Any) -> str:
    path = fleet.tasks(tasks, name=f"{name}.jsonl", **{"breaker": False, "retry_base": "1ms", **settings})
    return fleet.json("run", path, "--detach", "--name", name)["run"]


# By rule, what makes it fire: a run, or something that is done to one.


def no_progress(fleet: Fleet, _server: Served) -> None:
    submit(fleet, "steps", [sh("stuck", STEPS + GATE)])


def undriven(fleet: Fleet, _server: Served) -> None:
    path = fleet.tasks([sh("alone", GATE)], name="alone.jsonl")
    process = fleet.start("run", path, "--name", "alone")
    wait_for(lambda: any(event["type"] == "attempt.started" for event in fleet.events("alone")), "its task to run")
    process.kill()
    process.wait()


def paused_and_budget(fleet: Fleet, _server: Served) -> None:
    submit(fleet, "spent", [sh(f"s{n}", SPEND) for n in range(3)], budget_usd=1.0, workers=1)


def breaker(fleet: Fleet, _server: Served) -> None:
    submit(fleet, "broken", [sh(f"b{n}", BROKEN) for n in range(12)], workers=4, breaker=True)


def quarantine(fleet: Fleet, server: Served) -> None:
    run_id = submit(fleet, "barred", [sh("q", GATE)])
    server.post(f"runs/{run_id}/quarantine", {"worker": "local-2"})


def failure_rate(fleet: Fleet, _server: Served) -> None:
    submit(fleet, "failing", [*(sh(f"f{n}", "exit 1") for n in range(12)), sh("last", GATE)], attempts=1, workers=2)


def retry_rate(fleet: Fleet, _server: Served) -> None:
    tasks = [*(sh(f"r{n}", ONCE) for n in range(22)), sh("last", GATE)]
    submit(fleet, "again", tasks, attempts=3, workers=4)


def slow_task(fleet: Fleet, server: Served) -> None:
    quick = submit(fleet, "slow", [sh("same", "true")])
    wait_for(lambda: server.get(f"runs/{quick}")["state"] == "completed", "how long it takes")
    submit(fleet, "slow", [sh("same", GATE)])  # by the same name, so that the first is its history


def not_started(fleet: Fleet, _server: Served) -> None:
    tasks = [sh("mute", GATE, start_timeout="1s"), sh("well", READY + GATE, start_timeout="30s")]
    submit(fleet, "starts", tasks, attempts=1, workers=2)


def overload(fleet: Fleet, _server: Served) -> None:
    submit(fleet, "burning", [sh("burn", BURN)])


def disk_full(fleet: Fleet, _server: Served) -> None:
    path = fleet.tasks([sh("no_room", "true")], name="no_room.jsonl")
    fleet.start("run", path, "--name", "no_room", EVALFLEET_DISK_KEEP_FREE_GB="1000000")


def idle_pool(fleet: Fleet, _server: Served) -> None:
    (fleet.folder / "hosts.toml").write_text(
        '[[host]]\nname = "idler"\naddress = "127.0.0.1"\nuser = "x"\nprice_usd_per_hour = 2.5\n'
    )
    done = fleet.command("pool", "create", "idle", "--backend", "ssh", "--hosts", "hosts.toml")
    assert done.returncode == 0, done.stderr


def finished(fleet: Fleet, _server: Served) -> None:
    submit(fleet, "done", [sh("d", "true")])


CAUSES: dict[tuple[str, ...], Callable[[Fleet, Served], None]] = {
    ("no_progress",): no_progress,
    ("undriven",): undriven,
    ("budget", "paused"): paused_and_budget,
    ("breaker",): breaker,
    ("quarantine",): quarantine,
    ("failure_rate",): failure_rate,
    ("retry_rate",): retry_rate,
    ("slow_task",): slow_task,
    ("not_started",): not_started,
    ("overload",): overload,
    ("disk_full",): disk_full,
    ("idle_pool",): idle_pool,
    ("finished",): finished,
}
# Tests of their own: below, in faults/test_tiers.py and in runs/test_files_elsewhere.py.
ELSEWHERE = {"worker_lost", "image_pull", "orphans", "pool_budget", "tier", "files"}


def test_every_rule_has_a_cause():
    assert {rule for rules in CAUSES for rule in rules} | ELSEWHERE == {rule.name for rule in RULES}


def kept_as_sent(fleet: Fleet) -> bool:
    """Whoever dies between sending and writing that down sends again, under the same id; that is another story."""
    return all(
        {sent["what"] for sent in one["delivered"]} >= {"fired"} for one in fleet.json("alerts", "-n", "999")["alerts"]
    )


def fired(receiver: Receiver, rules: set[str]) -> Counter[tuple[str, str, str | None]]:
    """How often each of these rules was told, by what it is about; what was over in between may come again."""
    found = [one for one in receiver.messages if one["rule"] in rules]
    ids = Counter((one["id"], one["what"]) for one in found)
    assert set(ids.values()) == {1}, "no message came twice"
    told = Counter((one["rule"], one["subject"], one["run"]) for one in found if one["what"] == "fired")
    over = Counter((one["rule"], one["subject"], one["run"]) for one in found if one["what"] == "resolved")
    return Counter({about: 1 + max(0, count - 1 - over[about]) for about, count in told.items()})


def told_once_through_a_restart(fleet: Fleet, receiver: Receiver, server: Served, rules: set[str]) -> Served:
    """Kill the server that told, start another, and see it look and tell something new, and nothing again."""
    wait_for(lambda: kept_as_sent(fleet), "all that was told to be kept")
    before = fired(receiver, rules)
    assert set(before.values()) == {1}, "each was told once"
    server.kill()
    again = serve(fleet, "--runs", "20", port=server.port)
    sentinel = submit(fleet, f"sentinel-{uuid.uuid4().hex[:6]}", [sh("s", "true")])
    wait_for(lambda: receiver.of("finished", sentinel) == ["fired"], "the new server to look and to tell")
    assert {key: fired(receiver, rules)[key] for key in before} == before, "and not again"
    assert receiver.twice() == [], "nothing was delivered twice"
    return again


def test_local_causes(fleet: Fleet, receiver: Receiver):
    configured(fleet, receiver, **SHORT)
    server = serve(fleet, "--runs", "20")
    begun = time.monotonic()
    for cause in CAUSES.values():
        cause(fleet, server)
    rules = {rule for several in CAUSES for rule in several}
    for rule in sorted(rules):
        wait_for(lambda rule=rule: "fired" in receiver.of(rule), f"{rule} to fire", 90)
    print(f"all fired {time.monotonic() - begun:.0f} s after the first cause")
    told_once_through_a_restart(fleet, receiver, server, rules)
    (fleet.folder / "gate").touch()
    for rule in ("quarantine", "not_started", "retry_rate", "slow_task"):
        wait_for(lambda rule=rule: receiver.of(rule) == ["fired", "resolved"], f"{rule} to be over with its run")
    assert receiver.twice() == []


def test_a_lost_host(fleet: Fleet, receiver: Receiver, tmp_path: Path):
    configured(fleet, receiver, more='[lease]\nduration = "2s"\ngive_up = "2s"')
    with sshd.host(tmp_path, "box") as box:
        (fleet.folder / "hosts.toml").write_text(sshd.hosts_file([box]))
        assert fleet.command("pool", "create", "lab", "--backend", "ssh", "--hosts", "hosts.toml").returncode == 0
        server = serve(fleet)
        path = fleet.tasks([sh("far", "sleep 600")], breaker=False)
        run_id = fleet.json("run", path, "--detach", "--pool", "lab")["run"]
        wait_for(lambda: any(one["type"] == "attempt.started" for one in fleet.events(run_id)), "its task to run")
        series = wait_for(lambda: server.get(f"runs/{run_id}/workers/series?host=box")["hosts"][0]["at"], "its load")
        assert series == sorted(series)
        info = box.runner()
        box.stop()
        wait_for(lambda: receiver.of("worker_lost") == ["fired"], "the loss to be told", 120)
        told_once_through_a_restart(fleet, receiver, server, {"worker_lost"})
        if info is not None:
            os.kill(info.pid, signal.SIGTERM)


def test_a_pull_that_does_not_end(fleet: Fleet, receiver: Receiver, tmp_path: Path):
    sshd.require()
    wheels = wheelhouse(tmp_path / "wheels", "miniwob")
    mirror = f"PIP_NO_INDEX=1 PIP_FIND_LINKS={wheels} PIP_CONFIG_FILE=/dev/null"
    name = f"waa-{uuid.uuid4().hex[:8]}"
    place = tmp_path / "hosts" / "box"
    box = sshd.Sshd(place, "box", f"SetEnv HOME={place / 'home'} XDG_RUNTIME_DIR=/nowhere {mirror}")
    try:
        with arena(tmp_path / "arena", (name,)) as made:
            table = made.config(timeout="60s", stall="8s", guest_timeout="30s", disk_gb=0, pull_timeout="60s")
            configured(fleet, receiver, more=table, pull="3s")
            (fleet.folder / "hosts.toml").write_text(sshd.hosts_file([box], python=str(base_python())))
            assert fleet.command("pool", "create", "lab", "--backend", "ssh", "--hosts", "hosts.toml").returncode == 0
            made.end(name)
            made.lose_image("hang")
            server = serve(fleet, OPENAI_API_KEY="sk-hidden")
            run = ("run", "waa", "--agent", "navi", "--model", "gpt-4o", "--pool", "lab", "--domain", "notepad")
            done = fleet.command(*run, "--detach", "--json", OPENAI_API_KEY="sk-hidden")
            assert done.returncode == 0, done.stderr
            wait_for(lambda: receiver.of("image_pull") == ["fired"], "the long pull to be told", 200)
            told_once_through_a_restart(fleet, receiver, server, {"image_pull"})
            assert fleet.command("cancel", "latest").returncode in (0, 3)
    finally:
        box.close()


def test_a_pool_that_spends_its_budget(tmp_path: Path, receiver: Receiver):
    with rented(tmp_path, 100) as here:
        configured(here.fleet, receiver, **{**SHORT, "off": ["idle_pool", "breaker"]})
        here.create("--workers", "1", "--budget", "0.2")
        server = serve(here.fleet)
        wait_for(lambda: receiver.of("pool_budget") == ["fired", "fired"], "both shares to be told")
        told = [(one["subject"], one["severity"]) for one in receiver.messages if one["rule"] == "pool_budget"]
        assert told == [("80", "warning"), ("100", "critical")]
        told_once_through_a_restart(here.fleet, receiver, server, {"pool_budget"})
        here.delete()


def test_what_a_reaper_finds(tmp_path: Path, receiver: Receiver):
    with rented(tmp_path, 100) as here:
        fleet = here.fleet
        here.create("--workers", "1")
        with closing(sqlite3.connect(fleet.home / "evalfleet.db")) as books, books:
            books.execute("delete from host")
            books.execute("delete from pool")  # nobody knows of that machine any more
        configured(fleet, receiver, **SHORT)
        server = serve(fleet, "--runs", "20")
        wait_for(lambda: fleet.json("alerts")["rules"], "the server to watch")
        assert fleet.json("reap")["left"] == 0
        wait_for(lambda: receiver.of("orphans") == ["fired"], "the orphans to be told")
        assert "gone now" in receiver.messages[-1]["message"]
        told_once_through_a_restart(fleet, receiver, server, {"orphans"})
        assert here.is_empty(), here.leaks()
