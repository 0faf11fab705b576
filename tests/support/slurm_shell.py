"""A home whose commands use a Slurm cluster of the tests."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.fleet import Fleet, fleet_at, wait_for
from tests.support.slurm import SlurmCluster, processes_of

PATIENCE_S = 90.0


class SlurmShell:
    """A person's shell on the login node."""

    def __init__(self, fleet: Fleet, cluster: SlurmCluster, boxes: Path) -> None:
        self.fleet = fleet
        self.cluster = cluster
        self.boxes = boxes
        fleet.env |= {
            **cluster.environment,
            "EVALFLEET_SLURM_FOLDER": str(boxes),
            "EVALFLEET_SLURM_POLL": "200ms",
            "TMPDIR": str(cluster.folder),
        }

    def create(self, name: str, *options: str, code: int = 0) -> dict[str, Any]:
        return self.fleet.json("pool", "create", name, "--backend", "slurm", *options, code=code)

    def status(self, name: str) -> dict[str, Any]:
        return self.fleet.json("pool", "status", name)

    def states(self, name: str) -> dict[str, str]:
        return {row["host"]: row["state"] for row in self.status(name)["hosts"]}

    def reasons(self, name: str) -> str:
        return " ".join(str(row["reason"]) for row in self.status(name)["hosts"])

    def told(self, name: str) -> str:
        """All that the pool's events say."""
        return str(self.fleet.events(f"pool:{name}"))

    def jobs(self, name: str) -> list[str]:
        """The numbers of the live jobs of a pool."""
        lines = self.cluster.run("squeue", "-h", "-t", "PD,R,CF", "-o", "%i|%k").splitlines()
        return [line.partition("|")[0] for line in lines if f'"evalfleet-pool":"{name}"' in line]

    def node_of(self, job: str) -> str:
        return self.cluster.run("squeue", "-h", "-j", job, "-o", "%N").strip()

    def work(self, count: int, seconds: float, gate: str = "") -> str:
        """A file of tasks that write a line to the ledger when they begin and when they end."""
        ledger = self.fleet.ledger
        waits = f"while [ ! -e {self.fleet.folder}/{gate} ]; do sleep 0.05; done; " if gate else ""
        script = f"echo b $1 >> {ledger}; {waits}sleep {seconds}; echo e $1 >> {ledger}"
        rows = [{"key": f"t_{n}", "command": ["sh", "-c", script, "-", f"t_{n}"]} for n in range(count)]
        return self.fleet.tasks(rows, retry_base="200ms")

    def begun(self) -> list[str]:
        return [line[2:] for line in self.fleet.lines() if line.startswith("b ")]

    def ended(self) -> list[str]:
        return [line[2:] for line in self.fleet.lines() if line.startswith("e ")]

    def delete(self, name: str) -> None:
        done = self.fleet.command("pool", "delete", name, "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "nothing of it is left" in done.stdout

    def require_nothing_left(self) -> None:
        """No job, no box, no folder on a node, and no process but those of the cluster."""
        assert self.cluster.jobs("PD,R,CF") == []
        assert list(self.boxes.iterdir()) == []
        node_folders = self.cluster.folder / "evalfleet-jobs-0"
        wait_for(lambda: not node_folders.exists() or not list(node_folders.iterdir()), "empty folders of the nodes")
        inside = f"TMPDIR={node_folders}"
        assert [
            pid for pid, folder in processes_of(f"SLURM_CONF={self.cluster.conf}").items() if folder.startswith(inside)
        ] == []


@contextmanager
def slurm_shell(folder: Path, cluster: SlurmCluster, boxes: Path | None = None) -> Generator[SlurmShell]:
    with contextmanager(fleet_at)(folder) as fleet:
        yield SlurmShell(fleet, cluster, boxes or folder / "boxes")
