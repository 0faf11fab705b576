"""`pool status --probe`: every host is asked, and none that is silent holds up the others or passes for one that is there."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.support.fleet import Fleet

from evalfleet.hosts.access import ReachableHost
from evalfleet.hosts.probe import probe
from evalfleet.hosts.ssh.login.hosts_file import Login, SshHostSpec
from evalfleet.layout import Home


async def test_a_host_that_says_nothing_is_given_up_in_time(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as mute:  # accepts, and never greets
        port = mute.getsockname()[1]
        spec = SshHostSpec(name="mute", login=Login(address="127.0.0.1", port=port, user="nobody"))
        found = await probe([ReachableHost(pool="lab", spec=spec, known_hosts=())], Home(tmp_path), 0.3)
    assert found == {"mute": {"reachable": False, "error": "does not answer within 0.3 s"}}


def test_a_host_that_is_not_reached_is_named_and_fails_the_command(fleet: Fleet):
    hosts = fleet.folder / "hosts.toml"
    hosts.write_text('[[host]]\nname = "away"\naddress = "127.0.0.1"\nport = 9\n')
    assert fleet.command("pool", "create", "lab", "--backend", "ssh", "--hosts", str(hosts)).returncode == 0
    asked = fleet.command("pool", "status", "--probe")
    assert asked.returncode == 1
    assert "evalfleet: not reached: away" in asked.stderr
    assert fleet.command("pool", "status").returncode == 0
