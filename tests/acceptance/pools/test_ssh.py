"""`evalfleet pool ssh` over real SSH servers, with the system's ssh and without it."""

from __future__ import annotations

import getpass
import json
import re
import subprocess

import pytest
from tests.support import machines
from tests.support.fleet import DEADLINE_S, Fleet
from tests.support.machines import WITHOUT_SSH, Hosts, Terminal, pool

BOTH = pytest.mark.parametrize("env", [{}, WITHOUT_SSH], ids=["ssh", "own"])


@BOTH
def test_a_command_has_its_streams_and_its_exit_status(fleet: Fleet, hosts: Hosts, env: dict[str, str]):
    pool(fleet, hosts("ab"))
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    line = "echo $HOME; cat; echo no >&2; exit 7"
    process = machines.begun(fleet, "pool", "ssh", "b", line, env=env, **pipes)
    out, err = process.communicate(b"\0data" * 100_000, DEADLINE_S)
    assert process.returncode == 7
    assert out.startswith(str(fleet.folder.parent / "hosts" / "b" / "home").encode())
    assert out.endswith(b"\0data" * 100_000)
    assert err == b"no\n"


def test_words_are_passed_on_as_they_are(fleet: Fleet, hosts: Hosts):
    pool(fleet, hosts("a"), slots=2)
    done = fleet.command("pool", "ssh", "a-2", "printf", "<%s>", "a  b", "$HOME", "--json", "it's")
    assert (done.stdout, done.returncode) == ("<a  b><$HOME><--json><it's>", 0)
    asked = fleet.command("pool", "ssh", "--json", "a", "echo out; echo err >&2; exit 3")
    assert asked.returncode == 3
    assert json.loads(asked.stdout) == {
        "schema": 2,
        "host": "a",
        "exit": 3,
        "stdout": "out\n",
        "stderr": "err\n",
        "error": None,
    }


@BOTH
def test_a_host_that_is_not_reached_is_told_in_one_line(fleet: Fleet, hosts: Hosts, env: dict[str, str]):
    (host,) = hosts("a")
    pool(fleet, [host])
    host.stop()
    done = fleet.command("pool", "ssh", "a", "true", **env)
    assert done.returncode == 255
    assert re.fullmatch(r"evalfleet: host a: .*(refused|reached).*\n", done.stderr)
    assert done.stdout == ""


@BOTH
def test_a_wrong_host_key_is_refused(fleet: Fleet, hosts: Hosts, env: dict[str, str]):
    (host,) = hosts("a")
    pool(fleet, [host])
    host.stop()
    host.new_host_key()
    host.start()
    done = fleet.command("pool", "ssh", "a", "touch", "~/in", **env)
    assert done.returncode == 255
    assert "its key has changed" in done.stderr
    assert "may be intercepted" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(host.home.iterdir()) == []
    several = fleet.command("pool", "exec", "--", "true", **env)
    assert (several.returncode, several.stderr.count("its key has changed")) == (3, 1)


@BOTH
def test_an_unknown_key_is_learned_once_and_only_where_that_was_wished(fleet: Fleet, hosts: Hosts, env: dict[str, str]):
    (host,) = hosts("a")
    pool(fleet, [host], host_key=None)
    refused = fleet.command("pool", "ssh", "a", "true", **env)
    assert (refused.returncode, "its key is not known" in refused.stderr) == (255, True)
    pool(fleet, [host], "--replace", "--trust-first-use", host_key=None)
    first = fleet.command("pool", "ssh", "a", "echo in", **env)
    assert (first.returncode, first.stdout) == (0, "in\n")
    assert "trusted from now on" in first.stderr
    again = fleet.command("pool", "ssh", "a", "echo in", **env)
    assert (again.returncode, again.stdout, again.stderr) == (0, "in\n", "")


def test_the_way_leads_through_another_host(fleet: Fleet, hosts: Hosts):
    near, far = hosts("ab")
    (fleet.folder / ".ssh").mkdir()
    (fleet.folder / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{near.port} {near.host_key}\n")
    pool(fleet, [far], jump=f"{getpass.getuser()}@127.0.0.1:{near.port}", ssh_config=False)
    for env in ({}, WITHOUT_SSH):
        done = fleet.command("pool", "ssh", "b", "echo $HOME", **env)
        assert (done.stdout, done.returncode) == (f"{far.home}\n", 0), done.stderr
    (fleet.folder / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{near.port} {far.host_key}\n")
    for env in ({}, WITHOUT_SSH):
        wrong = fleet.command("pool", "ssh", "b", "true", **env)
        assert (wrong.returncode, len(wrong.stderr.splitlines())) == (255, 1), wrong.stderr
        assert "on the way to" in wrong.stderr
        assert "its key has changed" in wrong.stderr
    near.stop()
    lost = fleet.command("pool", "ssh", "b", "true")
    assert lost.returncode == 255
    assert re.fullmatch(r"evalfleet: host b: jump host on the way to .* cannot be reached: .*\n", lost.stderr)


def test_what_the_hosts_file_leaves_open_the_ssh_configuration_says(fleet: Fleet, hosts: Hosts):
    (host,) = hosts("a")
    folder = fleet.folder / ".ssh"
    folder.mkdir()
    (folder / "known").write_text(f"my-box {host.host_key}\n")
    (folder / "config").write_text(
        f"Host box\n HostName 127.0.0.1\n Port {host.port}\n IdentityFile {host.user_key}\n"
        f" UserKnownHostsFile {folder}/known\n HostKeyAlias my-box\n"
    )
    (fleet.folder / "hosts.toml").write_text('[[host]]\nname = "a"\naddress = "box"\n')
    assert fleet.command("pool", "create", "lab", "--backend", "ssh", "--hosts", "hosts.toml").returncode == 0
    done = fleet.command("pool", "ssh", "a", "echo $HOME")
    assert (done.stdout, done.returncode) == (f"{host.home}\n", 0), done.stderr
    assert fleet.command("pool", "exec", "--", "echo $HOME").stdout == f"a | {host.home}\n"


@BOTH
def test_a_shell_has_a_real_terminal(fleet: Fleet, hosts: Hosts, env: dict[str, str]):
    pool(fleet, hosts("a"))
    with Terminal(fleet, "pool", "ssh", "a", env=env) as terminal:
        terminal.type("PS1='ready> '; tty; stty size\n")
        terminal.expect(r"/dev/pts/\d+")
        terminal.expect("30 90")
        terminal.resize(40, 100)
        terminal.until("stty size\n", "40 100")
        terminal.type("sleep 600\n")
        terminal.expect("sleep 600")
        terminal.until("\x03", "ready> $")
        terminal.type("exit 7\n")
        assert terminal.wait() == 7
        assert terminal.modes() == terminal.before


def test_a_lost_host_leaves_the_terminal_as_it_was(fleet: Fleet, hosts: Hosts):
    (host,) = hosts("a")
    pool(fleet, [host])
    for env in ({}, WITHOUT_SSH):
        with Terminal(fleet, "pool", "ssh", "a", env=env) as terminal:
            terminal.type("echo $((40 + 2))\n")
            terminal.expect("42")
            host.cut()
            assert terminal.wait() == 255
            assert terminal.modes() == terminal.before
            assert "Traceback" not in terminal.seen
