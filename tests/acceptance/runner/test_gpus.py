"""Leases of GPUs on a host: real runners and processes on GPUs that a file describes."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import nvidia
from tests.support.runner import RunnerClient, RunnerSpool, a_spec, is_alive, sh, wait_until

from evalfleet.model import JsonObject

# Leaves its group and session twice, drops every variable, and keeps what it inherited open.
HIDING = """
import os, sys, time
fds = [int(fd) for fd in os.environ["EVALFLEET_GPU_LOCK_FDS"].split(",")]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        script = "echo $$ > %s.new; mv %s.new %s; exec sleep 300" % ((sys.argv[1],) * 3)
        os.execve("/bin/sh", ["sh", "-c", script], {})
    os._exit(0)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
if "stay" in sys.argv:
    time.sleep(300)
"""


class Machine:
    """GPUs that several homes share: each spool links the same file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spools: list[RunnerSpool] = []
        self.rows: list[JsonObject] = []

    def describe(self, **fields: Any) -> None:
        """One GPU, or what changes of it."""
        first: JsonObject = {"index": 0, "uuid": "GPU-a", "memory_mb": 80000, "used_mb": 600, "processes": []}
        self.rows = [{**(self.rows[0] if self.rows else first), **fields}]
        self.write()

    def write(self) -> None:
        (self.folder / "new").write_text(json.dumps(self.rows))
        (self.folder / "new").rename(self.folder / "gpus.json")

    def runner(self, name: str) -> RunnerSpool:
        spool = RunnerSpool(self.folder / name)
        if not (self.folder / name / "gpus.json").is_symlink():
            (self.folder / name / "gpus.json").symlink_to(self.folder / "gpus.json")
        spool.start()
        self.spools.append(spool)
        return spool

    def is_locked(self, uuid: str = "GPU-a") -> bool:
        with (self.folder / "gpu-locks" / f"{uuid}.lock").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """One runner for all tests: starting it would take longer than most of them."""
    found = Machine(tmp_path_factory.mktemp("gpus"))
    found.describe()
    found.runner("one")
    yield found
    for spool in found.spools:
        spool.close()
    assert all("Traceback" not in spool.log() for spool in found.spools)


@pytest.fixture
def machine(shared: Machine) -> Machine:
    shared.rows = []
    shared.describe()
    return shared


@pytest.fixture
def spool(machine: Machine) -> RunnerSpool:
    return machine.spools[0]


@pytest.fixture
def client(machine: Machine, spool: RunnerSpool) -> Iterator[RunnerClient]:
    with spool.client() as connection:
        yield connection
        machine.describe(used_mb=600, processes=[])
        for one in connection.must("hello", protocol=1)["attempts"]:
            if one["state"] == "running":
                connection.must("cancel", run="r", epoch=1, attempt=one["attempt"])
                connection.end(one["attempt"])
            connection.must("ack", run="r", epoch=1, attempt=one["attempt"])


def on(*command: str, uuid: str = "GPU-a", memory_mb: int | None = None, **fields: Any) -> JsonObject:
    return a_spec(*command, gpus=[{"uuid": uuid, "index": 7, "memory_mb": memory_mb}], **fields)


def gpu(client: RunnerClient) -> JsonObject:
    return client.must("inventory")["gpus"][0]


def pid_in(path: Path) -> int:
    return int(wait_until(lambda: path.exists() and path.read_text().strip(), f"a pid in {path}"))


def test_what_an_attempt_sees_of_its_gpus(machine: Machine, client: RunnerClient, spool: RunnerSpool) -> None:
    machine.rows.append({"index": 1, "uuid": "GPU-b", "memory_mb": 80000})
    machine.write()
    gpus = [{"uuid": "GPU-b", "index": 9, "memory_mb": 4000}, {"uuid": "GPU-a", "index": 8, "memory_mb": None}]
    script = "import json, os; json.dump(dict(os.environ), open(os.environ['EVALFLEET_RESULT'], 'w')); "
    script += "[os.fstat(int(fd)) for fd in os.environ['EVALFLEET_GPU_LOCK_FDS'].split(',')]"
    for style, seen in (("index", "1,0"), ("uuid", "GPU-b,GPU-a")):
        env = {"CUDA_VISIBLE_DEVICES": "5"}
        end = client.run(style, sys.executable, "-c", script, gpus=gpus, gpu_env=style, env=env)
        assert end["exit_code"] == 0, end
        assert (end["result"]["CUDA_DEVICE_ORDER"], end["result"]["CUDA_VISIBLE_DEVICES"]) == ("PCI_BUS_ID", seen)
        told = json.loads(end["result"]["EVALFLEET_GPUS"])
        # the place of a card is the one that it has now: it may have moved since it was leased
        assert [(one["uuid"], one["index"], one["memory_mb"]) for one in told] == [
            ("GPU-b", 1, 4000),
            ("GPU-a", 0, None),
        ]
    assert not machine.is_locked()
    assert (machine.folder / "gpu-locks").stat().st_mode & 0o7777 == 0o1777
    assert (machine.folder / "gpu-locks" / "GPU-a.lock").stat().st_mode & 0o777 == 0o666


def test_a_bad_wish_is_refused(client: RunnerClient) -> None:
    for gpus in ([{"uuid": "../x"}], [{"uuid": "GPU-a"}] * 2, [{"index": 0}], "all", [{"uuid": "G", "memory_mb": "1"}]):
        answer = client.ask("launch", run="r", epoch=1, attempt="a", secrets={}, spec=a_spec("true", gpus=gpus))
        assert (answer["ok"], answer["error"]) == (False, "bad_request"), gpus
    spec = on("true", gpu_env="both")
    assert client.ask("launch", run="r", epoch=1, attempt="a", secrets={}, spec=spec)["error"] == "bad_request"


def test_who_is_on_it_keeps_an_attempt_away(machine: Machine, client: RunnerClient) -> None:
    machine.describe(processes=[{"pid": os.getpid(), "memory_mb": 9000}])
    end = client.run("foreign", "true", gpus=[{"uuid": "GPU-a"}])
    assert (end["cause"], end["started_at"]) == ("gpu_taken", None)
    assert f"process {os.getpid()} (" in end["message"]
    assert "9000 MB" in end["message"]
    assert gpu(client)["foreign"] == [os.getpid()]
    machine.describe(processes=[], used_mb=5000)
    end = client.run("hidden", "true", gpus=[{"uuid": "GPU-a"}])
    assert (end["cause"], "5000 MB in use that no process" in end["message"]) == ("gpu_taken", True)
    assert (gpu(client)["foreign"], gpu(client)["unexplained_mb"]) == ([], 5000)
    machine.describe(used_mb=600)
    # Each waits for a while whether it comes free, so both at the same time.
    client.launch("large", on("true", memory_mb=90000))
    client.launch("gone", on("true", uuid="GPU-z"))
    end = client.end("large")
    assert (end["cause"], "has 80000 MB left of 80000" in end["message"]) == ("gpu_taken", True)
    end = client.end("gone")
    assert (end["cause"], end["message"]) == ("gpu_taken", "GPU GPU-z is not on this host, which has GPU-a")
    assert client.run("free", "true", gpus=[{"uuid": "GPU-a"}])["cause"] == "exited"


def test_a_whole_card_is_not_shared_and_a_cancelled_attempt_frees_it(client: RunnerClient) -> None:
    client.launch("first", on("sleep", "300"))
    client.event("first", "started")
    for memory_mb in (None, 1000):
        end = client.run(f"second-{memory_mb}", "true", gpus=[{"uuid": "GPU-a", "memory_mb": memory_mb}])
        assert (end["cause"], end["message"]) == (
            "gpu_taken",
            "GPU GPU-a is leased by attempt first, and cannot be shared",
        )
    client.must("cancel", run="r", epoch=1, attempt="first")
    assert client.end("first")["cause"] == "cancelled"
    assert client.run("third", "true", gpus=[{"uuid": "GPU-a"}])["cause"] == "exited"


def test_those_who_share_start_up_one_after_the_other(machine: Machine, client: RunnerClient, tmp_path: Path) -> None:
    says = "while [ ! -e {0} ]; do sleep 0.02; done; echo '{{\"ready\": true}}' >> $EVALFLEET_EVENTS; sleep 300"
    client.launch("a", on(*sh(says.format(tmp_path / "a")), memory_mb=30000))
    client.event("a", "started")
    client.launch("b", on("sleep", "300", memory_mb=30000))
    client.launch("c", on("sleep", "300", memory_mb=30000))
    client.launch("d", on("sleep", "300", memory_mb=10000))
    client.must("cancel", run="r", epoch=1, attempt="d")
    assert client.end("d")["cause"] == "cancelled"  # one that waits can be cancelled, and has no process
    assert client.end("d")["started_at"] is None
    client.must("ping")
    assert [event["type"] for event in client.of("b")] == ["launched"]
    (tmp_path / "a").touch()
    started = client.event("b", "started")
    assert client.event("a", "ready")["at"] <= started["at"]
    # the second shows half of its memory, and the third finds too little left
    rows = [{"pid": started["pid"], "memory_mb": 15000, "name": "server"}]
    machine.describe(processes=rows, used_mb=15600)
    end = client.end("c")
    assert (end["cause"], "has 20000 MB left of 80000" in end["message"]) == ("gpu_taken", True)
    shown = gpu(client)
    assert [(one["ours"], one["attempt"]) for one in shown["processes"]] == [(True, "b")]
    assert (shown["foreign"], shown["unexplained_mb"], shown["held"]) == ([], 0, None)
    machine.describe(processes=[], used_mb=600)


def test_memory_that_does_not_come_back_is_told(machine: Machine, client: RunnerClient) -> None:
    """One that comes back late is waited for; one that never does is told after the end of the wait."""
    client.launch("slow", on("sleep", "300"))
    client.event("slow", "started")
    machine.describe(used_mb=30600)
    client.must("cancel", run="r", epoch=1, attempt="slow")
    pid = client.event("slow", "started")["pid"]
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the death of the tree")
    assert client.must("hello", protocol=1)["attempts"][0]["state"] == "running"
    machine.describe(used_mb=650, settle_s=0.3)
    end = client.end("slow")
    assert (end["cause"], "gpus_dirty" in end) == ("cancelled", False)
    client.launch("leak", on("sleep", "300"))
    client.event("leak", "started")
    machine.describe(used_mb=30600)
    client.must("cancel", run="r", epoch=1, attempt="leak")
    end = client.end("leak")
    reason = "30600 MB of its memory are in use, but only 650 were before"
    assert end["gpus_dirty"] == [{"uuid": "GPU-a", "index": 0, "reason": reason, "pids": []}]
    assert not machine.is_locked()


@pytest.mark.parametrize("how", ["exits", "is cancelled"])
def test_a_holder_that_hid_is_killed_and_the_lock_is_free(
    machine: Machine, client: RunnerClient, tmp_path: Path, how: str
) -> None:
    words = ["stay"] if how == "is cancelled" else []
    client.launch("a", on(sys.executable, "-c", HIDING, str(tmp_path / "pid"), *words))
    pid = pid_in(tmp_path / "pid")
    if how == "is cancelled":
        assert machine.is_locked()
        client.must("cancel", run="r", epoch=1, attempt="a")
    end = client.end("a")
    assert "gpus_dirty" not in end
    assert not is_alive(pid)
    assert not machine.is_locked()


def test_an_orphan_keeps_its_gpu_until_the_next_runner_ends_it(machine: Machine, tmp_path: Path) -> None:
    """kill -9 of a runner: no home can start on the GPU while anybody of the tree lives, also one without any mark."""
    one, two = machine.spools[0], machine.runner("two")
    with one.client() as client:
        client.launch("a", on(sys.executable, "-c", HIDING, str(tmp_path / "pid"), "stay"))
        pid = pid_in(tmp_path / "pid")
        leader = client.event("a", "started")["pid"]
        with two.client() as other:
            assert gpu(client)["held"] is None
            assert str(one.folder) in gpu(other)["held"]
    one.kill()
    os.kill(leader, signal.SIGKILL)
    wait_until(lambda: not is_alive(leader), "the leader's death")
    with two.client() as other:
        end = other.run("b", "true", gpus=[{"uuid": "GPU-a"}])
        assert (end["cause"], str(one.folder) in end["message"]) == ("gpu_taken", True)
        assert f"process {pid}" in end["message"]
        one.start()
        assert not is_alive(pid)
        ended = one.journal("a")[-1]
        assert (ended["cause"], "gpus_dirty" in ended) == ("runner_lost", False)
        assert other.run("c", "true", gpus=[{"uuid": "GPU-a"}])["cause"] == "exited"
    with one.client() as client:
        client.must("ack", run="r", epoch=1, attempt="a")


def test_a_lock_file_with_a_trick_is_not_used(machine: Machine, client: RunnerClient, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("as it was")
    locks = machine.folder / "gpu-locks"
    shutil.rmtree(locks, ignore_errors=True)
    locks.mkdir()
    lock = locks / "GPU-a.lock"
    for trick in (
        lambda: lock.symlink_to(precious),
        lambda: lock.hardlink_to(precious),
        lambda: os.mkfifo(lock),
    ):
        trick()
        end = client.run(f"t{trick.__code__.co_firstlineno}", "true", gpus=[{"uuid": "GPU-a"}])
        assert (end["cause"], "cannot be used" in end["message"]) == ("gpu_taken", True)
        assert precious.read_text() == "as it was"
        lock.unlink()
    locks.rmdir()
    (tmp_path / "elsewhere").mkdir()
    locks.symlink_to(tmp_path / "elsewhere")
    assert client.run("folder", "true", gpus=[{"uuid": "GPU-a"}])["cause"] == "gpu_taken"
    assert list((tmp_path / "elsewhere").iterdir()) == []
    locks.unlink()


class Driver:
    """A runner on a machine with a driver of ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spool = RunnerSpool(folder / "spool")

    def start(self, **env: str) -> None:
        self.spool.start(600.0, EVALFLEET_GPU_LOCKS=str(self.folder / "locks"), **env)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    found = Driver(tmp_path)
    yield found
    found.spool.close()
    assert "Traceback" not in found.spool.log()


def test_a_slow_driver_holds_up_nobody(driver: Driver, tmp_path: Path) -> None:
    nvidia.put(tmp_path, 0, 0, pause_ms=60)
    driver.start(EVALFLEET_NVML=nvidia.library(tmp_path))
    with driver.spool.client() as client, driver.spool.client() as other:
        client.socket.sendall(b'{"id": 99, "do": "inventory"}\n')
        other.must("ping")
        assert other.must("hello", protocol=1)["gpus"] == []  # who only looks at the runner is not kept waiting
        assert select.select([client.socket], [], [], 0)[0] == []  # while that look goes on
        answer = client.read()
        assert (answer["id"], answer["gpus_from"]) == (99, "nvml")
        assert [one["uuid"] for one in answer["gpus"]] == ["GPU-2", "MIG-100", "MIG-102", "GPU-1"]
        nvidia.put(tmp_path, 0, 0)
        end = client.run("free", *sh("echo $CUDA_VISIBLE_DEVICES"), gpus=[{"uuid": "GPU-1"}])
        assert (end["cause"], end["tail"]) == ("exited", "3")
        # a fresh look at each launch, whatever was seen before
        nvidia.put(tmp_path, 900, os.getpid())
        end = client.run("taken", "true", gpus=[{"uuid": "GPU-2"}])
        assert (end["cause"], f"process {os.getpid()} (" in end["message"]) == ("gpu_taken", True)
        nvidia.put(tmp_path, 900, 0)
        assert "900 MB in use that no process" in client.run("hidden", "true", gpus=[{"uuid": "GPU-1"}])["message"]


def test_the_process_that_looks_keeps_nothing_of_the_runner(driver: Driver, tmp_path: Path) -> None:
    """It may hang in the driver for ever: then the locks of a dead runner must be free, and the next one must start."""
    nvidia.put(tmp_path, 0, 0)
    driver.start(EVALFLEET_NVML=nvidia.library(tmp_path))
    with driver.spool.client() as client:
        client.launch("a", on("sleep", "300", uuid="GPU-2"))
        client.event("a", "started")
        info = driver.spool.info()
        assert info is not None
        # a task that has only just begun shows no environment for a moment
        wait_until(lambda: len(_looking(info.pid)) == 1, "the one process that looks")
        looking = _looking(info.pid)
        os.kill(looking[0], signal.SIGSTOP)
        links = [os.readlink(path) for path in Path(f"/proc/{looking[0]}/fd").iterdir()]
        assert all(link == "/dev/null" or link.startswith("pipe:") for link in links), links
        driver.spool.kill()
        driver.start(EVALFLEET_NVML=nvidia.library(tmp_path))
        assert driver.spool.journal("a")[-1]["cause"] == "runner_lost"
        os.kill(looking[0], signal.SIGKILL)


def _looking(runner: int) -> list[int]:
    return [pid for pid in _children(runner) if b"EVALFLEET_TASK" not in _environ(pid)]


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _environ(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def test_a_library_that_cannot_be_loaded_is_told(driver: Driver, tmp_path: Path) -> None:
    """nvidia-smi is there, but what it loads is not: no GPU is leased, and the inventory says why."""
    (tmp_path / "nvidia-smi").touch(0o755)
    driver.start(EVALFLEET_NVML="libnothing.so.9", PATH=f"{tmp_path}:{os.defpath}")
    with driver.spool.client() as client:
        found = client.must("inventory")
        assert (found["gpus_from"], found["gpus"]) == (None, [])
        assert "NVIDIA's library cannot be loaded (libnothing.so.9" in found["gpus_problem"]
        assert "EVALFLEET_NVML" in found["gpus_problem"]
        assert client.run("a", "true", gpus=[{"uuid": "GPU-a"}])["cause"] == "gpu_taken"
