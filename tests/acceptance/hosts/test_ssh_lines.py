"""Lines that are cut, silent or slow: never an attempt's failure, and never a lost event."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from tests.support import sshd
from tests.support.fleet import wait_for

from evalfleet.core.hosts.health import OtherWay, Patience
from evalfleet.engine.controller import take
from evalfleet.engine.settings import EngineSettings
from evalfleet.engine.supervisor import Ending, Supervisor
from evalfleet.errors import BackendError
from evalfleet.hosts.base import AttemptEvent, FixedFleet, Host, Inbox
from evalfleet.hosts.ssh.backend import SshBackend, SshSettings
from evalfleet.hosts.ssh.connection import Keepalive
from evalfleet.layout import Home
from evalfleet.model import AttemptState, Outcome, Policy, TaskSpec
from evalfleet.store.open import open_store
from evalfleet.testing.backend_contract import Watcher, launch

pytestmark = pytest.mark.anyio

QUICK = Keepalive(interval_s=0.5, count=2)
DEADLINE_S = 60.0


@pytest.fixture
def box(tmp_path: Path) -> Iterator[sshd.Sshd]:
    with sshd.host(tmp_path) as server:
        yield server


@pytest.fixture
def line(box: sshd.Sshd) -> Iterator[sshd.Line]:
    line = sshd.Line(box.port)
    yield line
    line.close()


def through(line: sshd.Line, box: sshd.Sshd, home: Path, keepalive: Keepalive = QUICK) -> SshBackend:
    settings = SshSettings(idle_s=60.0, known_hosts=(), keepalive=keepalive)
    return SshBackend(Home(home), box.spec(port=line.port), settings)


@contextlib.asynccontextmanager
async def connected(backend: SshBackend, epoch: int = 1) -> AsyncIterator[tuple[Host, Watcher]]:
    inbox = Inbox()
    async with backend.acquire("run1", epoch, inbox) as host:
        yield host, Watcher(inbox)


COUNT = 'i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo "{\\"step\\": $i}" >> "$EVALFLEET_EVENTS"; sleep 0.05; done'


def lines_of(seen: list[AttemptEvent]) -> list[int]:
    return [one["step"] for event in seen if event.type == "progress" for one in event.data["lines"]]


async def test_cut_connections_lose_no_event(box: sshd.Sshd, home: Path):
    """The servers of the connections are killed again and again; each time the next one goes on after the last event."""
    backend = SshBackend(Home(home), box.spec(), SshSettings(known_hosts=()))
    seen: list[AttemptEvent] = []
    cuts = 0
    with anyio.fail_after(DEADLINE_S):
        for epoch in range(1, 100):
            inbox = Inbox()
            async with backend.acquire("run1", epoch, inbox) as host:
                if epoch == 1:
                    await host.launch([launch("run1.1.1", "sh", "-c", COUNT)])
                else:
                    assert await host.observe("run1.1.1", seen[-1].number)
                while not host.is_lost:
                    await inbox.wait(0.1)
                    got = inbox.take()
                    seen += got
                    if seen and seen[-1].type == "ended":
                        break
                    if any(one.type == "progress" for one in got):
                        cuts += await anyio.to_thread.run_sync(box.cut)
                        await host.lost()
            if seen[-1].type == "ended":
                break
    assert cuts > 1
    assert [one.number for one in seen] == list(range(len(seen)))
    assert lines_of(seen) == list(range(1, 41))
    assert seen[-1].data["exit_code"] == 0


async def test_requests_of_a_cut_connection_fail_as_the_backend(line: sshd.Line, box: sshd.Sshd, home: Path):
    async with connected(through(line, box, home)) as (host, _):
        await host.known()
        line.cut()
        with anyio.fail_after(DEADLINE_S):
            await host.lost()
        with pytest.raises(BackendError):
            await host.known()
        with pytest.raises(BackendError):
            await host.launch([launch("run1.1.1", "true")])
        with pytest.raises(BackendError):
            await host.collect("run1.1.1", home / "out", {})


async def test_a_silent_line_is_noticed(line: sshd.Line, box: sshd.Sshd, home: Path):
    backend = through(line, box, home)
    async with connected(backend) as (host, watcher):
        await host.launch([launch("run1.1.1", "sleep", "60")])
        await watcher.until("run1.1.1", "started")
        line.freeze()
        with anyio.fail_after(DEADLINE_S):
            with pytest.raises(BackendError):
                await host.known()
            await host.lost()
    line.cut()
    line.thaw()
    assert await backend.ask_otherwise() is OtherWay.ALIVE
    async with connected(backend, epoch=2) as (host, watcher):
        assert [one.live for one in await host.known()] == [True]
        await host.stop(["run1.1.1"], "enough")


async def test_a_stopped_server_says_nothing_of_the_runner(box: sshd.Sshd, home: Path):
    backend = SshBackend(Home(home), box.spec(), SshSettings(known_hosts=()))
    async with connected(backend) as (host, watcher):
        await host.launch([launch("run1.1.1", "sh", "-c", "sleep 0.5; echo done")])
        await watcher.until("run1.1.1", "started")
        box.stop()
        await host.lost()
    assert await backend.ask_otherwise() is OtherWay.SILENT
    box.start()
    assert await backend.ask_otherwise() is OtherWay.ALIVE
    async with connected(backend, epoch=2) as (host, watcher):
        assert await host.observe("run1.1.1", 1)
        assert (await watcher.until("run1.1.1")).data["exit_code"] == 0


async def test_a_hung_runner_is_silent(box: sshd.Sshd, home: Path):
    """It lives and does not answer: only patience tells, and `reset` ends it."""
    backend = SshBackend(Home(home), box.spec(), SshSettings(known_hosts=()))
    async with connected(backend) as (host, watcher):
        await host.launch([launch("run1.1.1", "sleep", "60")])
        await watcher.until("run1.1.1", "started")
        box.stop_runner()
        assert await backend.ask_otherwise() is OtherWay.SILENT
        await backend.reset()
        with anyio.fail_after(DEADLINE_S):
            await host.lost()
    async with connected(backend, epoch=2) as (host, watcher):
        assert await host.observe("run1.1.1", 1)
        assert (await watcher.until("run1.1.1")).data["cause"] == "runner_lost"


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_slow_line_is_no_lost_host(line: sshd.Line, box: sshd.Sshd, home: Path, tmp_path: Path):
    """Five seconds there and back, with the patience of the product."""
    backend = through(line, box, home, Keepalive())
    async with connected(backend):
        pass  # from here on it has a runner
    line.delay_s = 2.5

    async def ask_otherwise() -> None:
        assert await backend.ask_otherwise() is OtherWay.ALIVE

    async with anyio.create_task_group() as group:
        group.start_soon(ask_otherwise)
        async with connected(backend) as (host, watcher):
            await host.launch([launch("run1.1.1", "true")])
            assert (await watcher.until("run1.1.1")).data["exit_code"] == 0
            await host.collect("run1.1.1", tmp_path / "out", {})
            assert not host.is_lost
    assert (tmp_path / "out" / "journal.jsonl").exists()


async def drive(home: Path, backend: SshBackend, script: str, spoil) -> tuple[Ending | None, list[str], list]:
    """Drive a run of four tasks through an engine with short patience while `spoil` plays with the line.

    The script comes to the host as the run's file, and finds its programs with the host's variables, not with ours.
    """
    patience = Patience(quiet_s=0.5, give_up_s=30.0)
    settings = EngineSettings(lease_s=2.0, ping_s=0.5, audit_age_s=1.0, patience=patience)
    with contextlib.closing(open_store(home)) as store:
        (home / "task.sh").write_text(script)
        tasks = [TaskSpec(key=f"t_{number}", domain="t", command=("sh", "task.sh")) for number in range(4)]
        policy = Policy(workers=4, files=("task.sh",))
        run = take(store, store.runs.submit("x", policy, tasks, folder=str(home), base_env={"PATH": "/nowhere"}))
        one = Supervisor(
            store=store, home=Home(home), fleet=FixedFleet([backend]), run=run, settings=settings, secrets=lambda _: {}
        )
        ending = None
        async with anyio.create_task_group() as group:
            group.start_soon(spoil, store, run)
            ending = await one.drive()
            group.cancel_scope.cancel()
        events = [event.type for event in store.events.of_run(run.id, limit=10_000)]
        return ending, events, store.attempts.all(run.id)


@pytest.mark.long
async def test_a_frozen_line_costs_no_attempt(line: sshd.Line, box: sshd.Sshd, home: Path):
    async def spoil(store, run) -> None:
        running = lambda: any(one.state is AttemptState.RUNNING for one in store.attempts.all(run.id))  # noqa: E731
        await anyio.to_thread.run_sync(wait_for, running, "an attempt that runs")
        line.freeze()
        await anyio.sleep(4.0)  # longer than the engine's lease and the keepalives
        line.cut()
        line.thaw()

    ending, events, attempts = await drive(home, through(line, box, home), "sleep 5", spoil)
    assert ending is Ending.SETTLED
    assert [one.outcome for one in attempts] == [Outcome.OK] * 4
    assert "worker.lost" not in events
    assert len(list((home / "runs").rglob("journal.jsonl"))) == 4
    assert box.runner() is None, "released"
