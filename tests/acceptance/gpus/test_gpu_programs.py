"""Programs that lease GPUs for themselves: many at once, in order, and dead ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from msgspec import to_builtins
from tests.support.fleet import Fleet, wait_for
from tests.support.gpu_cards import gpus, tasks

from evalfleet.report.gpus import gpus_facts
from evalfleet.store.open import open_reader

HAND_OVER_S = 0.05

# One process that has loaded everything and becomes many, so that a test does not measure how long Python takes to start.
# Each uses its GPUs like a server does: for some time nothing shows that it is there.
TRIALS = """
import asyncio, fcntl, json, os, sys, time
from pathlib import Path
from evalfleet import GpuPool
from evalfleet.store.gpus.gpus import Gpus

home, processes, trials, count = Path(sys.argv[1]), *map(int, sys.argv[2:5])
blind_s = float(sys.argv[5])
there = home / "there"
spool = home / "spool"
row = {}
lease_gpus, free_gpus = Gpus.lease, Gpus.free

# Moments are taken inside of transactions, of which there is one at a time on the whole machine.

def lease(self, program, ask, others=()):
    with self._db.transaction():
        devices = lease_gpus(self, program, ask, others)
        mine = [one for one in self.tickets() if one.owner == program.token]
        if mine:
            row.setdefault("waits_at", time.monotonic())
            row["ticket"] = mine[0].number
        if devices is not None:
            row["got"] = time.monotonic()
        return devices

def free(self, program):
    with self._db.transaction():
        free_gpus(self, program)
        row["left"] = time.monotonic()

Gpus.lease, Gpus.free = lease, free

def show(uuids, used_mb, pids):
    with open(home / "gpus.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = json.loads((spool / "gpus.json").read_text())
        for one in rows:
            if one["uuid"] in uuids:
                one.update(used_mb=used_mb, processes=pids)
        (spool / "next").write_text(json.dumps(rows))
        (spool / "next").rename(spool / "gpus.json")

async def main():
    pool = GpuPool(home)
    for _ in range(trials):
        row.clear()
        async with pool.acquire(gpus=count, min_memory_mb=8000, timeout=120) as lease:
            row["gpus"] = lease.uuids
            row["taken"] = [uuid for uuid in lease.uuids if (there / uuid).exists()]
            for uuid in lease.uuids:
                (there / uuid).touch()
            await asyncio.sleep(blind_s)
            show(lease.uuids, 40000, [os.getpid()])
            await asyncio.sleep(0.05)
            show(lease.uuids, 600, [])
            for uuid in lease.uuids:
                (there / uuid).unlink()
        os.write(1, (json.dumps(row) + "\\n").encode())

for _ in range(processes):
    if os.fork() == 0:
        asyncio.run(main())
        os._exit(0)
for _ in range(processes):
    os.wait()
"""

# Becomes a program that has a GPU, for every line that it reads: its name, and whether it shall have a child.
HOLDERS = """
import asyncio, os, signal, subprocess, sys
from evalfleet import GpuPool

async def main(name, child):
    async with GpuPool(sys.argv[1], name=name).acquire(timeout=60) as lease:
        started = subprocess.Popen(["sleep", "60"], pass_fds=lease.fds).pid if child else 0
        os.write(1, f"{name} {lease.uuids[0]} {started}\\n".encode())
        await asyncio.sleep(60)

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    name, child = line.split()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        asyncio.run(main(name, child == "yes"))
    os.write(1, f"{pid}\\n".encode())
"""


class Holders:
    """Programs that lease one GPU each."""

    def __init__(self, fleet: Fleet) -> None:
        self.pids: dict[str, int] = {}
        self._process = _python(HOLDERS, fleet)

    def begin(self, name: str, *, child: bool = False) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{name} {'yes' if child else 'no'}\n")
        stdin.flush()
        self.pids[name] = int(stdout.readline())

    def next(self) -> list[str]:
        """Who has one now: its name, the card, and its child's pid."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().split()

    def kill(self, name: str) -> None:
        os.kill(self.pids.pop(name), signal.SIGKILL)

    def close(self) -> None:
        for name in list(self.pids):
            with suppress(ProcessLookupError):
                self.kill(name)
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def holders(fleet: Fleet) -> Iterator[Holders]:
    made = Holders(fleet)
    yield made
    made.close()


def _python(program: str, fleet: Fleet, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, str(fleet.home), *map(str, args)]
    return subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def facts(fleet: Fleet) -> dict[str, Any]:
    reader = open_reader(fleet.home)
    assert reader is not None
    try:
        return to_builtins(gpus_facts(reader))
    finally:
        reader.close()


def trials(fleet: Fleet, count: int, blind_s: float) -> list[dict[str, Any]]:
    """Eight processes at once, each with so many trials of 2 GPUs, on 8 GPUs."""
    gpus(fleet, 8)
    (fleet.home / "there").mkdir(exist_ok=True)
    told = _python(TRIALS, fleet, 8, count, 2, blind_s).communicate(timeout=120)[0]
    rows = [json.loads(row) for row in told.splitlines()]
    assert len(rows) == 8 * count
    return sorted(rows, key=lambda row: row["got"])


def hand_overs(rows: list[dict[str, Any]]) -> list[float]:
    """From when the last of the cards was given back that somebody waits for, to when they were his."""
    left: dict[str, float] = {}
    found: list[float] = []
    for row in rows:
        freed = max(left.get(uuid, 0.0) for uuid in row["gpus"])
        if row.get("waits_at", inf) < freed:
            found.append(row["got"] - freed)
        left |= dict.fromkeys(row["gpus"], row["left"])
    return found


def assert_in_order(rows: list[dict[str, Any]]) -> None:
    """Nobody takes what somebody needs who came before: as all ask for two, two stay free for each of those."""
    for row in rows:
        now = row["got"]
        held = sum(2 for other in rows if other["got"] <= now < other["left"])
        before = [
            other
            for other in rows
            if other.get("waits_at", inf) < now < other["got"] and other["ticket"] < row.get("ticket", inf)
        ]
        assert 8 - held >= 2 * len(before), (row, before)


@pytest.mark.parametrize(
    ("count", "blind_s", "quick"),
    [(2, 0.15, median), pytest.param(6, 0.5, max, marks=pytest.mark.long)],
    ids=["short", "whole"],
)
def test_eight_processes_on_eight_gpus_whose_memory_shows_late(
    fleet: Fleet, count: int, blind_s: float, quick: Callable[[list[float]], float]
):
    """`quick` is what must be below 50 ms: all of them, or the usual one while other tests keep the machine busy."""
    told: list[str] = []
    for _ in range(5):  # how quick it is, is measured again where the machine was busy with something else
        rows = trials(fleet, count, blind_s)
        assert [row for row in rows if row["taken"]] == []
        spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for row in rows:
            for uuid in row["gpus"]:
                spans[uuid].append((row["got"], row["left"]))
        assert all(one[1] <= other[0] for held in spans.values() for one, other in pairwise(sorted(held)))
        assert_in_order(rows)
        waits = hand_overs(rows)
        assert len(waits) >= len(rows) // 4
        told.append(f"median {median(waits) * 1000:.0f} ms, most {max(waits) * 1000:.0f} ms of {len(waits)}")
        print("hand-over:", told[-1])
        if quick(waits) < HAND_OVER_S:
            return
    raise AssertionError(told)


def test_programs_are_served_in_the_order_of_their_arrival(fleet: Fleet, holders: Holders):
    gpus(fleet, 1)
    holders.begin("first")
    assert holders.next()[:2] == ["first", "GPU-0"]
    for place in range(4):
        holders.begin(f"w{place}")
        wait_for(lambda count=place + 1: len(facts(fleet)["waiting"]) == count, "its ticket")
    assert [row["program"].split()[0] for row in facts(fleet)["waiting"]] == ["w0", "w1", "w2", "w3"]
    holders.kill("w1")  # who dies holds up nobody
    holders.kill("first")
    assert holders.next()[0] == "w0"
    holders.kill("w0")
    assert holders.next()[0] == "w2"
    assert [row["program"].split()[0] for row in facts(fleet)["waiting"]] == ["w3"]


@pytest.mark.long
def test_a_killed_program_frees_its_gpu_when_its_children_are_gone_too(fleet: Fleet, holders: Holders):
    gpus(fleet, 1)
    holders.begin("holder", child=True)
    child = int(holders.next()[2])
    holders.kill("holder")
    process = fleet.start("run", tasks(fleet, [1]), "--json")
    wait_for(lambda: facts(fleet)["waiting"], "the run to wait for it")
    wait_for(lambda: not facts(fleet)["gpus"][0]["holders"], "the lease of the dead program to end")
    assert fleet.lines() == []
    os.kill(child, signal.SIGKILL)
    assert process.wait(60) == 0
    assert len(fleet.lines()) == 1
    summary = fleet.json("report")
    assert summary["tasks"]["done"] == 1


def test_a_run_and_a_program_never_have_the_same_gpu(fleet: Fleet, holders: Holders):
    gpus(fleet, 1)
    holders.begin("holder")
    holders.next()
    process = fleet.start("run", tasks(fleet, [1, 1]), "--workers", "2", "--json")
    wait_for(lambda: len(facts(fleet)["waiting"]) == 2, "both tasks to wait")
    assert fleet.lines() == []
    assert [row["key"] for row in facts(fleet)["waiting"]] == ["t_0", "t_1"]
    assert facts(fleet)["gpus"][0]["holders"][0]["program"].startswith("holder")
    holders.kill("holder")
    assert process.wait(60) == 0
    assert len(fleet.lines()) == 2


def test_what_a_person_sees(fleet: Fleet, holders: Holders):
    gpus(fleet, 2, gpu_1=1)
    holders.begin("notebook")
    holders.next()
    shown = fleet.command("gpus").stdout
    assert all(
        words in shown
        for words in ("GPU-0", "notebook (process", "process 1 (", "not evalfleet's", "no task is waiting")
    )
    told = fleet.json("gpus")
    assert told.keys() == {"gpus", "waiting"}
    assert told["gpus"][0]["holders"] == facts(fleet)["gpus"][0]["holders"]
    assert [row["pid"] for row in told["gpus"][1]["foreign"]] == [1]
    empty = Fleet(folder=fleet.folder, home=Path(f"{fleet.home}-2"))
    assert "No GPUs: this machine has no NVIDIA driver, and no host of a pool" in empty.command("gpus", PATH="").stdout
    assert empty.json("gpus", PATH="") == {"gpus": [], "waiting": []}
