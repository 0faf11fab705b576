"""Alerts of a home without a page, and beside one: every live controller can send them, and each is sent once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.alert_receiver import Receiver, configured
from tests.support.fleet import Fleet, wait_for
from tests.support.web_server import serve

from evalfleet.answers.alerts import Alert
from evalfleet.daemon.alerts import state
from evalfleet.store.open import open_store

GATE = "until [ -e gate ]; do sleep 0.05; done"
SPEND = """echo '{"cost_usd": 0.9}' >> "$EVALFLEET_EVENTS"; """


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def sh(key: str, script: str) -> dict[str, Any]:
    return {"key": key, "command": ["sh", "-c", script]}


def start(fleet: Fleet, name: str, script: str, **settings: Any) -> subprocess.Popen[str]:
    """A run in a process of its own, with the task of that script."""
    return fleet.start("run", fleet.tasks([sh("a", script)], name=f"{name}.jsonl", **settings), "--name", name)


def ended(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        assert process.wait(60) == 0


def told(fleet: Fleet, rule: str) -> list[Alert]:
    with closing(open_store(fleet.home)) as store:
        found = state.listed(store, run=None, state=None, limit=100, before=None)[0]
    return [one for one in found if one.rule == rule]


def test_a_run_without_serve_tells_its_end(fleet: Fleet, receiver: Receiver):
    configured(fleet, receiver)
    done = fleet.command("run", fleet.tasks([sh("a", "true")]))
    assert done.returncode == 0, done.stderr
    assert receiver.of("finished") == ["fired"], "sent before the command ended"
    assert [one.delivered[0].channel for one in told(fleet, "finished")] == ["webhook"]
    with closing(open_store(fleet.home)) as store:
        assert store.daemon.claim_alerts("the next", 1), "the claim was released"


@pytest.mark.slow
def test_a_run_without_serve_tells_what_is_wrong_while_it_runs(fleet: Fleet, receiver: Receiver):
    configured(fleet, receiver, budget_shares=[0.5])
    process = start(fleet, "spends", SPEND + GATE, budget_usd=1.0)
    wait_for(lambda: receiver.of("budget") == ["fired"], "the budget to be told")
    (fleet.folder / "gate").touch()
    ended(process)
    assert receiver.of("budget") == ["fired", "resolved"]
    assert receiver.of("finished") == ["fired"]
    assert receiver.twice() == []


def test_a_run_that_cannot_send_says_so_and_goes_on(fleet: Fleet, receiver: Receiver):
    configured(fleet, receiver)
    done = fleet.command("run", fleet.tasks([sh("a", "true")]), HOOK="")
    assert (done.returncode, "alerts: this process sends none" in done.stderr) == (0, True), done.stderr
    assert told(fleet, "finished") == [], "no process watched"


def test_what_was_not_delivered_at_the_end_is_sent_by_the_next_run(fleet: Fleet, receiver: Receiver):
    configured(fleet, receiver)
    receiver.refuse = True
    assert fleet.command("run", fleet.tasks([sh("a", "true")]), "--name", "first").returncode == 0
    assert receiver.refused
    receiver.refuse = False
    assert fleet.command("run", fleet.tasks([sh("a", "true")]), "--name", "second").returncode == 0
    assert [one["run_name"] for one in receiver.messages if one["rule"] == "finished"] == ["first", "second"]
    assert receiver.twice() == []


def test_a_study_tells_its_end(fleet: Fleet, receiver: Receiver):
    configured(fleet, receiver)
    (fleet.folder / "study.toml").write_text(
        '[study]\nname = "s"\ntrials = 1\nconfirm = false\nobjective = { maximize = "speed" }\n'
        '[parameters]\na = { type = "integer", low = 1, high = 9 }\n[trial]\ncommand = ["sh", "-c", '
        """'echo "{\\"success\\": true, \\"metrics\\": {\\"speed\\": 1}}" > "$EVALFLEET_RESULT"']\n"""
    )
    done = fleet.command("tune", "study.toml")
    assert done.returncode == 0, done.stderr
    assert receiver.of("finished") == ["fired"]


@pytest.mark.slow
def test_a_run_beside_serve_is_told_once(fleet: Fleet, receiver: Receiver):
    configured(fleet, receiver, budget_shares=[0.5])
    serve(fleet)
    process = start(fleet, "spends", SPEND + GATE, budget_usd=1.0)
    wait_for(lambda: receiver.of("budget") == ["fired"], "the budget to be told")
    (fleet.folder / "gate").touch()
    ended(process)
    wait_for(lambda: receiver.of("finished") == ["fired"], "the end to be told")
    wait_for(lambda: receiver.of("budget") == ["fired", "resolved"], "the budget to be over")
    assert (len(told(fleet, "budget")), len(told(fleet, "finished"))) == (1, 1)
    assert receiver.twice() == []


@pytest.mark.slow
def test_two_runs_and_serve_tell_everything_once(fleet: Fleet, receiver: Receiver):
    configured(fleet, receiver, budget_shares=[0.5])
    first = start(fleet, "first", SPEND + GATE, budget_usd=1.0)
    wait_for(lambda: receiver.of("budget") == ["fired"], "the first run to tell")
    serve(fleet)
    second = start(fleet, "second", SPEND + GATE, budget_usd=1.0)
    wait_for(lambda: len(receiver.of("budget")) == 2, "both budgets to be told")
    (fleet.folder / "gate").touch()
    ended(first, second)
    wait_for(lambda: len(receiver.of("finished")) == 2, "both ends to be told")
    wait_for(lambda: receiver.of("budget").count("resolved") == 2, "both to be over")
    assert (len(told(fleet, "budget")), len(told(fleet, "finished"))) == (2, 2)
    assert receiver.twice() == []


@pytest.mark.slow
def test_a_sender_that_is_killed_is_replaced_at_once(fleet: Fleet, receiver: Receiver):
    """The first run has the claim. It is killed while the receiver refuses, so that its alert waits; the second sends it, once."""
    configured(fleet, receiver, budget_shares=[0.5], off=["finished", "undriven"])
    first = start(fleet, "first", SPEND + GATE, budget_usd=1.0)
    receiver.refuse = True
    wait_for(lambda: receiver.refused, "the first run to try")
    second = start(fleet, "second", GATE)
    first.send_signal(signal.SIGKILL)
    first.wait()
    receiver.refuse = False
    wait_for(lambda: receiver.of("budget") == ["fired"], "the second run to send it")
    assert len(told(fleet, "budget")) == 1
    (fleet.folder / "gate").touch()
    ended(second)
    assert receiver.twice() == []


def test_a_dead_sender_does_not_keep_the_claim(tmp_path: Path):
    code = (
        "import os, sys; from pathlib import Path; from evalfleet.store.open import open_store; "
        "assert open_store(Path(sys.argv[1])).daemon.claim_alerts('dead', 3600); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "home")], check=False)
    assert done.returncode == -signal.SIGKILL
    with closing(open_store(tmp_path / "home")) as store:
        assert store.daemon.claim_alerts("living", 30)
