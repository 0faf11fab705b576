"""Pools of Batch nodes by commands, in front of an emulator whose nodes are real processes with real pilots and runners."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.support.fleet import wait_for
from tests.support.rented import Rented, rented

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def are_boxes_counted(here: Rented) -> bool:
    return all((host["box_requests_per_hour"] or 0) > 0 for host in here.status()["hosts"])


def test_a_pool_goes_where_vms_would_stop_comes_back_and_works_through_an_outage(tmp_path: Path):
    with rented(tmp_path, 300) as here:
        boxes = tmp_path / "boxes"
        here.fleet.env |= {"EVALFLEET_AZURE_BATCH_ACCOUNT": "evalfleet", "EVALFLEET_AZURE_STORAGE": str(boxes)}
        # The owner of the pool looks at the pilots ten times in this time.
        silence = ("--deadline", "silence=20s")
        options = ("--backend", "azure-batch", "--workers", "2", "--size", "Standard_D2s_v3", *silence)
        made = here.fleet.json("pool", "create", "p1", *options)
        assert {host["state"] for host in made["hosts"]} == {"ready"}
        refused = here.fleet.command("pool", "exec", "p1", "--", "true")
        assert "cannot be called" in refused.stdout + refused.stderr
        assert "start-task" in here.fleet.command("pool", "logs", "p1", "--list").stdout

        assert here.fleet.command("pool", "stop", "p1").returncode == 0
        assert here.status()["hosts"] == []
        assert "Microsoft.Batch/jobs" not in here.leaks()["resources"]
        assert [path for path in boxes.rglob("*") if path.is_file()] == []
        assert here.fleet.command("pool", "start", "p1").returncode == 0
        assert sorted(here.states().values()) == ["ready", "ready"]

        until_seen = f"while [ ! -e {here.fleet.folder}/seen ]; do sleep 0.05; done"
        gate = {"key": "gate", "command": ["sh", "-c", until_seen]}
        process = here.fleet.start("run", here.work(6, 0.5, more=[gate]), "--pool", "p1")
        here.control("POST", "outages", {"service": "batch", "lasts": 900})
        # The owner of the pool, which is the run, looks at nothing while Batch is away.
        wait_for(lambda: are_boxes_counted(here) or process.poll() is not None, "a look at the boxes")
        (here.fleet.folder / "seen").touch()
        said = process.communicate(timeout=200)[0]
        assert process.returncode == 0, said
        here.all_ok(7)
        assert are_boxes_counted(here)
        assert "requests an hour to the machines' boxes, $0.000" in here.fleet.command("pool", "status", "p1").stdout
        reap_finds_what_no_machine_needs(here, boxes)
        here.leave()
        assert list(boxes.iterdir()) == []


def reap_finds_what_no_machine_needs(here: Rented, boxes: Path) -> None:
    """Boxes of this home that no row remembers, and those of a home that is gone; not those of machines."""
    (ours,) = boxes.iterdir()
    needed = sorted(ours.iterdir())
    home = ours.name.partition("-")[0]
    strays = [ours / "evalfleet-99-1", boxes / f"{home}-old" / "w-1-1"]
    theirs = boxes / f"{'f' * 32}-p1" / "w-1-1"
    for folder in (*strays, theirs):
        folder.mkdir(parents=True)
        (folder / "hello").touch()
    found = here.fleet.json("reap")
    assert sorted(row["name"] for row in found["resources"]) == sorted(map(str, strays))
    assert found["others"] == {"f" * 12: 1}
    assert sorted(ours.iterdir()) == needed
    found = here.fleet.json("reap", "--owner", f"me@there-{'f' * 12}")
    assert [row["name"] for row in found["resources"]] == [str(theirs)]
    assert list(boxes.iterdir()) == [ours]
    (ours / "evalfleet-98-1").mkdir()  # goes with the pool


def test_an_account_without_quota_is_told(tmp_path: Path):
    scenario = tmp_path / "no-quota.toml"
    scenario.write_text('[[batch]]\nname = "evalfleet"\ndedicated_cores = 0\n')
    with rented(tmp_path, 300, "--scenario", str(scenario)) as here:
        env = {"EVALFLEET_AZURE_BATCH_ACCOUNT": "evalfleet", "EVALFLEET_AZURE_STORAGE": str(tmp_path / "boxes")}
        here.fleet.env |= env
        done = here.fleet.command("pool", "create", "p1", "--backend", "azure-batch", "--size", "Standard_D2s_v3")
        assert done.returncode == 3, done.stdout + done.stderr
        assert "AccountCoreQuotaReached" in done.stdout + done.stderr
        here.leave()


def lose_the_node_after_the_first_end(here: Rented, boxes: Path) -> None:
    """The first task ends, is uploaded, and its node is taken back while the second one still runs there."""
    (here.fleet.folder / "go").touch()
    wait_for(
        lambda: list(boxes.rglob("attempts/*.1.1.json")), "the upload of the task's files, and not only the canary's"
    )
    queued = len(here.events("task.active"))
    assert here.control("POST", "evictions", {"count": 1})["evicted"]
    wait_for(lambda: len(here.events("task.active")) > queued, "the end of the node's processes")


@pytest.mark.parametrize("sleeper", [True, False], ids=["the controller sleeps", "the controller is killed"])
def test_what_ended_on_a_lost_node_is_collected_from_its_box_and_not_run_again(tmp_path: Path, sleeper: bool):
    with rented(tmp_path, 300) as here:
        boxes = tmp_path / "boxes"
        here.fleet.env |= {"EVALFLEET_AZURE_BATCH_ACCOUNT": "evalfleet", "EVALFLEET_AZURE_STORAGE": str(boxes)}
        options = ("--backend", "azure-batch", "--workers", "1", "--slots", "2", "--size", "Standard_D2s_v3", "--spot")
        here.fleet.json("pool", "create", "p1", *options)
        (lost,) = here.states()
        until = f"while [ ! -e {here.fleet.folder}/$2 ]; do sleep 0.05; done"
        script = f'echo b $1 >> {here.fleet.ledger}; {until}; echo kept > "$EVALFLEET_ARTIFACTS/file"'
        names = {"t_0": "go", "t_1": "later"}
        rows = [{"key": key, "command": ["sh", "-c", script, "-", key, file]} for key, file in names.items()]
        process = here.fleet.start("run", here.fleet.tasks(rows, retry_base="200ms"), "--pool", "p1", "--workers", "2")
        wait_for(lambda: len(here.begun()) == 2 or process.poll() is not None, "both tasks")
        process.send_signal(signal.SIGSTOP if sleeper else signal.SIGKILL)
        lose_the_node_after_the_first_end(here, boxes)
        (here.fleet.folder / "later").touch()
        if sleeper:
            process.send_signal(signal.SIGCONT)
        else:
            process.communicate()
            process = here.fleet.start("resume", "latest")
        said = process.communicate(timeout=200)[0]
        assert process.returncode == 0, said
        assert sorted(here.begun()) == ["t_0", "t_1", "t_1"], "what had ended did not run again"
        outcomes = here.fleet.json("report")["attempts"]["by_outcome"]
        assert {name: count for name, count in outcomes.items() if count} == {"ok": 2, "preempted": 1}
        kept = [path for path in here.fleet.home.rglob("artifacts/file") if "t_0" in str(path)]
        assert [path.read_text() for path in kept] == ["kept\n"]
        assert list(boxes.rglob(f"{lost}-1/attempts/*")) == [], "what is collected is deleted"
        here.leave()
        assert [path for path in boxes.rglob("*") if path.is_file()] == []
