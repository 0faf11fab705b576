"""Pools of Slurm jobs by commands, on a real cluster whose jobs are real pilots and runners."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from tests.support.fleet import wait_for
from tests.support.slurm import SlurmCluster, needs_slurm
from tests.support.slurm_shell import PATIENCE_S, slurm_shell

pytestmark = [needs_slurm, pytest.mark.slow, pytest.mark.timeout(300)]


def test_two_homes_work_side_by_side_and_leave_nothing(tmp_path: Path, cluster: SlurmCluster):
    """Their pools and machines have the same names; boxes lie side by side, and no other user can read them."""
    boxes = tmp_path / "boxes"
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    with slurm_shell(tmp_path / "a", cluster, boxes) as one, slurm_shell(tmp_path / "b", cluster, boxes) as two:
        assert [row["host"] for row in one.create("p1", "--nodes", "1", "--partition", "p")["hosts"]] == ["evalfleet-1"]
        assert [row["host"] for row in two.create("p1", "--nodes", "1")["hosts"]] == ["evalfleet-1"]
        assert len(one.jobs("p1")) == 2
        folders = [boxes, *boxes.glob("*"), *boxes.glob("*/*")]
        assert len(folders) == 1 + 2 + 2
        assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
        assert "EVALFLEET_PILOT" not in str(cluster.run("scontrol", "show", "job"))

        process = one.fleet.start("run", one.work(3, 0.1, gate="go"), "--pool", "p1")
        wait_for(one.begun, "a task that began", PATIENCE_S)
        refused = one.fleet.command("pool", "delete", "p1", "--yes")
        assert refused.returncode == 3, refused.stdout + refused.stderr
        assert len(one.jobs("p1")) == 2
        reaped = two.fleet.json("reap", "--dry-run")
        assert reaped["resources"] == []
        assert list(reaped["others"].values()) == [1, 1], "its job and its box"
        two.delete("p1")
        assert len(one.jobs("p1")) == 1
        (one.fleet.folder / "go").touch()
        out = process.communicate(timeout=PATIENCE_S)[0]
        assert process.returncode == 0, out
        assert one.ended() == ["t_0", "t_1", "t_2"]
        one.delete("p1")
        one.require_nothing_left()


def test_a_cancelled_job_and_a_failed_node_are_told_apart(tmp_path: Path, cluster: SlurmCluster):
    with slurm_shell(tmp_path, cluster) as here:
        here.create("p1", "--nodes", "2")
        process = here.fleet.start("run", here.work(4, 0.1, gate="go"), "--pool", "p1")
        wait_for(lambda: len(here.begun()) == 2, "two tasks that began", PATIENCE_S)
        cancelled, failed = here.jobs("p1")
        node = here.node_of(failed)
        cluster.run("scancel", cancelled)
        cluster.kill_node(node)
        wait_for(lambda: len(here.begun()) >= 4, "two tasks that began again", PATIENCE_S)
        cluster.start_node(node)
        (here.fleet.folder / "go").touch()
        out = process.communicate(timeout=PATIENCE_S)[0]
        assert process.returncode == 0, out
        assert sorted(here.ended()) == ["t_0", "t_1", "t_2", "t_3"], "nothing was lost, nothing ended twice"
        told = here.told("p1")
        assert f"job {cancelled} on" in told
        assert "was cancelled: by scancel, or by an administrator" in told
        assert f"its node failed (Slurm: job {failed} on {node} is NODE_FAIL)" in told
        here.delete("p1")
        here.require_nothing_left()


def test_a_job_that_waits_says_why_and_an_outage_of_the_controller_is_waited_out(tmp_path: Path, cluster: SlurmCluster):
    with slurm_shell(tmp_path, cluster) as here:
        script = "#!/bin/sh\nsleep 600\n"
        (tmp_path / "other.sh").write_text(script)
        out = f"--output={tmp_path}/other.log"
        words = (
            "sbatch",
            "--parsable",
            "--exclusive",
            "--nodes=2",
            "--job-name=other",
            out,
            str(tmp_path / "other.sh"),
        )
        other = cluster.run(*words).strip()
        wait_for(lambda: here.node_of(other), "the job of another", PATIENCE_S)
        made = here.fleet.start("pool", "create", "p1", "--backend", "slurm", "--nodes", "2")
        wait_for(lambda: here.jobs("p1"), "the jobs", PATIENCE_S)
        wait_for(lambda: "no node has enough free (Resources)" in here.reasons("p1"), "the reason", PATIENCE_S)
        assert list(here.states("p1").values()) == ["creating", "creating"], "all wait at once"
        assert here.fleet.command("pool", "status", "p1").stdout.count("waits in Slurm's queue") == 2
        cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
        cluster.run("scancel", other)
        said = made.communicate(timeout=PATIENCE_S)[0]
        assert made.returncode == 0, said
        assert [here.node_of(job) for job in here.jobs("p1")] == ["n2", "n2"], "n1 is drained"
        cluster.run("scontrol", "update", "nodename=n1", "state=resume")
        cluster.run("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
        process = here.fleet.start("run", here.work(6, 0.3, gate="go"), "--pool", "p1")
        wait_for(lambda: len(here.begun()) == 2, "two tasks that began", PATIENCE_S)
        cluster.kill("slurmctld")
        (here.fleet.folder / "go").touch()
        wait_for(lambda: len(here.ended()) == 6, "tasks that end without slurmctld", PATIENCE_S)
        cluster.start_controller()
        out = process.communicate(timeout=PATIENCE_S)[0]
        assert process.returncode == 0, out
        assert len(here.begun()) == 6, "no job was taken for gone"
        here.delete("p1")
        here.require_nothing_left()


def test_the_commands_of_the_guide_work(tmp_path: Path, cluster: SlurmCluster):
    guide = (Path(__file__).parents[3] / "docs" / "howto" / "run-on-slurm.md").read_text()
    with slurm_shell(tmp_path, cluster) as here:
        (tasks_file,) = re.findall(r"```toml\n(# tasks\.toml\n.*?)```", guide, re.DOTALL)
        (here.fleet.folder / "tasks.toml").write_text(tasks_file)
        commands = [line.split()[1:] for line in guide.splitlines() if line.startswith("evalfleet ")]
        assert [words[0] for words in commands] == ["pool", "pool", "run", "pool", "pool", "reap"]
        for words in commands:
            done = here.fleet.command(*words, *(["--yes"] if "delete" in words else []))
            assert done.returncode == 0, (words, done.stdout, done.stderr)
        here.require_nothing_left()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--partition", "nowhere"), "invalid partition specified: nowhere"),
        (("--option", "constraint=none"), "Invalid feature specification"),
        (("--partition", "short", "--time", "5m"), "the partition allows less time; ask for less (--time)"),
    ],
)
def test_what_slurm_refuses_is_told_and_leaves_nothing(
    tmp_path: Path, cluster: SlurmCluster, options: tuple[str, ...], said: str
):
    with slurm_shell(tmp_path, cluster) as here:
        done = here.fleet.command("pool", "create", "p1", "--backend", "slurm", *options)
        assert done.returncode == 3, done.stdout + done.stderr
        assert said in done.stdout + done.stderr
        here.delete("p1")
        here.require_nothing_left()
