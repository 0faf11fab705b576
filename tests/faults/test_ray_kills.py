"""200 tasks on a real Ray cluster while drivers, actors, runners and nodes are killed: nothing is lost, doubled or left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.support.fleet import Fleet, fleet_at, wait_for
from tests.support.ray_cluster import RayCluster

from evalfleet.runner.attempt.process_tree import stat_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
TASKS = 200
KILLS = 20
WORKERS = 4
VICTIMS = ("driver", "actor", "runner", "node")
DEADLINE_S = 600.0


class KilledRun:
    """A run, and who is killed in it. Victims take turns; the moments and the host are random, by a seed."""

    def __init__(self, fleet: Fleet, cluster: RayCluster) -> None:
        self.fleet = fleet
        self.cluster = cluster
        self.random = random.Random(15)
        self.kills: Counter[str] = Counter()
        self.nodes = [cluster.add(num_cpus=2, resources={"work": 2}) for _ in range(2)]
        self.driver: subprocess.Popen[str] | None = None

    def drive(self) -> None:
        """Start the next driver."""
        words = (
            ("resume",) if self.kills["driver"] else ("run", self._tasks(), "--pool", "lab", "--workers", str(WORKERS))
        )
        self.driver = self.fleet.start(*words)

    def kill(self, victim: str) -> bool:
        """Kill one; False where there is none at this moment."""
        assert self.driver is not None
        if victim == "driver":
            self.driver.send_signal(signal.SIGKILL)
            self.driver.wait()
        elif victim == "node":
            self.cluster.remove(self.nodes.pop(0))
            self.nodes.append(self.cluster.add(num_cpus=2, resources={"work": 2}))
        else:
            pids = self._actors() if victim == "actor" else self._runners()
            if not pids:
                return False
            os.kill(self.random.choice(pids), signal.SIGKILL)
        self.kills[victim] += 1
        if victim == "driver":
            self.drive()
        return True

    def is_over(self) -> bool:
        assert self.driver is not None
        return self.driver.poll() is not None

    def _tasks(self) -> str:
        script = f'echo "$EVALFLEET_ATTEMPT" >> {self.fleet.ledger}; sleep 0.4'
        rows = [{"key": f"t{number}", "command": ["sh", "-c", script]} for number in range(TASKS)]
        return self.fleet.tasks(rows, attempts=3)

    def _runners(self) -> list[int]:
        found: list[int] = []
        for path in self.cluster.home.glob(".evalfleet/ray/*/*/runner.json"):
            try:
                pid = json.loads(path.read_text())["pid"]
            except (OSError, ValueError):
                continue
            if (stat := stat_of(pid)) is not None and not stat.dead:
                found.append(pid)
        return found

    def _actors(self) -> list[int]:
        """Processes of actors: Ray names them for their class."""
        return [pid for pid, command in _commands() if command.startswith(b"ray::RunnerActor") and self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        try:
            return str(self.cluster.home).encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False

    def left(self) -> list[str]:
        """Processes and folders of the pool that are still there."""
        folder = str(self.cluster.home / ".evalfleet").encode()
        processes = [command.decode(errors="replace") for _, command in _commands() if folder in command]
        return [*processes, *map(str, self._actors()), *map(str, self.cluster.home.glob(".evalfleet/ray/*/*"))]


def _commands() -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.append((int(entry.name), (entry / "cmdline").read_bytes()))
            except OSError:
                continue
    return found


def test_nothing_is_lost_doubled_or_left(tmp_path: Path):
    cluster = RayCluster(nodes=1, cpus=1)
    try:
        for fleet in fleet_at(tmp_path):
            _play(fleet, cluster)
    finally:
        cluster.close()


def _play(fleet: Fleet, cluster: RayCluster) -> None:
    options = ("--max", str(WORKERS), "--option", "resources=work:1", "--option", "cpus=0")
    fleet.json("pool", "create", "lab", "--backend", "ray", "--address", cluster.address, *options)
    run = KilledRun(fleet, cluster)
    run.drive()
    wait_for(lambda: len(fleet.lines()) >= WORKERS, "the first tasks to start")
    deadline = time.monotonic() + DEADLINE_S
    while sum(run.kills.values()) < KILLS:
        assert time.monotonic() < deadline, run.kills
        assert not run.is_over(), (run.kills, _output(run))
        before = len(fleet.lines())
        if run.kill(VICTIMS[sum(run.kills.values()) % len(VICTIMS)]):
            goal = before + run.random.randint(1, 6)  # the next one strikes after so many more starts
            wait_for(lambda goal=goal: len(fleet.lines()) >= goal or run.is_over(), "the run to go on", DEADLINE_S)
    assert run.driver is not None
    said, _ = run.driver.communicate(timeout=DEADLINE_S)
    assert run.driver.returncode == 0, said
    assert run.kills == Counter(dict.fromkeys(VICTIMS, KILLS // len(VICTIMS)))
    _check(fleet)
    left = fleet.json("pool", "delete", "lab")["left"]
    assert set(left.values()) <= {"a controller is connected"}, "the last one that was killed, for a moment"
    wait_for(lambda: not left or (fleet.command("reap") and not run.left()), "`reap` to end what was left", 120)
    wait_for(lambda: not run.left(), "nothing to be left")


def _check(fleet: Fleet) -> None:
    rows = fleet.json("status", "latest")["tasks"]
    assert rows["done"] == rows["total"] == TASKS, rows
    events = fleet.events()
    decided = Counter(one["task"] for one in events if one["type"] == "task.done")
    assert len(decided) == TASKS
    assert max(decided.values()) == 1, "a task is decided once"
    ended = [one for one in events if one["type"] == "attempt.finished"]
    first = {
        one["attempt"]: one for one in reversed(ended)
    }  # one that was given up may come back, and is evidence then
    verdicts = Counter(one["task"] for one in first.values() if one["data"]["outcome"] == "ok")
    assert max(verdicts.values()) == 1, [one for one in ended if verdicts[one["task"]] > 1]
    starts = Counter(fleet.lines())
    assert max(starts.values()) == 1, "the same attempt never starts twice"
    blamed = Counter(one["data"].get("blame") for one in ended if one["data"]["outcome"] != "ok")
    assert blamed["task"] == 0, blamed


def _output(run: KilledRun) -> str:
    assert run.driver is not None
    return run.driver.communicate()[0][-2000:]
