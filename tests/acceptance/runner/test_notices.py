"""Notice of an eviction: real runners, in front of a metadata service played by a real HTTP server or by the emulator."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.support import imds as service
from tests.support import sshd
from tests.support.cloud import LOGIN, cloud
from tests.support.imds import NAME, Imds, preempt
from tests.support.runner import RunnerClient, RunnerSpool, a_spec, wait_until

from evalfleet.azure.settings import ADMIN_USER
from evalfleet.hosts.base import Inbox
from evalfleet.hosts.protocol.link import RunnerLink
from evalfleet.hosts.ssh.backend import SshBackend, SshSettings
from evalfleet.hosts.ssh.login.hosts_file import Login, SshHostSpec
from evalfleet.layout import Home
from evalfleet.testing.backend_contract import Watcher, launch


@pytest.fixture
def imds() -> Iterator[Imds]:
    with service.running() as server:
        yield server


@pytest.fixture
def spool(tmp_path: Path, imds: Imds) -> Iterator[RunnerSpool]:
    with started(tmp_path, imds) as runner:
        yield runner


@contextlib.contextmanager
def started(folder: Path, imds: Imds) -> Iterator[RunnerSpool]:
    runner = RunnerSpool(folder / "spool")
    proxy = "http://127.0.0.1:1"
    runner.start(EVALFLEET_IMDS=imds.url, http_proxy=proxy, HTTP_PROXY=proxy, ALL_PROXY=proxy)
    try:
        yield runner
    finally:
        runner.close()
    assert "Traceback" not in runner.log()


def notice(client: RunnerClient) -> str:
    """Wait for the notice on a connection that asks nothing."""
    line = client.read()
    assert line["notice"] == "doomed", line
    return line["doomed"]


def test_nobody_is_asked_before_a_controller_wants_it(spool: RunnerSpool, imds: Imds) -> None:
    with spool.client() as client:
        assert client.must("hello", protocol=1, notices=True)["doomed"] is None
        client.run("a.1.1", "true")
        assert imds.asked == []
        assert client.must("watch")["doomed"] is None
        client.must("watch")
        imds.wait_asked_in_all("scheduledevents", 3)
        assert imds.count("instance") == 1, "its name is asked for once, and by one watcher"
    assert {method for method, _ in imds.asked} == {"GET"}, "the event is not acked: the time belongs to the task"


def test_a_notice_reaches_everybody_and_ends_launching(spool: RunnerSpool, imds: Imds) -> None:
    with spool.client() as one, spool.client() as two, spool.client() as old:
        for client in (one, two):
            client.must("hello", protocol=1, notices=True)
        old.must("hello", protocol=1)
        one.must("watch")
        one.launch("a.1.1", a_spec("sleep", "60"))
        imds.wait_asked("scheduledevents", 1)
        imds.events = [preempt("other"), preempt(NAME, kind="Reboot"), preempt("other", NAME.upper())]
        assert notice(two) == ("the cloud preempts spot-3, not before Mon, 19 Sep 2022 18:29:47 GMT (event 602D9444)")
        one.event("a.1.1", "started")
        refused = one.ask("launch", attempt="a.2.1", run="r", epoch=1, spec=a_spec("true"), secrets={})
        assert (refused["error"], "spot-3" in refused["message"]) == ("draining", True)
        assert one.launch("a.1.1", a_spec("sleep", "60"))["known"], "what it has is no new launch"
        assert old.must("ping"), "who does not know notices is not told, and goes on"
        with spool.client() as later:
            assert "spot-3" in later.must("hello", protocol=1)["doomed"]
        assert one.must("watch")["doomed"]
        one.must("cancel", run="r", epoch=1, attempt="a.1.1")
        assert one.end("a.1.1")["cause"] == "cancelled", "what runs goes on until it ends, or the machine does"
    assert {method for method, _ in imds.asked} == {"GET"}
    assert not spool.attempt("a.2.1").exists()


def test_neighbours_and_other_events_are_harmless(spool: RunnerSpool, imds: Imds) -> None:
    imds.events = [preempt("spot-33", "pot-3"), preempt(NAME, kind="Freeze"), {"EventType": "Preempt"}]
    with spool.client() as client:
        client.must("watch")
        imds.wait_asked_in_all("scheduledevents", 2)
        assert client.must("hello", protocol=1)["doomed"] is None
        assert client.run("a.1.1", "true")["exit_code"] == 0


STUTTERS = ((b"", 1), (b"[]", 1), (b"\xff", 1), (b'{"compute": []}', 1), (b"<html>", 2))  # an answer, and how often


def test_a_service_that_stutters_is_asked_again(tmp_path: Path) -> None:
    """Each in front of a runner of its own, and all at the same time: they wait longer and longer between their questions."""
    with contextlib.ExitStack() as stack:
        watching = [(*stack.enter_context(stuttering(tmp_path / str(number), body)), times)
                    for number, (body, times) in enumerate(STUTTERS)]  # fmt: skip
        for imds, _, _, times in watching:
            imds.wait_asked_in_all("metadata", times)
            imds.body, imds.status, imds.events = None, 200, [preempt(NAME, EventStatus="Started", NotBefore="")]
        for _, spool, client, _ in watching:
            assert notice(client) == "the cloud preempts spot-3, now (event 602D9444)"
            assert spool.log().count("no answer about notices") == 1, "said once, not with every try"


@contextlib.contextmanager
def stuttering(folder: Path, body: bytes) -> Iterator[tuple[Imds, RunnerSpool, RunnerClient]]:
    """A service that gives one answer to everything, and a runner that watches it."""
    with service.running() as imds, started(folder, imds) as spool, spool.client() as client:
        imds.body, imds.status = body, 500 if body == b"<html>" else 200
        client.must("hello", protocol=1, notices=True)
        client.must("watch")
        yield imds, spool, client


def test_no_service_costs_nothing_but_a_line(tmp_path: Path) -> None:
    spool = RunnerSpool(tmp_path / "spool")
    spool.start(EVALFLEET_IMDS="http://127.0.0.1:1")
    try:
        with spool.client() as client:
            client.must("watch")
            assert client.run("a.1.1", "true")["exit_code"] == 0
            wait_until(lambda: "no answer about notices" in spool.log(), "the line")
    finally:
        spool.close()


def test_watching_is_cheap(spool: RunnerSpool, imds: Imds) -> None:
    info = spool.info()
    assert info is not None
    with spool.client() as client:
        client.must("watch")
        imds.wait_asked_in_all("scheduledevents", 1)
        before = _cpu_s(info.pid)
        imds.wait_asked("scheduledevents", 3)
        assert (_cpu_s(info.pid) - before) / 3 < 0.05, "of a second, per second"


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.anyio
async def test_a_runner_that_runs_already_begins_to_watch(tmp_path: Path, home: Path, imds: Imds) -> None:
    settings = SshSettings(idle_s=60.0, known_hosts=())
    with sshd.host(tmp_path, "box", f"SetEnv EVALFLEET_IMDS={imds.url} HOME={tmp_path / 'box' / 'home'}") as server:
        plain = SshBackend(Home(home), server.spec(), settings)
        watching = SshBackend(Home(home), server.spec(), SshSettings(idle_s=60.0, known_hosts=(), watch_eviction=True))
        async with plain.acquire("run1", 1, Inbox()) as first:
            await first.known()
            assert imds.asked == []
            inbox = Inbox()
            async with watching.acquire("run2", 1, inbox) as second:
                await anyio.to_thread.run_sync(imds.wait_asked, "scheduledevents", 1)
                imds.events = [preempt(NAME)]
                with anyio.fail_after(30):
                    assert NAME in await second.preemption_notice()
                    assert NAME in await first.preemption_notice(), "everybody on that machine is concerned"
                watcher = Watcher(inbox)
                await second.launch([launch("run2.1.1", "true")])
                end = await watcher.until("run2.1.1")
                assert (end.data["cause"], NAME in end.data["message"]) == ("preempted", True)
                assert not second.is_lost
        async with plain.acquire("run3", 1, Inbox()) as third:
            with anyio.fail_after(30):
                assert NAME in await third.preemption_notice(), "who comes later is told with the greeting"


@pytest.mark.anyio
async def test_an_emulated_vm_tells_that_it_is_evicted(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with cloud() as here:
        made = here.spec("spot", spot=True)
        address = await here.vms.address(await here.made(made))
        here.emulator.world.clock.speed = 1.0  # a notice is as long as on Azure
        assert address is not None
        key = home.parent / "login"
        key.write_bytes(LOGIN.export_private_key())
        login = Login(address=address, port=here.settings.ssh_port, user=ADMIN_USER)
        spec = SshHostSpec(name="spot", login=login, key=key, host_key=made.host_key.public)
        backend = SshBackend(Home(home), spec, SshSettings(known_hosts=(), watch_eviction=True))
        async with backend.acquire("run1", 1, Inbox()) as host:
            with anyio.move_on_after(1.5) as quiet:
                await host.preemption_notice()
            assert quiet.cancelled_caught
            since = anyio.current_time()
            await here.vms.simulate_eviction("spot")
            with anyio.fail_after(20):
                assert "the cloud preempts spot, not before" in await host.preemption_notice()
            with capsys.disabled():
                print(f" [from the notice to `doomed`: {anyio.current_time() - since:.2f} s]", end="")
            assert not host.is_lost


@pytest.mark.anyio
async def test_a_runner_without_notices_is_used_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path
) -> None:
    asked: list[str] = []
    request = RunnerLink.request

    async def older(link: RunnerLink, do: str, **fields: object) -> object:
        asked.append(do)
        return await request(link, "dance" if do == "watch" else do, **fields)

    monkeypatch.setattr(RunnerLink, "request", older)
    with sshd.host(tmp_path) as server:
        settings = SshSettings(idle_s=60.0, known_hosts=(), watch_eviction=True)
        async with SshBackend(Home(home), server.spec(), settings).acquire("run1", 1, Inbox()) as host:
            assert await host.known() == []
    assert "watch" in asked
