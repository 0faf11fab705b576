"""Runs on a real Ray cluster, from the command line: drivers, actors and nodes die, and every result is kept."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import Fleet, wait_for
from tests.support.ray_cluster import RayCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
DEADLINE_S = 180.0
# The task says that it began and which GPUs it sees, and ends when it may.
SCRIPT = 'echo "$EVALFLEET_ATTEMPT [$CUDA_VISIBLE_DEVICES]" >> {ledger}; while ! [ -e {gate} ]; do sleep 0.1; done'


def tasks(fleet: Fleet, count: int) -> str:
    script = SCRIPT.format(ledger=fleet.ledger, gate=fleet.folder / "gate")
    return fleet.tasks([{"key": f"t{number}", "command": ["sh", "-c", script]} for number in range(count)])


def pool(fleet: Fleet, cluster: RayCluster, name: str, *options: str) -> None:
    fleet.json("pool", "create", name, "--backend", "ray", "--address", cluster.address, *options)


def actors(fleet: Fleet, name: str) -> list[str]:
    """Hosts of the pool that have an actor."""
    answer = json.loads(fleet.command("pool", "status", name, "--probe", "--json").stdout)
    return [row["host"] for row in answer["hosts"] if row.get("probe")]


def folders(cluster: RayCluster, pool: str) -> list[Path]:
    return list(cluster.home.glob(f".evalfleet/ray/*/*-{pool}-*"))


def started(fleet: Fleet, count: int) -> None:
    wait_for(lambda: len(fleet.lines()) >= count, f"{count} tasks to start", DEADLINE_S)


def attempts(fleet: Fleet, event: str) -> list[dict[str, Any]]:
    return [one["data"] for one in fleet.events() if one["type"] == event]


def test_a_run_survives_its_driver_and_leaves_nothing(fleet: Fleet, cluster: RayCluster, tmp_path: Path):
    pool(fleet, cluster, "kept", "--max", "2", "--option", "cpus=0.5")
    assert fleet.json("pool", "status", "kept")["workers"] == 2
    driver = fleet.start("run", tasks(fleet, 4), "--pool", "kept", "--workers", "3")
    started(fleet, 2)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert actors(fleet, "kept") == ["kept-1", "kept-2"], "no more than the pool may have, and they outlive the driver"
    other = Fleet(folder=fleet.folder, home=tmp_path / "other")  # another home, whose pool has the same name
    pool(other, cluster, "kept", "--max", "2")
    assert other.json("pool", "delete", "kept")["left"] == {}
    (fleet.folder / "gate").touch()
    done = fleet.command("resume")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = fleet.lines()
    assert len(lines) == 4, "no task ran twice"
    assert all(line.endswith("[]") for line in lines), "an actor without GPUs shows its tasks none"
    assert fleet.json("pool", "delete", "kept")["left"] == {}
    assert folders(cluster, "kept") == []


@pytest.mark.long
@pytest.mark.parametrize(("preempted", "cause"), [(False, "worker_lost"), (True, "preempted")])
def test_a_dead_node_is_not_the_fault_of_its_task(fleet: Fleet, cluster: RayCluster, preempted: bool, cause: str):
    name = f"dies-{cause.split('_', maxsplit=1)[0]}"
    node = cluster.add(num_cpus=1, num_gpus=1, resources={name: 1})
    try:
        pool(fleet, cluster, name, "--option", f"resources={name}:1", "--option", "gpus=1")
        driver = fleet.start("run", tasks(fleet, 1), "--pool", name)
        started(fleet, 1)
        assert fleet.lines()[0].endswith("[0]"), "a task sees the GPU that Ray gave the actor"
        if preempted:
            cluster.preempt(node)
    finally:
        cluster.remove(node)
    wait_for(lambda: attempts(fleet, "attempt.finished"), "the end of the attempt", DEADLINE_S)
    (fleet.folder / "gate").touch()
    node = cluster.add(num_cpus=1, num_gpus=1, resources={name: 1})
    try:
        assert driver.wait(DEADLINE_S) == 0
        assert fleet.json("pool", "delete", name)["left"] == {}
    finally:
        cluster.remove(node)
    first = attempts(fleet, "attempt.finished")[0]
    assert (first["kind"], first["blame"]) == (cause, "worker"), first
    assert len(fleet.lines()) == 2


def test_a_killed_runner_loses_no_task(fleet: Fleet, cluster: RayCluster):
    pool(fleet, cluster, "runner", "--workers", "1", "--option", "cpus=0.5")
    driver = fleet.start("run", tasks(fleet, 2), "--pool", "runner")
    started(fleet, 1)
    (folder,) = [one for one in folders(cluster, "runner") if (one / "runner.json").exists()]
    os.kill(json.loads((folder / "runner.json").read_text())["pid"], signal.SIGKILL)
    started(fleet, 2)
    (fleet.folder / "gate").touch()
    assert driver.wait(DEADLINE_S) == 0
    assert len(fleet.lines()) == 3
    assert fleet.json("pool", "delete", "runner")["left"] == {}
    assert folders(cluster, "runner") == []


def test_the_commands_of_the_guide_work(fleet: Fleet, cluster: RayCluster):
    guide = (Path(__file__).parents[3] / "docs" / "howto" / "run-on-ray.md").read_text()
    (tasks_file,) = re.findall(r"```toml\n(# tasks\.toml\n.*?)```", guide, re.DOTALL)
    (fleet.folder / "tasks.toml").write_text(tasks_file)
    commands = [line.split()[1:] for line in guide.splitlines() if line.startswith("evalfleet ")]
    assert [words[0] for words in commands] == ["pool", "run", "pool", "pool"]
    for words in commands:
        done = fleet.command(*(word.replace("ray://head:10001", cluster.address) for word in words))
        assert done.returncode == 0, (words, done.stdout, done.stderr)
    assert folders(cluster, "cluster") == []
