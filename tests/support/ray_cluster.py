"""A real Ray cluster of several nodes on this machine, in a process of its own that ends with its standard input.

`python -m tests.support.ray_cluster` reads lines (`add JSON`, `remove N`, `head`, `stop`) and answers each with a line.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

OBJECTS = 80 << 20  # the least that Ray takes is 75 MiB
END_S = 30.0
NOTICE_S = 2.0


class RayCluster:
    """The cluster as a test uses it."""

    def __init__(self, nodes: int = 3, cpus: int = 2) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="efr-", dir="/tmp"))
        self.home = self._folder / "home"
        self.home.mkdir()
        env = {
            **os.environ,
            "HOME": str(self.home),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_health_check_period_ms": "500",
        }
        env |= {"RAY_health_check_failure_threshold": "4", "RAY_TMPDIR": str(self._folder)}
        words = [sys.executable, "-m", "tests.support.ray_cluster"]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=env, start_new_session=True
            )
        self.address = str(self._ask("start", {"num_cpus": cpus}))
        self.nodes: list[int] = [0]
        for _ in range(nodes - 1):
            self.add(num_cpus=cpus)

    def add(self, **arguments: Any) -> int:
        """Add a node; returns its number."""
        self.nodes.append(int(self._ask("add", arguments)))
        return self.nodes[-1]

    def remove(self, number: int) -> None:
        """Kill a node as a machine dies."""
        self._ask("remove", number)
        self.nodes.remove(number)

    def preempt(self, number: int) -> None:
        """Give notice that a node will be taken away, as an autoscaler does for a spot machine, and wait until that time."""
        self._ask("preempt", number)

    def node_id(self, number: int) -> str:
        return str(self._ask("id", number))

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, word: str, about: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([word, about]).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, (self._folder / "log").read_text()[-4000:]
        return json.loads(line)


def _preempt(address: str, node: str) -> bool:
    client = import_module("ray._raylet").GcsClient(address=address)
    reasons = import_module("ray.core.generated.autoscaler_pb2").DrainNodeReason
    reason = reasons.Value("DRAIN_NODE_REASON_PREEMPTION")
    deadline = time.time() + NOTICE_S
    accepted, why = client.drain_node(node, reason, "the spot machine is taken back", int(deadline * 1000))
    assert accepted, why
    while time.time() < deadline:
        time.sleep(0.05)
    return True


def main() -> None:
    from ray.cluster_utils import Cluster

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    nodes: list[Any] = []
    cluster: Any = None
    common = {"object_store_memory": OBJECTS, "include_dashboard": False}
    for line in sys.stdin:
        word, about = json.loads(line)
        said: Any = None
        if word == "start":
            cluster = Cluster(initialize_head=True, head_node_args={**common, **about})
            nodes.append(cluster.head_node)
            said = cluster.address
        elif word == "add":
            nodes.append(cluster.add_node(**{**common, **about}))
            said = len(nodes) - 1
        elif word == "id":
            said = nodes[about].node_id
        elif word == "preempt":
            said = _preempt(cluster.address, nodes[about].node_id)
        else:
            cluster.remove_node(nodes[about], allow_graceful=False)
        answers.write(json.dumps(said) + "\n")
    if cluster is not None:
        cluster.shutdown()


if __name__ == "__main__":
    main()
