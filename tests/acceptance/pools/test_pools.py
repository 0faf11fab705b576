"""Pools of real SSH hosts, as a person uses them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support import sshd
from tests.support.fleet import Fleet, wait_for
from tests.support.sshd import Sshd

# Ends when three attempts have begun: more than one of the two hosts can hold, so each of them has served.
TOGETHER = """
import sys, time
open(sys.argv[1], 'a').write(sys.argv[2] + chr(10))
until = time.monotonic() + 60
while len(open(sys.argv[1]).readlines()) < 3 and time.monotonic() < until:
    time.sleep(0.02)
"""
WORK = "import os, sys, time; open(sys.argv[1], 'a').write(sys.argv[2] + chr(10)); time.sleep(float(sys.argv[3]))"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Callable[[str], list[Sshd]]]:
    made: list[Sshd] = []
    key = tmp_path / "user_key"

    def make(names: str) -> list[Sshd]:
        sshd.require()
        sshd.make_key(key)
        made.extend(Sshd(tmp_path / "hosts" / name, name, user_key=key) for name in names)
        return made

    yield make
    for host in made:
        host.close()


def pool_of(fleet: Fleet, hosts: list[Sshd], name: str = "lab", **options: object) -> None:
    rows = [f'[defaults]\nuser = "{os.environ.get("USER", "root")}"\n']
    for host in hosts:
        more = "".join(f"{key} = {value!r}\n" for key, value in options.items())
        rows.append(
            f'[[host]]\nname = "{host.name}"\naddress = "127.0.0.1"\nport = {host.port}\n'
            f'key = "{host.user_key}"\nhost_key = "{host.host_key}"\n{more}'
        )
    (fleet.folder / "hosts.toml").write_text("\n".join(rows))
    done = fleet.command("pool", "create", name, "--backend", "ssh", "--hosts", "hosts.toml")
    assert done.returncode == 0, done.stderr


def work(fleet: Fleet, count: int, seconds: float) -> str:
    ledger = str(fleet.ledger)
    rows = [
        {"key": f"t_{n}", "command": ["python3", "-c", WORK, ledger, f"t_{n}", str(seconds)]}
        for n in range(1, count + 1)
    ]
    return fleet.tasks(rows)


def test_a_pool_is_made_asked_used_and_deleted(fleet: Fleet, hosts: Callable[[str], list[Sshd]]):
    boxes = hosts("ab")
    pool_of(fleet, boxes, slots=2, price_usd_per_hour=0.5)
    listed = fleet.json("pool", "list")["pools"][0]
    wanted = {"name": "lab", "backend": "ssh", "creates_machines": False, "hosts": 2, "workers": 4, "deleting": False}
    assert {name: listed[name] for name in wanted} == wanted
    asked = fleet.json("pool", "status", "--probe")
    assert [(row["host"], row["probe"]["reachable"], row["busy"]) for row in asked["hosts"]] == [
        ("a", True, 0),
        ("b", True, 0),
    ]
    keys = [f"t_{n}" for n in range(1, 9)]
    rows = [{"key": key, "command": ["python3", "-c", TOGETHER, str(fleet.ledger), key]} for key in keys]
    summary = fleet.json("run", fleet.tasks(rows), "--pool", "lab")
    assert summary["state"] == "completed"
    assert sorted(fleet.lines()) == keys
    events = [line for line in fleet.command("events", "--json").stdout.splitlines() if "attempt.claimed" in line]
    assert any('"a-1"' in line for line in events)
    assert any('"b-1"' in line for line in events)
    assert summary["cost"]["total_usd"] > 0
    spools = [folder for box in boxes for folder in box.folder.rglob("spool-*")]
    assert len(spools) == 2
    assert fleet.json("pool", "delete", "lab") == {"deleted": "lab", "left": {}, "cost_usd": None}
    assert fleet.json("pool", "list") == {"pools": []}
    assert [folder for folder in spools if folder.exists()] == []


def test_what_stays_on_hosts_of_a_deleted_pool_is_said(fleet: Fleet, hosts: Callable[[str], list[Sshd]]):
    boxes = hosts("ab")
    pool_of(fleet, boxes)
    assert fleet.json("run", work(fleet, 4, 0.1), "--pool", "lab")["state"] == "completed"
    [spool] = boxes[0].folder.rglob("spool-*")
    (spool / "attempts" / "of_somebody_else").mkdir()
    boxes[1].close()
    left = fleet.json("pool", "delete", "lab")["left"]
    assert left["a"] == "1 attempts there have not been collected"
    assert "b" in left
    assert spool.exists()


def test_files_go_there_and_results_come_back(fleet: Fleet, hosts: Callable[[str], list[Sshd]]):
    pool_of(fleet, hosts("a"))
    (fleet.folder / "agent.py").write_text(
        "import json, os\n"
        "open(os.environ['EVALFLEET_ARTIFACTS'] + '/picture.txt', 'w').write(os.getcwd())\n"
        "json.dump({'score': 0.5}, open(os.environ['EVALFLEET_RESULT'], 'w'))\n"
        "print('it went well')\n"
    )
    tasks = fleet.tasks([{"key": "one_1", "command": ["python3", "agent.py"]}], files=["agent.py"])
    summary = fleet.json("run", tasks, "--pool", "lab")
    assert summary["scores"]["strict"] == 0.5
    picture = next(fleet.home.rglob("picture.txt"))
    assert not picture.read_text().startswith(str(fleet.folder))
    assert "it went well" in fleet.command("logs", "latest", "one_1").stdout


def test_kill_9_of_the_controller_costs_nothing(fleet: Fleet, hosts: Callable[[str], list[Sshd]]):
    pool_of(fleet, hosts("ab"), slots=2)
    controller = fleet.start("run", work(fleet, 6, 3), "--pool", "lab")
    wait_for(lambda: len(fleet.lines()) >= 3, "three tasks to run")
    os.killpg(controller.pid, signal.SIGKILL)
    controller.wait()
    assert fleet.json("resume")["state"] == "completed"
    assert sorted(fleet.lines()) == [f"t_{n}" for n in range(1, 7)]  # nothing was started twice


def test_a_cut_connection_costs_nothing(fleet: Fleet, hosts: Callable[[str], list[Sshd]]):
    one, two = hosts("ab")
    pool_of(fleet, [one, two], slots=2)
    controller = fleet.start("run", work(fleet, 6, 2), "--pool", "lab")
    wait_for(lambda: len(fleet.lines()) >= 3, "three tasks to run")
    assert one.cut() > 0
    assert two.cut() > 0
    assert controller.wait(60) == 0
    assert sorted(fleet.lines()) == [f"t_{n}" for n in range(1, 7)]


def test_a_host_that_goes_away_is_given_up_and_its_tasks_run_elsewhere(
    fleet: Fleet, hosts: Callable[[str], list[Sshd]]
):
    one, two = hosts("ab")
    pool_of(fleet, [one, two])
    fleet.env |= {"EVALFLEET_LEASE_DURATION": "1s", "EVALFLEET_LEASE_GIVE_UP": "2s"}
    controller = fleet.start("run", work(fleet, 2, 4), "--pool", "lab")
    wait_for(lambda: len(fleet.lines()) == 2, "both tasks to run")
    two.stop()
    assert controller.wait(90) == 0
    report = fleet.json("report")
    assert report["state"] == "completed"
    assert report["attempts"]["by_outcome"]["lost"] >= 1
    assert any("worker.lost" in line for line in fleet.command("events", "--json").stdout.splitlines())
    assert report["scores"]["strict"] == 1.0


@pytest.mark.parametrize(
    ("args", "words", "code"),
    [
        (("pool", "create", "Lab!", "--backend", "ssh", "--hosts", "hosts.toml"), "cannot name a pool", 2),
        (("pool", "create", "lab", "--backend", "ssh", "--hosts", "nowhere.toml"), "no such file", 2),
        (("pool", "status"), "no pools yet", 2),
        (("pool", "status", "lab"), "no pool 'lab'", 2),
        (("pool", "delete", "lab"), "no pool 'lab'", 2),
        (("run", "tasks.jsonl", "--pool", "lab"), "no pool 'lab'", 2),
    ],
)
def test_bad_input_is_told_in_one_line(fleet: Fleet, args: tuple[str, ...], words: str, code: int):
    fleet.tasks([{"key": "a", "command": ["true"]}])
    done = fleet.command(*args)
    assert done.returncode == code, done.stdout + done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_pool_in_use_and_a_host_of_two_pools_are_refused(fleet: Fleet, hosts: Callable[[str], list[Sshd]]):
    made = hosts("a")
    pool_of(fleet, made)
    fleet.json("run", work(fleet, 1, 0), "--pool", "lab", "--detach")
    refused = fleet.command("pool", "delete", "lab")
    assert refused.returncode == 3
    assert "uses pool 'lab'" in refused.stderr
    again = fleet.command("pool", "create", "lab", "--backend", "ssh", "--hosts", "hosts.toml")
    assert again.returncode == 3
    assert "--replace" in again.stderr
    other = fleet.command("pool", "create", "attic", "--backend", "ssh", "--hosts", "hosts.toml")
    assert other.returncode == 2
    assert "belongs to pool 'lab'" in other.stderr
