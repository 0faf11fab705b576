"""Tasks on Slurm jobs while controllers, runners, jobs and nodes are killed: nothing lost, doubled or left.

The whole proof, by hand: `EVALFLEET_SLURM_KILLS=20 pytest -m long tests/faults/test_slurm_kills.py`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from tests.support.fleet import wait_for
from tests.support.slurm import needs_slurm, slurm_cluster
from tests.support.slurm_shell import SlurmShell, slurm_shell

KILLS = int(os.environ.get("EVALFLEET_SLURM_KILLS", "2"))  # of each kind
TASKS = 10 * KILLS
LIMIT_S = 60 + 60 * KILLS
pytestmark = [needs_slurm, pytest.mark.long, pytest.mark.timeout(3 * LIMIT_S)]


def until_ended(here: SlurmShell, process: subprocess.Popen[str], count: int) -> None:
    wait_for(lambda: len(set(here.ended())) >= count or process.poll() is not None, f"{count} ended", LIMIT_S)


def kill_runner(here: SlurmShell, rng: random.Random) -> int:
    """Of one job, if there is one."""
    found = sorted(here.cluster.folder.glob("evalfleet-jobs-*/*/*/*/spool/runner.json"))
    rng.shuffle(found)
    for path in found:
        try:
            os.kill(json.loads(path.read_text())["pid"], signal.SIGKILL)
        except (OSError, ValueError, KeyError):
            continue
        return 1
    return 0


def kill_job(here: SlurmShell, rng: random.Random) -> int:
    running = [number for number, state, _ in here.cluster.jobs("R") if state == "RUNNING"]
    for number in rng.sample(running, min(1, len(running))):
        here.cluster.run("scancel", number)
    return min(1, len(running))


def kill_node(here: SlurmShell, rng: random.Random) -> int:
    """With all jobs that it has; it comes back when Slurm has noticed."""
    node = rng.choice(here.cluster.nodes)
    jobs = here.cluster.run("squeue", "-h", "-t", "R", "-w", node, "-o", "%i").split()
    here.cluster.kill_node(node)
    here.cluster.wait_for(lambda: here.cluster.states()[node] == "down", f"{node} down")
    here.cluster.start_node(node)
    return len(jobs)


def test_tasks_survive_deaths_of_controllers_runners_jobs_and_nodes(tmp_path: Path):
    rng = random.Random(KILLS)
    with slurm_cluster(nodes=4, cpus=1) as cluster, slurm_shell(tmp_path, cluster) as here:
        here.create("p1", "--nodes", "4")
        process: subprocess.Popen[str] = here.fleet.start("run", here.work(TASKS, 0.5), "--pool", "p1")
        what = ["controller", "runner", "job", "node"] * KILLS
        rng.shuffle(what)
        lost = 0
        for number, each in enumerate(what):
            at = 2 + number * (TASKS - 4) // len(what)
            until_ended(here, process, at)
            if each != "controller":
                lost += {"runner": kill_runner, "job": kill_job, "node": kill_node}[each](here, rng)
            elif process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.communicate()
                process = here.fleet.start("resume", "latest")
        out = process.communicate(timeout=LIMIT_S)[0]
        assert process.returncode == 0, out
        report = here.fleet.json("report")
        outcomes: dict[str, int] = report["attempts"]["by_outcome"]
        assert (report["tasks"]["done"], outcomes["ok"]) == (TASKS, TASKS), report
        assert set(here.ended()) == {f"t_{number}" for number in range(TASKS)}
        # A task that had ended when its job was lost, and whose end was not written down yet, may run again.
        doubled = {key: count for key, count in Counter(here.ended()).items() if count > 1}
        assert sum(doubled.values()) - len(doubled) <= lost, (doubled, lost, outcomes)
        print(
            f"\n{TASKS} tasks, {KILLS} kills of each kind, {lost} jobs or runners lost: {outcomes}, ended twice: {doubled}"
        )
        here.delete("p1")
        here.require_nothing_left()
