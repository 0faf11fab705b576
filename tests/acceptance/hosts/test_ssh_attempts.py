"""Attempts on a host over SSH: what they get, what they leave, and what they must not."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import resource
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
from tests.support import sshd
from tests.support.runner import a_spec

from evalfleet.core.hosts.health import OtherWay
from evalfleet.hosts.base import Host, Inbox, Launch
from evalfleet.hosts.remote.collect import CollectLimits
from evalfleet.hosts.ssh.backend import SshBackend, SshSettings
from evalfleet.layout import Home
from evalfleet.runner.build import build
from evalfleet.testing.backend_contract import Watcher

pytestmark = pytest.mark.anyio

SECRET = "plutonium-7f3a9c"
READY = """echo '{"ready": true}' >> "$EVALFLEET_EVENTS\""""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[sshd.Sshd]:
    with sshd.host(tmp_path) as server:
        yield server


@pytest.fixture
def backend(home: Path, box: sshd.Sshd) -> SshBackend:
    return SshBackend(Home(home), box.spec(), SshSettings(idle_s=60.0, known_hosts=()))


@contextlib.asynccontextmanager
async def connected(backend: SshBackend, epoch: int = 1) -> AsyncIterator[tuple[Host, Watcher]]:
    inbox = Inbox()
    async with backend.acquire("run1", epoch, inbox) as host:
        yield host, Watcher(inbox)


def sh(script: str, attempt: str = "run1.1.1", *, env: dict[str, str] | None = None, **fields) -> Launch:
    spec = a_spec("sh", "-c", script, env=env or {})
    return Launch(**{"attempt_id": attempt, "spec": spec, "secrets": {}, "valid_for_s": 60.0, **fields})


async def test_a_task_gets_the_runs_files_and_the_hosts_environment(
    backend: SshBackend, box: sshd.Sshd, tmp_path: Path
):
    here = tmp_path / "task files"
    (here / "lib" / "deep").mkdir(parents=True)
    (here / "agent.sh").write_text(
        "cat lib/deep/words; cat empty; pwd; echo home=$HOME; echo own=$OWN; echo lang=$LANG\n"
    )
    (here / "lib" / "deep" / "words").write_text("from a folder\n")
    (here / "lib" / "link").symlink_to("/etc/passwd")
    (here / "empty").touch()
    files = {name: here / name for name in ("agent.sh", "lib", "empty")}
    env = {"HOME": "/the/controllers/home", "LANG": "xx_CONTROLLER", "OWN": "mine"}
    launch = sh("./agent.sh; ls lib", env=env, inherited=frozenset({"HOME", "LANG"}), files=files)
    async with connected(backend) as (host, watcher):
        await host.launch([launch])
        end = await watcher.until("run1.1.1")
        assert end.data["exit_code"] == 0, end.data
        await host.collect("run1.1.1", tmp_path / "out", {})
    words = (tmp_path / "out" / "stdout.log").read_text().splitlines()
    assert words == [
        "from a folder", str(box.spool / "attempts" / "run1.1.1" / "work"), f"home={box.home}", "own=mine", "lang=", "deep",
    ]  # fmt: skip


async def test_a_content_is_brought_once(backend: SshBackend, box: sshd.Sshd, tmp_path: Path):
    data = os.urandom(5_000_000)
    (tmp_path / "model").write_bytes(data)
    (tmp_path / "same").write_bytes(data)
    script = 'sha256sum model | cut -c1-64 > "$EVALFLEET_ARTIFACTS/sum"; echo changed > model'
    launches = [
        sh(script, f"run1.{number}.1", files={"model": tmp_path / name})
        for number, name in enumerate(["model", "same", "model"], 1)
    ]
    async with connected(backend) as (host, watcher):
        await host.launch(launches[:2])
        await host.launch(launches[:1])  # while its file is on the way
        await watcher.until("run1.1.1")
        await watcher.until("run1.2.1")
        await host.launch(launches[2:])
        await watcher.until("run1.3.1")
        for number in (1, 2, 3):
            await host.collect(f"run1.{number}.1", tmp_path / "out" / str(number), {})
            got = (tmp_path / "out" / str(number) / "artifacts" / "sum").read_text().strip()
            assert got == hashlib.sha256(data).hexdigest()
            assert not (tmp_path / "out" / str(number) / "work").exists(), "what we brought need not come back"
    assert [one.name for one in (box.spool / "files").iterdir() if one.name[0] != "."] == [
        hashlib.sha256(data).hexdigest()
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing", "files: missing cannot be read: No such file"),
        ("../out", "files: ../out is outside the task file's folder"),
    ],
)
async def test_a_file_that_cannot_be_brought(backend: SshBackend, tmp_path: Path, name: str, said: str):
    async with connected(backend) as (host, watcher):
        await host.launch([sh("true", files={name: tmp_path / name}), sh("true", "run1.2.1")])
        end = await watcher.until("run1.1.1")
        assert end.data["cause"] == "launch_failed"
        assert said in end.data["message"]
        assert (await watcher.until("run1.2.1")).data["exit_code"] == 0
        assert [one.attempt_id for one in await host.known()] == ["run1.2.1"]


LEAVE = """
cd "$EVALFLEET_ARTIFACTS"
mkdir -p a/b; echo deep > a/b/c; : > empty; ln -s /etc/passwd link; mkfifo pipe
head -c 3000000 /dev/urandom > big; sha256sum big > "$EVALFLEET_RESULT.sum"
printf '{"score": 1}' > "$EVALFLEET_RESULT"; cp "$EVALFLEET_RESULT.sum" sum; echo said
"""


async def test_files_come_home(backend: SshBackend, tmp_path: Path):
    out = tmp_path / "runs" / "t" / "1"
    async with connected(backend) as (host, watcher):
        await host.launch([sh(LEAVE)])
        assert (await watcher.until("run1.1.1")).data["exit_code"] == 0
        for _ in range(2):
            await host.collect("run1.1.1", out, {})
        await host.forget(["run1.1.1"])
        await host.collect("run1.1.1", out, {})
    found = sorted(str(one.relative_to(out)) for one in out.rglob("*") if not one.is_dir())
    expected = ["a/b/c", "big", "empty", "sum"]
    assert found == sorted(
        [*(f"artifacts/{one}" for one in expected), "journal.jsonl", "result.json", "stdout.log", "task.json"]
    )
    assert (out / "artifacts" / "a" / "b" / "c").read_text() == "deep\n"
    sum_of_big = hashlib.sha256((out / "artifacts" / "big").read_bytes()).hexdigest()
    assert (out / "artifacts" / "sum").read_text().startswith(sum_of_big)
    assert json.loads((out / "result.json").read_text()) == {"score": 1}
    assert not list(out.parent.glob("*.partial"))


async def test_a_live_attempt_is_not_collected(backend: SshBackend, tmp_path: Path):
    async with connected(backend) as (host, watcher):
        await host.launch([sh("sleep 300")])
        await watcher.until("run1.1.1", "started")
        await host.collect("run1.1.1", tmp_path / "out", {})
        assert not (tmp_path / "out").exists()
        assert not (tmp_path / "out.partial").exists()
        await host.stop(["run1.1.1"], "enough")
        await watcher.until("run1.1.1")
        await host.collect("run1.1.1", tmp_path / "out", {})
        assert (tmp_path / "out" / "journal.jsonl").exists()


async def test_what_is_too_large_stays_on_the_host(home: Path, box: sshd.Sshd, tmp_path: Path):
    caps = CollectLimits(file_bytes=1 << 20, all_bytes=2 << 20)
    backend = SshBackend(Home(home), box.spec(), SshSettings(known_hosts=(), caps=caps))
    async with connected(backend) as (host, watcher):
        await host.launch([sh(LEAVE)])
        await watcher.until("run1.1.1")
        for _ in range(2):
            with pytest.raises(OSError, match="1 files stay on the host: big") as caught:
                await host.collect("run1.1.1", tmp_path / "out", {})
            assert caught.value.errno == errno.EFBIG
    assert "big" in json.loads((tmp_path / "out" / "left-out.json").read_text())
    assert (tmp_path / "out" / "artifacts" / "a" / "b" / "c").exists()
    assert (box.spool / "attempts" / "run1.1.1" / "artifacts" / "big").exists()


async def test_a_collection_goes_on_where_it_was_cut(backend: SshBackend, box: sshd.Sshd, tmp_path: Path):
    """Half of a file is here already: only the rest is fetched."""
    async with connected(backend) as (host, watcher):
        await host.launch([sh(LEAVE)])
        await watcher.until("run1.1.1")
        partial = tmp_path / "out.partial" / "artifacts"
        partial.mkdir(parents=True)
        # Not what the host has: it shows in the result that this part was not fetched again.
        (partial / "big").write_bytes(b"x" * 1_000_000)
        await host.collect("run1.1.1", tmp_path / "out", {})
    there = (box.spool / "attempts" / "run1.1.1" / "artifacts" / "big").read_bytes()
    assert (tmp_path / "out" / "artifacts" / "big").read_bytes() == b"x" * 1_000_000 + there[1_000_000:]


async def test_what_a_full_disk_keeps_from_the_journal_comes_home(backend: SshBackend, box: sshd.Sshd, tmp_path: Path):
    """The end record waits in the runner's memory: with it, the list of the artifacts."""
    journal = box.spool / "attempts" / "run1.1.1" / "journal.jsonl"
    gate = tmp_path / "gate"
    script = f'echo weights > "$EVALFLEET_ARTIFACTS/model.bin"; {READY}; until [ -e {gate} ]; do sleep 0.02; done'
    async with connected(backend) as (host, watcher):
        await host.launch([sh(script)])
        await watcher.until("run1.1.1", "ready")
        await watcher.until("run1.1.1", "progress")
        runner = json.loads((box.spool / "runner.json").read_text())["pid"]
        was = resource.prlimit(runner, resource.RLIMIT_FSIZE, (journal.stat().st_size, resource.RLIM_INFINITY))
        gate.touch()
        await watcher.until("run1.1.1")
        assert b"ended" not in journal.read_bytes()
        await host.collect("run1.1.1", tmp_path / "out", {})
        resource.prlimit(runner, resource.RLIMIT_FSIZE, was)
    assert (tmp_path / "out" / "artifacts" / "model.bin").read_text() == "weights\n"
    lines = (tmp_path / "out" / "journal.jsonl").read_bytes().splitlines()
    assert json.loads(lines[-1])["type"] == "ended"


async def test_without_an_end_record_nothing_is_finished(backend: SshBackend, box: sshd.Sshd, tmp_path: Path):
    journal = box.spool / "attempts" / "run1.1.1" / "journal.jsonl"
    async with connected(backend) as (host, watcher):
        await host.launch([sh(LEAVE)])
        await watcher.until("run1.1.1")
        whole = journal.read_bytes()
        journal.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
        with pytest.raises(OSError, match="no end record"):
            await host.collect("run1.1.1", tmp_path / "out", {})
        assert not (tmp_path / "out").exists()
        journal.write_bytes(whole)
        await host.collect("run1.1.1", tmp_path / "out", {})
    assert (tmp_path / "out" / "artifacts" / "a" / "b" / "c").exists()


async def test_a_short_write_leaves_no_hole(backend: SshBackend, box: sshd.Sshd, tmp_path: Path, monkeypatch):
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[: len(data) // 2 + 1], offset))
    async with connected(backend) as (host, watcher):
        await host.launch([sh(LEAVE)])
        await watcher.until("run1.1.1")
        await host.collect("run1.1.1", tmp_path / "out", {})
    there = box.spool / "attempts" / "run1.1.1" / "artifacts" / "big"
    assert (tmp_path / "out" / "artifacts" / "big").read_bytes() == there.read_bytes()


async def test_secrets_are_found_nowhere(backend: SshBackend, box: sshd.Sshd, tmp_path: Path):
    script = f'echo "$TOKEN"; echo "$TOKEN" >&2; echo "$TOKEN" > "$EVALFLEET_ARTIFACTS/note"; {READY}; sleep 300'
    async with connected(backend) as (host, watcher):
        await host.launch([sh(script, secrets={"TOKEN": SECRET})])
        await watcher.until("run1.1.1", "ready")
        assert command_lines_with(SECRET) == []
        assert holders(box.folder, SECRET) == ["note"], "the task's own doing, until it ends"
        await host.stop(["run1.1.1"], "enough")
        await watcher.until("run1.1.1")
        await host.collect("run1.1.1", tmp_path / "out", {})
    assert holders(box.folder, SECRET) == []
    assert holders(tmp_path / "out", SECRET) == []
    assert (tmp_path / "out" / "artifacts" / "note").read_text() == "[secret TOKEN]\n"


async def test_a_killed_runner_loses_its_attempts_and_no_secret(backend: SshBackend, box: sshd.Sshd, tmp_path: Path):
    # A child that keeps no variable and no sign of the task, so that a new runner cannot learn the secret from it.
    script = f'echo "$TOKEN" > "$EVALFLEET_ARTIFACTS/note"; {READY}; exec env -i sleep 300'
    async with connected(backend) as (host, watcher):
        await host.launch([sh(script, secrets={"TOKEN": SECRET})])
        ready = await watcher.until("run1.1.1", "ready")
        box.kill_runner()
        with anyio.fail_after(60):
            await host.lost()
        assert host.is_lost
        assert await backend.ask_otherwise() is OtherWay.GONE
    async with connected(backend, epoch=2) as (host, watcher):
        assert [one.live for one in await host.known()] == [False]
        assert await host.observe("run1.1.1", ready.number)
        end = await watcher.until("run1.1.1")
        assert end.data["cause"] == "runner_lost"
        await host.collect("run1.1.1", tmp_path / "out", {"TOKEN": SECRET})
        await host.forget(["run1.1.1"])
    assert (tmp_path / "out" / "artifacts" / "note").read_text() == "[secret TOKEN]\n"
    assert holders(box.folder, SECRET) == []


async def test_an_idle_runner_is_released_and_a_busy_one_is_not(backend: SshBackend, box: sshd.Sshd):
    await backend.release()
    async with connected(backend) as (host, watcher):
        await host.launch([sh("sleep 300")])
        await watcher.until("run1.1.1", "started")
    await backend.release()
    assert box.runner() is not None
    await backend.reset()
    assert box.runner() is None
    async with connected(backend, epoch=2) as (host, _):
        assert [one.live for one in await host.known()] == [False]
    await backend.release()
    assert box.runner() is None


async def test_the_runner_is_brought_once_and_mended(backend: SshBackend, box: sshd.Sshd):
    program = box.spool / f"runner-{build()[1]}.pyz"
    async with connected(backend):
        pass
    brought = program.stat()
    async with connected(backend):
        pass
    assert (program.stat().st_ino, program.stat().st_mtime_ns) == (brought.st_ino, brought.st_mtime_ns)
    await backend.release()
    program.write_bytes(b"torn")
    async with connected(backend) as (host, watcher):
        await host.launch([sh("true")])
        await watcher.until("run1.1.1")
    assert program.read_bytes() == build()[0]
    assert not list(box.spool.glob("*.partial"))


async def test_an_idle_runner_of_another_version_is_replaced(backend: SshBackend, box: sshd.Sshd, monkeypatch):
    async with connected(backend):
        pass
    old = box.runner()
    changed = build()[0] + b"\0"
    version = hashlib.sha256(changed).hexdigest()[:12]
    for module in ("protocol.current_runner", "ssh.channel"):
        monkeypatch.setattr(f"evalfleet.hosts.{module}.build", lambda: (changed, version))
    async with connected(backend) as (host, watcher):
        await host.launch([sh("sleep 300")])
        await watcher.until("run1.1.1", "started")
    new = box.runner()
    assert old is not None
    assert new is not None
    assert (new.version, new.pid != old.pid) == (version, True)
    monkeypatch.undo()
    async with connected(backend, epoch=2) as (host, _):
        assert [one.live for one in await host.known()] == [True], "a busy one stays"
        assert box.runner() == new


def holders(folder: Path, text: str) -> list[str]:
    """Names of files below a folder that hold a text."""
    found = (one for one in folder.rglob("*") if one.is_file() and not one.is_symlink())
    return [one.name for one in found if text.encode() in one.read_bytes()]


def command_lines_with(text: str) -> list[str]:
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if text.encode() in words:
                    found.append(words.decode(errors="replace"))
    return found


def test_looking_for_secrets_finds_them(tmp_path: Path):
    (tmp_path / "x").write_text(f"a {SECRET} b")
    assert holders(tmp_path, SECRET) == ["x"]
    assert command_lines_with("pytest")
