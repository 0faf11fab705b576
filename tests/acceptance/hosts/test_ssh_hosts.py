"""Who a host is, who we are there, and what it must have."""

from __future__ import annotations

import getpass
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import sshd

from evalfleet.core.hosts.health import OtherWay
from evalfleet.core.readiness import Notice
from evalfleet.errors import HostRefused, HostUnreachable, RunnerUnavailable
from evalfleet.hosts.base import Inbox
from evalfleet.hosts.ssh.backend import SshBackend, SshSettings
from evalfleet.hosts.ssh.login.hosts_file import Login, SshHostSpec
from evalfleet.layout import Home

pytestmark = pytest.mark.anyio


@pytest.fixture
def box(tmp_path: Path) -> Iterator[sshd.Sshd]:
    with sshd.host(tmp_path) as server:
        yield server


def backend(home: Path, spec: SshHostSpec, said: list[Any] | None = None, **settings) -> SshBackend:
    plain = {"known_hosts": (), "idle_s": 60.0}
    notice: Notice = (lambda _: None) if said is None else said.append
    return SshBackend(Home(home), spec, SshSettings(**{**plain, **settings}), notice)


async def connect(one: SshBackend) -> str:
    async with one.acquire("run1", 1, Inbox()) as host:
        assert await host.known() == []
        return host.info.name


async def refused(one: SshBackend) -> str:
    with pytest.raises(HostRefused) as caught:
        await connect(one)
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_another_key_than_the_given_one_is_refused(home: Path, box: sshd.Sshd, tmp_path: Path):
    other = sshd.make_key(tmp_path / "other")
    one = backend(home, box.spec(host_key=sshd.public(other)))
    said = await refused(one)
    assert sshd.fingerprint(other) in said
    assert sshd.fingerprint(box.folder / "host_key") in said
    assert "has changed" in said
    assert "host box" in said
    assert await one.ask_otherwise() is OtherWay.SILENT, "whoever it is, it is not to be believed"


async def test_a_key_of_another_kind_is_named_too(home: Path, box: sshd.Sshd, tmp_path: Path):
    other = sshd.make_key(tmp_path / "other", kind="ecdsa")
    said = await refused(backend(home, box.spec(host_key=sshd.public(other))))
    assert sshd.fingerprint(other) in said
    assert sshd.fingerprint(box.folder / "host_key") in said


async def test_an_unknown_key_is_refused_and_shown(home: Path, box: sshd.Sshd):
    said = await refused(backend(home, box.spec(host_key=None)))
    assert "not known" in said
    assert box.host_key in said
    assert "--trust-first-use" in said


async def test_a_key_is_learned_once_and_said_aloud(home: Path, box: sshd.Sshd):
    said: list[str] = []
    trusting = backend(home, box.spec(host_key=None), said, trust_first_use=True)
    await connect(trusting)
    (line,) = said
    assert sshd.fingerprint(box.folder / "host_key") in line
    assert str(home / "known_hosts") in line
    assert (home / "known_hosts").read_text() == f"[127.0.0.1]:{box.port} {box.host_key}\n"
    await connect(trusting)
    await connect(backend(home, box.spec(host_key=None)))
    assert len(said) == 1
    old = sshd.fingerprint(box.folder / "host_key")
    box.stop()
    box.new_host_key()
    box.start()
    changed = await refused(trusting)
    assert old in changed
    assert sshd.fingerprint(box.folder / "host_key") in changed
    assert "ssh-keygen -R" in changed


async def test_the_users_known_hosts_count(home: Path, box: sshd.Sshd, tmp_path: Path):
    file = tmp_path / "known"
    sshd.write_hashed(file, f"[127.0.0.1]:{box.port} {box.host_key}\n")
    await connect(backend(home, box.spec(host_key=None), known_hosts=(file,)))
    assert not (home / "known_hosts").exists()


async def test_a_wrong_login(home: Path, box: sshd.Sshd, tmp_path: Path):
    key = sshd.make_key(tmp_path / "stranger")
    said = await refused(backend(home, box.spec(key=key)))
    assert f"login refused for user {getpass.getuser()} with the key {key}" in said
    assert "authorized_keys" in said


async def test_a_key_with_a_passphrase_needs_an_agent(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch):
    key = sshd.make_key(tmp_path / "locked", "a passphrase")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with sshd.host(tmp_path, "box", user_key=key) as box:
        said = await refused(backend(home, box.spec()))
        assert f"{key} is protected by a passphrase" in said
        assert f"ssh-add {key}" in said
        with sshd.agent(tmp_path, key, "a passphrase") as place:
            monkeypatch.setenv("SSH_AUTH_SOCK", place)
            await connect(backend(home, box.spec()))
            await connect(backend(home, box.spec(key=None)))


async def test_where_nothing_listens(home: Path, box: sshd.Sshd):
    box.stop()
    one = backend(home, box.spec())
    with pytest.raises(HostUnreachable, match=r"host box: .*cannot be reached: Connect"):
        await connect(one)
    assert await one.ask_otherwise() is OtherWay.SILENT
    nowhere = backend(home, box.spec(name="x", connect_s=0.2, port=box.port))
    with pytest.raises(HostUnreachable):
        await connect(nowhere)


async def test_a_name_that_does_not_resolve(home: Path, tmp_path: Path):
    spec = SshHostSpec(name="ghost", login=Login(address="ghost.invalid"), connect_s=30.0)
    with pytest.raises(HostUnreachable, match=r"host ghost: ghost\.invalid: cannot be reached: "):
        await connect(backend(home, spec))


async def test_through_another_host(home: Path, tmp_path: Path, box: sshd.Sshd):
    said: list[str] = []
    with sshd.host(tmp_path, "bastion", user_key=box.user_key) as bastion:
        jump = Login(address="127.0.0.1", port=bastion.port, user=getpass.getuser())
        one = backend(home, box.spec(jump=jump), said, trust_first_use=True)
        assert await connect(one) == "box"
        assert [line for line in said if str(bastion.port) in line], "the bastion is verified, too"
        assert await one.ask_otherwise() is OtherWay.ALIVE
        bastion.stop()
        with pytest.raises(HostUnreachable, match=r"on the way to .*cannot be reached"):
            await connect(one)
        assert await one.ask_otherwise() is OtherWay.SILENT


async def test_a_host_without_python(home: Path, box: sshd.Sshd):
    said = await refused(backend(home, box.spec(python="/no/such/python3")))
    assert "no Python 3.8 or newer (tried /no/such/python3)" in said
    assert 'python = "…" in the hosts file' in said


async def test_a_python_that_is_too_old_is_named(home: Path, box: sshd.Sshd):
    old = box.folder / "old-python"
    old.write_text('#!/bin/sh\nif [ "$1" = -V ]; then echo Python 3.6.9; exit 0; fi\nexit 1\n')
    old.chmod(0o755)
    said = await refused(backend(home, box.spec(python=str(old))))
    assert f"found: {old} is Python 3.6.9" in said


async def test_a_named_python_is_used(home: Path, box: sshd.Sshd):
    await connect(backend(home, box.spec(python=sys.executable)))
    assert box.runner() is not None


async def test_a_talkative_login(home: Path, tmp_path: Path):
    noise = "ForceCommand echo Welcome; echo 'to the machine room' >&2; eval \"$SSH_ORIGINAL_COMMAND\""
    with sshd.host(tmp_path, "loud", noise) as loud:
        assert await connect(backend(home, loud.spec())) == "loud"


async def test_a_folder_that_cannot_be_made(home: Path, box: sshd.Sshd):
    (box.folder / "file").touch()
    said = await refused(backend(home, box.spec(folder=f"{box.folder}/file/spool")))
    assert "cannot copy the runner to the host: " in said
    assert "/file/spool: Not a directory" in said


async def test_a_host_without_room_for_the_runner(home: Path, tmp_path: Path):
    with sshd.host(tmp_path, "full", 'ForceCommand ulimit -f 20; eval "$SSH_ORIGINAL_COMMAND"') as full:
        with pytest.raises(RunnerUnavailable, match=r"host full: .*File too large"):
            await connect(backend(home, full.spec()))
        assert not list(full.spool.glob("runner-*"))


async def test_a_runner_that_cannot_start_says_why(home: Path, box: sshd.Sshd):
    box.spool.mkdir(parents=True)
    (box.spool / "epochs.json").write_text("torn")
    with pytest.raises(RunnerUnavailable, match=r"host box: .*epochs\.json is damaged; remove it"):
        await connect(backend(home, box.spec()))


async def test_a_home_that_cannot_be_written_learns_no_key(box: sshd.Sshd):
    said = await refused(backend(Path("/proc/none"), box.spec(host_key=None), trust_first_use=True))
    assert "cannot save its host key" in said


def test_without_the_package_the_remedy_is_said():
    script = textwrap.dedent(
        """
        import sys
        sys.modules["asyncssh"] = None
        from evalfleet.hosts.ssh.login import hosts_file  # the file can be read all the same
        try:
            from evalfleet.hosts.ssh import backend
        except Exception as error:
            print(type(error).__name__, error)
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ConfigError ")
    assert "pip install 'evalfleet[ssh]'" in done.stdout
