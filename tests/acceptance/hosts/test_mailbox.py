"""A node behind a mailbox: what it tells, how it ends, and what is left of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest
from tests.support.fleet import wait_for
from tests.support.pilots import PilotProcess, in_an_hour, pilot, said_hello, start_pilot
from tests.support.runner import a_spec

from evalfleet.core.hosts.health import OtherWay
from evalfleet.errors import HostUnreachable
from evalfleet.hosts.base import Departure, Host, Inbox, Launch
from evalfleet.hosts.local.launcher import runner_info
from evalfleet.hosts.mailbox.backend import MailboxBackend, MailboxHostSpec
from evalfleet.hosts.mailbox.boxes import Box, FolderBoxes
from evalfleet.hosts.mailbox.home_key import home_identity
from evalfleet.hosts.mailbox.pilot_files import pilot_start, put_pilot
from evalfleet.hosts.mailbox.pilot_view import PilotView
from evalfleet.layout import Home
from evalfleet.testing.backend_contract import Watcher

pytestmark = pytest.mark.anyio
SPEC = MailboxHostSpec(name="w1", generation=1, slots=2)
TAKEN = Departure(cause="preempted", message="its node was preempted")


class Node:
    """A box, its pilot, and the way to it."""

    def __init__(self, home: Home, boxes: FolderBoxes, box: Box, process: PilotProcess) -> None:
        self.home, self.boxes, self.box, self.process = home, boxes, box, process
        self.folder = Path(box.address)
        self.spool = process.folder / "state" / "spool"

    def backend(self, **more) -> MailboxBackend:
        return MailboxBackend(self.home, SPEC, self.boxes.carrier(self.box.address), **more)

    def objects(self, below: str = "") -> list[str]:
        found = [path for path in (self.folder / below).rglob("*") if path.is_file()]
        return sorted(path.relative_to(self.folder).as_posix() for path in found)


@pytest.fixture
async def node(home: Path, tmp_path: Path) -> AsyncIterator[Node]:
    boxes = FolderBoxes(tmp_path / "boxes")
    box = await boxes.open("w1", 1, in_an_hour())
    with pilot(Home(home), box, tmp_path / "node") as process:
        found = Node(Home(home), boxes, box, process)
        await said_hello(found.backend())
        yield found


@asynccontextmanager
async def connected(backend: MailboxBackend, epoch: int = 1) -> AsyncIterator[tuple[Host, Watcher]]:
    inbox = Inbox()
    async with backend.acquire("run1", epoch, inbox) as host:
        yield host, Watcher(inbox)


def sh(script: str, attempt: str = "run1.1.1", **fields) -> Launch:
    return Launch(
        **{"attempt_id": attempt, "spec": a_spec("sh", "-c", script), "secrets": {}, "valid_for_s": 60.0, **fields}
    )


async def test_what_ended_is_collected_after_the_node_was_killed(node: Node, tmp_path: Path):
    script = 'echo said; echo kept > "$EVALFLEET_ARTIFACTS/file"'
    async with connected(node.backend()) as (host, watcher):
        await host.launch([sh(script), sh("sleep 60", "run1.2.1")])
        end = await watcher.until("run1.1.1")
    wait_for(lambda: "attempts/run1.1.1.json" in node.objects(), "the upload")
    node.process.kill()
    async with connected(node.backend(is_gone=lambda: TAKEN), epoch=2) as (host, watcher):
        assert [(one.attempt_id, one.live) for one in await host.known()] == [("run1.1.1", False)]
        assert await host.observe("run1.1.1", end.number - 1)
        assert (await watcher.until("run1.1.1")).data["exit_code"] == 0
        assert len(watcher.seen) == 1, "known events are not told again"
        assert await host.observe("run1.2.1", 5)
        assert (await watcher.until("run1.2.1")).data["cause"] == "preempted", (
            "what had not ended is lost with the node"
        )
        with pytest.raises(FileNotFoundError, match="its node was preempted"):
            await host.collect("run1.2.1", tmp_path / "lost", {})
        for _ in range(2):
            await host.collect("run1.1.1", tmp_path / "there", {})
        assert (tmp_path / "there" / "stdout.log").read_text() == "said\n"
        assert (tmp_path / "there" / "artifacts" / "file").read_text() == "kept\n"
        assert await host.preemption_notice() == "its node was preempted"
        await host.launch([sh("true", "run1.3.1")])
        assert (await watcher.until("run1.3.1")).data["cause"] == "preempted"
        await host.forget(["run1.1.1"])
        assert await host.known() == []
    assert node.objects("attempts") == []
    async with connected(node.backend(is_gone=lambda: TAKEN), epoch=3) as (host, _):
        assert await host.known() == [], "an empty box says that nothing is left"


async def test_a_gone_node_is_given_up_only_when_its_box_says_that_nothing_is_there(node: Node):
    async with connected(node.backend()) as (host, watcher):
        await host.launch([sh("true")])
        await watcher.until("run1.1.1")
    wait_for(lambda: "attempts/run1.1.1.json" in node.objects(), "the upload")
    node.process.kill()
    left = node.backend(is_gone=lambda: TAKEN)
    assert await left.may_hold_results()
    assert await left.ask_otherwise() is OtherWay.SILENT
    async with connected(left, epoch=2) as (host, _):
        await host.forget(["run1.1.1"])
    assert not await left.may_hold_results()
    assert await left.ask_otherwise() is OtherWay.EVICTED
    shutil.rmtree(node.box.address)
    assert not await left.may_hold_results(), "a box that was deleted holds nothing"


CONTROLLER = """
import sys
from pathlib import Path
import anyio
from evalfleet.hosts.base import Inbox, Launch
from evalfleet.hosts.mailbox.backend import MailboxBackend, MailboxHostSpec
from evalfleet.hosts.mailbox.carrier import FolderCarrier
from evalfleet.layout import Home
from evalfleet.testing.backend_contract import launch

async def main(home, box):
    backend = MailboxBackend(Home(Path(home)), MailboxHostSpec(name="w1", generation=1, slots=2), FolderCarrier(box))
    async with backend.acquire("run1", 1, Inbox()) as host:
        await host.launch([launch("run1.1.1", "sleep", "60")])
        print("launched", flush=True)
        await anyio.sleep_forever()

anyio.run(main, *sys.argv[1:])
"""


def launch_and_die(node: Node) -> None:
    words = [sys.executable, "-c", CONTROLLER, str(node.home.path), node.box.address]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == "launched\n"
        controller.kill()


async def test_the_next_controller_goes_on_after_kill_9(node: Node):
    launch_and_die(node)
    async with connected(node.backend(), epoch=2) as (host, watcher):
        assert [(one.attempt_id, one.live) for one in await host.known()] == [("run1.1.1", True)]
        assert await host.observe("run1.1.1", -1)
        await host.stop(["run1.1.1"], "enough")
        assert (await watcher.until("run1.1.1")).data["cause"] == "cancelled"


async def test_sigterm_is_a_preemption_notice(node: Node):
    backend = node.backend()
    async with connected(backend) as (host, watcher):
        await host.launch([sh("while [ ! -e go ]; do sleep 0.05; done")])
        started = await watcher.until("run1.1.1", "started")
        node.process.process.send_signal(signal.SIGTERM)
        with anyio.fail_after(30):
            assert "signal 15" in await host.preemption_notice()
        await host.launch([sh("true", "run1.2.1")])
        assert (await watcher.until("run1.2.1")).data["cause"] == "preempted"
        assert node.process.process.poll() is None, "it waits for what runs"
        (Path(f"/proc/{started.data['pid']}/cwd") / "go").touch()
        assert (await watcher.until("run1.1.1")).data["exit_code"] == 0
    assert node.process.process.wait(60) == 0
    assert await backend.ask_otherwise() is OtherWay.SILENT, "it is not given up: its last end is in the box"
    assert runner_info(node.spool) is None, "its runner ended with it"
    async with connected(node.backend(), epoch=2) as (host, _):
        assert [one.attempt_id for one in await host.known()] == ["run1.1.1"], "its last end is still there"
        await host.forget(["run1.1.1"])
    assert await backend.ask_otherwise() is OtherWay.EVICTED


@pytest.mark.parametrize("way", ["told", "time"])
async def test_a_pilot_ends(way: str, home: Path, tmp_path: Path):
    boxes = FolderBoxes(tmp_path / "boxes")
    stops_at = in_an_hour() if way == "told" else in_an_hour() - 3598
    box = await boxes.open("w1", 1, stops_at)
    with pilot(Home(home), box, tmp_path / "node") as process:
        backend = await said_hello(MailboxBackend(Home(home), SPEC, boxes.carrier(box.address)))
        if way == "told":
            assert (await backend.control("ping"))["ok"]
            await backend.control("end", reason="the pool was deleted")
        assert process.process.wait(60) == 0
        reason = {"told": "the pool was deleted", "time": "its time is over"}[way]
        with pytest.raises(HostUnreachable, match=reason):
            async with connected(backend):
                pass


async def test_a_runner_that_was_reset_tells_what_it_lost(node: Node, tmp_path: Path):
    async with connected(node.backend()) as (host, watcher):
        await host.launch([sh("sleep 60")])
        await watcher.until("run1.1.1", "started")
        await node.backend().reset()
        with anyio.fail_after(30):
            await host.lost()
    async with connected(node.backend(), epoch=2) as (host, watcher):
        assert await host.observe("run1.1.1", -1)
        assert (await watcher.until("run1.1.1")).data["cause"] == "runner_lost"
        await host.collect("run1.1.1", tmp_path / "there", {})
        assert (tmp_path / "there" / "journal.jsonl").exists()


async def test_a_pilot_that_was_killed_alone_is_started_again_on_its_node(node: Node, tmp_path: Path):
    async with connected(node.backend()) as (host, watcher):
        await host.launch([sh("sleep 60")])
        await watcher.until("run1.1.1", "started")
    node.process.process.kill()
    node.process.process.wait()
    again = start_pilot(node.home, node.box, tmp_path / "node")
    try:
        async with connected(node.backend(), epoch=2) as (host, _):
            assert [one.live for one in await host.known()] == [True]
    finally:
        again.kill()


async def test_facts_and_gpus(home: Path, tmp_path: Path):
    boxes = FolderBoxes(tmp_path / "boxes")
    box = await boxes.open("w1", 1, in_an_hour())
    spool = tmp_path / "node" / "state" / "spool"
    (tmp_path / "node" / "state").mkdir(mode=0o700, parents=True)
    spool.mkdir(mode=0o700)
    (spool / "gpus.json").write_text(json.dumps([{"index": 0, "uuid": "GPU-0", "memory_mb": 80000}]))
    pinned = []
    with pilot(Home(home), box, tmp_path / "node", slots=3):
        carrier = boxes.carrier(box.address)
        backend = await said_hello(MailboxBackend(Home(home), SPEC, carrier, pin=pinned.append))
        assert [(one.slots, one.generation) for one in pinned] == [(3, 1)]
        facts = pinned[0].facts
        assert facts["cpus"] == len(os.sched_getaffinity(0))
        assert facts["kvm"] is (facts["kvm_trouble"] is None)
        assert facts["docker"] is (facts["docker_trouble"] is None)
        assert (await backend.control("facts"))["facts"]["hostname"] == facts["hostname"]
        async with connected(backend) as (host, _):
            assert [card.uuid for card in host.info.devices] == ["GPU-0"]
            beat = await PilotView(carrier, 1, pinned[0]).beat()
            assert beat is not None
            assert await backend.ask_otherwise() is OtherWay.ALIVE


async def test_a_task_gets_the_files_of_its_run(node: Node, tmp_path: Path):
    (tmp_path / "data").write_bytes(os.urandom(3 << 20))
    async with connected(node.backend()) as (host, watcher):
        await host.launch([sh("wc -c < data", files={"data": tmp_path / "data"})])
        assert (await watcher.until("run1.1.1")).data["exit_code"] == 0
        await host.collect("run1.1.1", tmp_path / "there", {})
    assert (tmp_path / "there" / "stdout.log").read_text().strip() == str(3 << 20)


async def test_nothing_is_left_of_a_session(node: Node):
    for epoch in (1, 2):
        async with connected(node.backend(), epoch) as (host, watcher):
            await host.launch([sh("true", f"run1.{epoch}.1")])
            await watcher.until(f"run1.{epoch}.1")
    wait_for(lambda: node.objects("to") == node.objects("from") == [], "the end of the sessions")
    assert len(node.objects("open")) == 1


@contextmanager
def shell(command: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sh", "-c", f"exec {command}"], env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_the_start_command_brings_what_a_bare_python_lacks(home: Path, tmp_path: Path):
    venv.create(tmp_path / "bare")
    boxes = FolderBoxes(tmp_path / "boxes")
    box = await boxes.open("w1", 1, in_an_hour())
    carrier = boxes.carrier(box.address)
    await put_pilot(carrier)
    identity = home_identity(Home(home))
    start = pilot_start(
        box,
        controller=identity.public.text,
        token=identity.token("w1", 1),
        slots=1,
        python=str(tmp_path / "bare" / "bin" / "python3"),
    )
    assert not any(secret in start.command for name, secret in start.secrets.items() if name.endswith("TOKEN"))
    (tmp_path / "tmp").mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path / "tmp"), **start.secrets}
    with shell(start.command, environment) as process:
        backend = await said_hello(MailboxBackend(Home(home), SPEC, carrier))
        await backend.control("end")
        assert process.wait(60) == 0
