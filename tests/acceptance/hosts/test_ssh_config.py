"""The user's OpenSSH configuration, over real SSH servers: the hosts file wins, the configuration fills what it leaves open."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from tests.support import sshd
from tests.support.fleet import Fleet

from evalfleet.errors import HostRefused, HostUnreachable
from evalfleet.hosts.base import Inbox
from evalfleet.hosts.ssh.backend import SshBackend, SshSettings
from evalfleet.hosts.ssh.login import config as ssh_config
from evalfleet.hosts.ssh.login.config import route
from evalfleet.hosts.ssh.login.hosts_file import Login, SshHostSpec
from evalfleet.layout import Home

pytestmark = pytest.mark.anyio


@pytest.fixture
def box(tmp_path: Path) -> Iterator[sshd.Sshd]:
    with sshd.host(tmp_path) as server:
        yield server


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str) -> Path:
        file = tmp_path / "ssh_config"
        file.write_text(text)
        return file

    return write


def entry(box: sshd.Sshd, *lines: str, name: str = "box1") -> str:
    """What a person has in ~/.ssh/config, with a known_hosts file of its own."""
    known = box.folder / "known_hosts"
    known.write_text(f"[127.0.0.1]:{box.port} {box.host_key}\n")
    return "\n".join(
        [
            f"Host {name}",
            *lines,  # the first word on a matter counts
            *("HostName 127.0.0.1", f"Port {box.port}", f"User {getpass.getuser()}"),
            *(f"IdentityFile {box.user_key}", f"UserKnownHostsFile {known}"),
            "",
        ]
    )


async def connect(home: Path, config: Path, *, address: str = "box1", trust: bool = False, **fields: object) -> None:
    login = fields.pop("login", Login(address=address))
    spec = SshHostSpec(**{"name": "box", "login": login, "ssh_config": True, **fields})  # pyright: ignore[reportArgumentType]
    settings = SshSettings(idle_s=60.0, known_hosts=(), ssh_config=config, trust_first_use=trust)
    with anyio.fail_after(60):
        async with SshBackend(Home(home), spec, settings).acquire("run1", 1, Inbox()) as host:
            assert await host.known() == []


async def test_a_name_of_the_configuration_is_enough(home: Path, box: sshd.Sshd, write: Callable[..., Path]):
    await connect(home, write(entry(box)))


async def test_the_hosts_file_wins(home: Path, box: sshd.Sshd, write: Callable[..., Path], tmp_path: Path):
    stranger = sshd.make_key(tmp_path / "stranger")
    wrong = ("Port 1", "User nobody-at-all", f"IdentityFile {stranger}", "IdentitiesOnly yes")
    config = write(entry(box, *wrong).replace(f"IdentityFile {box.user_key}", ""))
    right = Login(address="box1", port=box.port, user=getpass.getuser())
    await connect(home, config, login=right, key=box.user_key, host_key=box.host_key)
    with pytest.raises(HostRefused, match=rf"login refused for user {getpass.getuser()} with .*{stranger}"):
        await connect(home, config, login=right)
    with pytest.raises(HostUnreachable, match="cannot be reached"):
        await connect(home, config)


async def test_it_can_be_left_out(home: Path, box: sshd.Sshd, write: Callable[..., Path]):
    with pytest.raises(HostUnreachable, match="box1: cannot be reached"):
        await connect(home, write(entry(box)), ssh_config=False, connect_s=20.0)


async def test_jumps_are_hosts_of_the_configuration_too(
    home: Path, box: sshd.Sshd, write: Callable[..., Path], tmp_path: Path
):
    with sshd.host(tmp_path, "bastion") as bastion:
        through = "Host *\nProxyJump gate\n"  # also of the gate itself, which ssh does not take at its word
        await connect(home, write(entry(box) + entry(bastion, name="gate")), jump=Login(address="gate"))
        config = write(entry(box) + entry(bastion, name="gate") + through)
        await connect(home, config)
        (bastion.folder / "known_hosts").write_text("")
        with pytest.raises(HostRefused, match=r"on the way to .*its key is not known"):
            await connect(home, config)
        bastion.stop()
        with pytest.raises(HostUnreachable, match=r"on the way to .*cannot be reached"):
            await connect(home, config)


async def test_includes_conditions_and_words_that_nobody_knows(
    home: Path, box: sshd.Sshd, write: Callable[..., Path], tmp_path: Path
):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "box.conf").write_text(entry(box, "UseKeychain yes", "FlyTo moon"))
    config = write(
        f'Include {tmp_path}/more/*.conf\nMatch originalhost box1 exec "test %n = box1"\n'
        "  Compression yes\nMatch exec false\n  Port 1\nHost *\n  AddKeysToAgent yes\n  ControlMaster auto\n"
    )
    await connect(home, config)


async def test_a_key_that_an_agent_holds(home: Path, write: Callable[..., Path], tmp_path: Path):
    key = sshd.make_key(tmp_path / "locked", "a passphrase")
    with sshd.host(tmp_path, "box", user_key=key) as box:
        with pytest.raises(HostRefused, match="as the ssh configuration says"):
            await connect(home, write(entry(box, "IdentityAgent none")))
        with sshd.agent(tmp_path, key, "a passphrase") as place:
            await connect(home, write(entry(box, f"IdentityAgent {place}", "IdentitiesOnly yes")))
            with pytest.raises(HostRefused, match="login refused"):
                await connect(home, write(entry(box, "IdentityAgent none")))


async def test_a_proxy_command(home: Path, box: sshd.Sshd, write: Callable[..., Path], tmp_path: Path):
    program = tmp_path / "pass.py"
    program.write_text(
        "import os, socket, sys, threading\n"
        "there = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "print('on the way', file=sys.stderr, flush=True)\n"
        "def back():\n    while data := there.recv(65536):\n        os.write(1, data)\n    os._exit(0)\n"
        "threading.Thread(target=back, daemon=True).start()\n"
        "while data := os.read(0, 65536):\n    there.sendall(data)\n"
    )
    await connect(home, write(entry(box, f"ProxyCommand {sys.executable} {program} %h %p")))
    pid = tmp_path / "pid"
    # It hangs up long before it ends: whoever started it waits for its end, not for its silence.
    silent = f"ProxyCommand sh -c 'sleep 60 <&- >&- & echo $! > {pid}; exec <&- >&- sleep 60'"
    for command in ("ProxyCommand false", silent):
        with pytest.raises(HostUnreachable, match=r"the connection through its ProxyCommand .* failed"):
            await connect(home, write(entry(box, command)))
    with anyio.fail_after(30):  # what it had started ends with it
        while await anyio.Path(f"/proc/{pid.read_text().strip()}").exists():  # noqa: ASYNC110 - another process
            await anyio.sleep(0.02)


async def test_a_key_is_known_by_its_alias(home: Path, box: sshd.Sshd, write: Callable[..., Path]):
    config = write(entry(box, "HostKeyAlias thebox"))
    with pytest.raises(HostRefused, match="not known"):
        await connect(home, config)
    (box.folder / "known_hosts").write_text(f"thebox {box.host_key}\n")
    await connect(home, config)
    (box.folder / "known_hosts").write_text("")
    await connect(home, config, trust=True)
    assert (home / "known_hosts").read_text() == f"thebox {box.host_key}\n"
    await connect(home, config)


async def test_what_is_wrong_with_it_is_said(home: Path, write: Callable[..., Path]):
    with pytest.raises(
        HostRefused, match=r"host box: box1: the ssh configuration .*Bad port 'many'.*ssh_config = false"
    ):
        await connect(home, write("Port many\n"))
    with pytest.raises(HostRefused, match="more than 8 hosts; check its ProxyJump"):
        await connect(home, write("Host box1\nProxyJump box2\nHost box2\nProxyJump box3\nHost box3\nProxyJump box1\n"))


async def test_without_an_ssh_program(
    home: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(ssh_config.shutil, "which", lambda _name: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    spec = SshHostSpec(name="box", login=Login(address="box1"), ssh_config=True)
    (hop,) = await route(spec)
    assert (hop.login, hop.identities) == (Login(address="box1"), None), "nothing to read, nothing to miss"
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host box1\nPort 7\n")
    with pytest.raises(
        HostRefused, match=r"\.ssh/config exists, but there is no ssh program .*install .*ssh_config = false"
    ):
        await route(spec)


async def test_the_whole_way_is_known(write: Callable[..., Path]):
    config = write(
        "Host far\nHostName %h.example\nUser me\nIdentityFile /keys/%r@%h\nProxyJump one,you@two:22,[fe80::1]:2200\n"
        "Host one\nHostName one.example\nPort 2222\nProxyJump zero\nHost two\nProxyJump nowhere\nProxyCommand nothing\n"
        "Host zero\nProxyCommand walk %n to %h:%p as %r %%\n"
    )
    spec = SshHostSpec(name="far", login=Login(address="far"), ssh_config=True)
    me = getpass.getuser()
    zero, one, two, three, far = await route(spec, config)
    assert zero.login == Login(address="zero", port=22, user=me)
    assert zero.command == f"walk zero to zero:22 as {me} %"
    assert (one.login, one.command) == (Login(address="one.example", port=2222, user=me), None)
    assert (two.login, two.command) == (Login(address="two", port=22, user="you"), None)
    assert three.login == Login(address="fe80::1", port=2200, user=me)
    (hop, _) = await route(spec, write("Host far\nProxyJump ssh://you@gate:2200\n"))
    assert hop.login == Login(address="gate", port=2200, user="you")
    assert (far.login, far.identities) == (
        Login(address="far.example", port=22, user="me"),
        (Path("/keys/me@far.example"),),
    )


def test_from_the_command_line(fleet: Fleet, box: sshd.Sshd):
    (fleet.folder / ".ssh").mkdir()
    (fleet.folder / ".ssh" / "config").write_text(entry(box))
    hosts = fleet.folder / "hosts.toml"
    hosts.write_text('[[host]]\naddress = "box1"\n')
    assert fleet.command("pool", "create", "lab", "--backend", "ssh", "--hosts", str(hosts)).returncode == 0
    summary = fleet.json("run", fleet.tasks([{"key": "a", "command": ["true"]}]), "--pool", "lab")
    assert summary["results"][0]["worker"].startswith("box1")
    hosts.write_text('[defaults]\nssh_config = false\n[[host]]\nname = "bare"\naddress = "box1"\n')
    assert fleet.command("pool", "create", "bare", "--backend", "ssh", "--hosts", str(hosts)).returncode == 0
    (row,) = fleet.json("pool", "status", "bare", "--probe", code=1)["hosts"]
    assert "box1: cannot be reached" in row["probe"]["error"]
