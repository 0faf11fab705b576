"""A real Slurm cluster of the tests' own: its daemons run on loopback, in a temporary folder, and end with it.

All nodes are on this machine: each has a slurmd of its own, started with `-N`. Jobs run as this user, which must be root, because
slurmd starts them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

PATIENCE_S = 60.0
_SBIN = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
_CONF = """\
ClusterName={name}
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,batch_sched_delay=0,sched_min_interval=0,bf_interval=2
ReturnToService=2
SlurmdTimeout=6
KillWait=10
MinJobAge=60
PreemptMode={preempt}
PreemptType={preempt_type}
SlurmctldPort={port}
{nodes}
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES PriorityTier=1
PartitionName=short Nodes=ALL MaxTime=2 State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=off
"""


def is_installed() -> bool:
    programs = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo", "scontrol")
    return os.geteuid() == 0 and all(shutil.which(name, path=_SBIN) for name in programs)


needs_slurm = pytest.mark.skipif(not is_installed(), reason="Slurm is not installed, or this user is not root")


class SlurmCluster:
    """Controller, nodes and munge. `close` ends them, and everything that runs on the nodes."""

    def __init__(self, nodes: int = 2, cpus: int = 2) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="evalfleet-slurm-"))
        self.nodes = tuple(f"n{number}" for number in range(1, nodes + 1))
        self._cpus = cpus
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        (self.folder / "state").mkdir()
        self.conf = self.folder / "slurm.conf"
        self._ports = _free_ports(nodes + 1)
        self._write_conf()
        self.environment = {"SLURM_CONF": str(self.conf)}
        try:
            self._start_munge()
            self.start_controller()
            for node in self.nodes:
                self.start_node(node)
            self.wait_for(lambda: self.states() == dict.fromkeys(self.nodes, "idle"), "idle nodes")
        except BaseException:
            self.close()
            raise

    def _write_conf(self) -> None:
        host = socket.gethostname().partition(".")[0]
        port, *ports = self._ports
        described = [
            f"NodeName={node} NodeAddr=127.0.0.1 NodeHostname={host} Port={ports[at]} CPUs={self._cpus} RealMemory=2000"
            for at, node in enumerate(self.nodes)
        ]
        text = _CONF.format(
            name=f"t{port}",
            host=host,
            folder=self.folder,
            port=port,
            nodes="\n".join(described),
            preempt="CANCEL",
            preempt_type="preempt/partition_prio",
        )
        self.conf.write_text(text)

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        files = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munged.pid"}
        files |= {"seed-file": "seed", "log-file": "munged.log"}
        options = [f"--{option}={self.folder / name}" for option, name in files.items()]
        self._spawn("munged", "munged", "--foreground", "--force", *options)
        self.wait_for((self.folder / "munge.sock").exists, "munged")

    def start_controller(self) -> None:
        self._spawn("slurmctld", "slurmctld", "-D", "-f", str(self.conf))
        self.wait_for(lambda: "UP" in self._ask("scontrol", "ping"), "slurmctld")

    def start_node(self, node: str) -> None:
        self._spawn(node, "slurmd", "-D", "-N", node, "-f", str(self.conf))

    def kill(self, daemon: str) -> None:
        """`slurmctld`, or the slurmd of a node. What runs there goes on."""
        process = self._daemons.pop(daemon)
        process.kill()
        process.wait()

    def kill_node(self, node: str) -> None:
        """As if its power were cut: slurmd and everything that runs there."""
        self.kill(node)
        _end_processes(f"SLURMD_NODENAME={node}", str(self.conf))

    def states(self) -> dict[str, str]:
        lines = self._ask("sinfo", "-h", "-N", "-p", "p", "-o", "%N|%T").splitlines()
        return {name: state.rstrip("*~#!%$@^-") for name, _, state in (line.partition("|") for line in lines)}

    def jobs(self, states: str = "PD,R,CG,CF,S") -> list[tuple[str, str, str]]:
        """Id, state and name of each job."""
        lines = self._ask("squeue", "-h", "-t", states, "-o", "%i|%T|%j").splitlines()
        return [(parts[0], parts[1], parts[2]) for parts in (line.split("|") for line in lines)]

    def run(self, *words: str) -> str:
        """What one of Slurm's programs says. Raises CalledProcessError."""
        done = subprocess.run(words, env=self._env(), capture_output=True, text=True, check=True, timeout=PATIENCE_S)
        return done.stdout

    def wait_for(self, holds: Callable[[], object], what: str, limit_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + limit_s
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} after {limit_s:g} s; see {self.folder}/ctld.log")
            time.sleep(0.1)

    def close(self) -> None:
        for name in [*self.nodes, "slurmctld", "munged"]:
            process = self._daemons.pop(name, None)
            if process is not None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                process.kill()
                process.wait()
        _end_processes(f"SLURM_CONF={self.conf}", str(self.conf))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _env(self) -> dict[str, str]:
        return {**os.environ, "PATH": _SBIN, **self.environment}

    def _ask(self, *words: str) -> str:
        done = subprocess.run(words, env=self._env(), capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        return done.stdout

    def _spawn(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", *words],
                env=self._env(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )


def processes_of(*marks: str) -> dict[int, str]:
    """Processes whose environment has one of these lines, each with its TMPDIR."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                lines = (entry / "environ").read_bytes().decode("utf-8", "replace").split("\0")
                if set(marks) & set(lines):
                    folder = next((line for line in lines if line.startswith("TMPDIR=")), "")
                    found[int(entry.name)] = folder
    return found


def _end_processes(mark: str, conf: str) -> None:
    """Kill what runs in jobs. Tasks have none of Slurm's variables, but the folder of their job."""
    ours = processes_of(f"SLURM_CONF={conf}")
    jobs = {folder for pid, folder in processes_of(mark).items() if pid in ours and "evalfleet-jobs" in folder}
    steps = {_parent(pid) for pid in processes_of(mark)}
    for pid in steps & ours.keys():  # first, else they report the deaths of the others
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for _ in range(3):
        marked = processes_of(mark) if mark.startswith("SLURM_CONF=") else processes_of(mark).keys() & ours.keys()
        for pid in {*marked, *(processes_of(*jobs) if jobs else ())}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def slurm_cluster(nodes: int = 2, cpus: int = 2) -> Generator[SlurmCluster]:
    cluster = SlurmCluster(nodes, cpus)
    try:
        yield cluster
    finally:
        cluster.close()
