"""Slots belong to the machine: runs and homes together never exceed them, and take turns. Real sshd, real controllers."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from tests.support import sshd
from tests.support.fleet import Fleet, fleet_at, wait_for
from tests.support.store import cases

from evalfleet.engine.attempts.launch import canary_of
from evalfleet.hosts.base import CanarySpec, Inbox
from evalfleet.hosts.ssh.backend import SshBackend, SshSettings
from evalfleet.layout import Home
from evalfleet.store.open import open_store
from evalfleet.testing.backend_contract import Watcher, launch

# Says in the ledger who it is, and whether somebody else was there: the witness is a lock that evalfleet does not know.
TASK = """
if ! flock -n 9; then echo "CLASH $1" >> "$LEDGER"; exit 1; fi
echo "$1" >> "$LEDGER"
while [ -e "$LEDGER.hold" ]; do sleep 0.02; done
sleep "$2"
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[sshd.Sshd]:
    with sshd.host(tmp_path / "hosts") as server:
        yield server


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Fleet]:
    (tmp_path / "other").mkdir()
    yield from fleet_at(tmp_path / "other")


def tasks(fleet: Fleet, run: str, count: int, sleep_s: float, ledger: Path) -> str:
    script = f"exec 9>>{ledger}.lock; LEDGER={ledger}; {TASK}"
    rows = [
        {"key": f"{run}_{turn}", "command": ["bash", "-c", script, "-", run, str(sleep_s)]} for turn in range(count)
    ]
    return fleet.tasks(rows, f"{run}.jsonl")


def make_pool(fleet: Fleet, box: sshd.Sshd, **options: object) -> None:
    (fleet.folder / "hosts.toml").write_text(sshd.hosts_file([box], **options))
    done = fleet.command("pool", "create", "lab", "--hosts", "hosts.toml")
    assert done.returncode == 0, done.stderr


def ended_well(*started: subprocess.Popen[str]) -> None:
    for process in started:
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said


def lines(ledger: Path) -> list[str]:
    return ledger.read_text().splitlines() if ledger.exists() else []


def test_three_runs_and_two_homes_on_one_slot(fleet: Fleet, other: Fleet, box: sshd.Sshd, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    make_pool(fleet, box)
    make_pool(other, box)
    started = [
        home.start("run", tasks(home, run, 4, 0.05, ledger), "--name", run, "--pool", "lab")
        for home, run in ((fleet, "a"), (fleet, "b"), (other, "c"))
    ]
    ended_well(*started)
    assert sorted(lines(ledger)) == sorted("abc" * 4)


def test_a_small_run_that_comes_later_gets_its_turns(fleet: Fleet, box: sshd.Sshd, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    make_pool(fleet, box)
    large = fleet.start("run", tasks(fleet, "large", 20, 0.05, ledger), "--name", "large", "--pool", "lab")
    wait_for(lambda: len(lines(ledger)) >= 3, "the large run")
    hold = ledger.with_name("ledger.hold")
    hold.touch()  # the slot stays in use until the small run waits for it
    small = fleet.start("run", tasks(fleet, "small", 4, 0.05, ledger), "--name", "small", "--pool", "lab")
    wait_for(lambda: [event for event in fleet.events("small") if event["type"] == "worker.awaited"], "the wait")
    hold.unlink()
    ended_well(small, large)
    seen = lines(ledger)
    assert sorted(seen) == sorted(["large"] * 20 + ["small"] * 4)
    first, last = seen.index("small"), len(seen) - seen[::-1].index("small")
    assert seen[first:last].count("large") <= 6, seen
    waits = [event for event in fleet.events("small") if event["type"] == "worker.awaited"]
    assert waits[0]["data"]["reason"] == "your runs have 1 of 1 slots"
    assert [row["busy"] for row in fleet.json("pool", "status", "lab")["hosts"]] == [0]


def test_killed_controllers_and_runners_do_not_double_a_slot(fleet: Fleet, box: sshd.Sshd, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    make_pool(fleet, box)
    path = tasks(fleet, "a", 4, 0.2, ledger)
    first = fleet.start("run", path, "--name", "a", "--pool", "lab")
    second = fleet.start("run", tasks(fleet, "b", 4, 0.2, ledger), "--name", "b", "--pool", "lab")
    wait_for(lambda: len(set(lines(ledger))) == 2, "both runs")
    first.send_signal(signal.SIGKILL)
    first.wait()
    wait_for(lambda: lines(ledger).count("b") >= 2, "the run whose controller lives")
    box.kill_runner()
    again = fleet.start("resume", "a")
    ended_well(again, second)
    assert not [line for line in lines(ledger) if line.startswith("CLASH")]
    for run in ("a", "b"):
        assert fleet.json("report", run)["tasks"]["done"] == 4


def test_local_slots_hold_over_all_runs(fleet: Fleet, tmp_path: Path) -> None:
    fleet.env |= {"EVALFLEET_SLOT_LOCKS": str(tmp_path / "slots")}
    fleet.home.mkdir()
    (fleet.home / "config.toml").write_text("[local]\nslots = 2\n")
    count = (
        "import fcntl, os, pathlib, sys, time\n"
        f"places = [open('{tmp_path}/place-%d' % n, 'w') for n in (1, 2)]\n"
        "for place in places:\n"
        "    try:\n"
        "        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "        break\n"
        "    except OSError:\n"
        "        pass\n"
        "else:\n"
        "    sys.exit('more than two at once')\n"
        "time.sleep(0.05)\n"
    )
    rows = [{"key": f"t_{turn}", "command": ["python3", "-c", count]} for turn in range(5)]
    started = [
        fleet.start("run", fleet.tasks(rows, f"{run}.jsonl"), "--name", run, "-w", "2", "-v") for run in ("a", "b")
    ]
    ended_well(*started)
    assert os.listdir(tmp_path / "slots")
    for run in ("a", "b"):
        assert fleet.json("report", run)["tasks"]["done"] == 5


def test_a_canary_does_not_wait_for_a_slot_that_others_use(box: sshd.Sshd, tmp_path: Path) -> None:
    """Else a host that others keep busy would fail its canaries, and be set apart."""

    async def prove() -> None:
        backend = SshBackend(Home(tmp_path / "home"), box.spec(), SshSettings())
        with closing(open_store(tmp_path / "home")) as store:
            run = cases.submit(store)
        inbox = Inbox()
        async with backend.acquire("r", 1, inbox) as host:
            await host.want(1)
            busy = launch("r.1.1", "sleep", "300")
            await host.launch([busy])
            await Watcher(inbox).until("r.1.1", "started")
            await host.launch([canary_of(run, "r.canary.1", CanarySpec(), 60.0)])
            assert (await Watcher(inbox).until("r.canary.1")).data["exit_code"] == 0
            await host.stop(["r.1.1"], "enough")

    anyio.run(prove)
