"""`pool status --probe` asks the guests in the containers of machines: dead ones are told, and hold up no others."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.rented import NAME, PATIENCE_S, Rented, rented

import evalfleet
from evalfleet.answers.pools import HostRow, PoolFacts
from evalfleet.benchmarks.base import Guests
from evalfleet.benchmarks.screens import guest_orders
from evalfleet.cli.pools.shared.table import page, unanswered
from evalfleet.hosts.access import ReachableHost
from evalfleet.hosts.probe import probe
from evalfleet.hosts.ssh.login.hosts_file import Login, SshHostSpec
from evalfleet.layout import Home
from evalfleet.runner.visit import logs
from evalfleet.store.open import open_store

IMAGE = "windowsarena/winarena:latest"
CONFIG = f"""
[waa]
containers = ["one", "two"]
python = "{sys.executable}"
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Rented]:
    with rented(tmp_path, 400) as found:
        (found.fleet.folder / "evalfleet.toml").write_text(CONFIG)
        yield found


def start(here: Rented, machine: str, container: str, *options: str) -> None:
    words = ("docker", "run", "--detach", "--name", container, *options, IMAGE)
    done = here.fleet.command("pool", "ssh", machine, " ".join(words))
    assert done.returncode == 0, done.stdout + done.stderr


def probed(here: Rented) -> PoolFacts:
    return evalfleet.open_pool(NAME, home=here.fleet.home).probe(timeout=PATIENCE_S)


def shown(row: HostRow) -> list[tuple[str, str, str | None]]:
    """Container, state and command for the screen."""
    return [(one.container, one.state, one.screen) for one in row.guests or ()]


@pytest.mark.slow
def test_guests_are_asked_where_a_benchmark_has_them(here: Rented, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(here.fleet.folder)
    for name, value in here.settings.items():
        monkeypatch.setenv(name, value)
    here.create("--workers", "3", "--spot")
    found = {row.host: row for row in probed(here).hosts}
    assert [(row.guests, row.tasks_done) for row in found.values()] == [(None, 0)] * 3, "no container is there"
    well, mute, dead = found

    for machine in (well, mute):
        start(here, machine, "one", "--publish", "127.0.0.1:8016:8006")
    start(here, well, "two")
    here.control("POST", f"vms/{mute}/guest", {"silent": True})
    here.control("POST", f"vms/{dead}/evict", {"silent": True})
    found = {row.host: row for row in probed(here).hosts}
    assert shown(found[well]) == [
        ("one", "answers", f"evalfleet pool vnc {well} --port 8016"),
        ("two", "answers", None),
    ]
    assert shown(found[mute]) == [("one", "silent", f"evalfleet pool vnc {mute} --port 8016")]
    assert shown(found[dead]) == []
    assert [row.probe and row.probe["reachable"] for row in found.values()] == [True, True, False]

    # A pool that was made for a benchmark misses what is not there.
    here.control("POST", f"vms/{well}/containers/two/kill")
    with closing(open_store(here.fleet.home)) as store:
        store.pools.amend(NAME, {**store.pools.get(NAME).settings, "benchmark": "waa"})
    answer = probed(here)
    lines = " ".join(page(answer).split())
    assert "two stopped (the container is exited), 0 tasks done, no screen: the container publishes no port" in lines
    assert "two missing (there is no such container), 0 tasks done, no screen" in lines
    silent = [f"two on {well}", f"one on {mute}", f"two on {mute}"]
    assert unanswered(answer) == {"not reached": [dead], "guests that do not answer": silent}
    asked = here.fleet.command("pool", "status", NAME, "--probe")
    assert (asked.returncode, dead in asked.stderr) == (1, True)


async def test_a_host_that_hangs_holds_up_neither_hosts_nor_guests(tmp_path: Path):
    guests = Guests(docker="docker", containers=("one",), python="python", url="http://127.0.0.1:9/", screen_port=8006)
    with socket.create_server(("127.0.0.1", 0)) as mute:  # accepts, and never greets
        port = mute.getsockname()[1]
        spec = SshHostSpec(name="mute", login=Login(address="127.0.0.1", port=port, user="nobody"))
        hosts = [ReachableHost(pool="lab", spec=spec, known_hosts=())]
        found = await probe(hosts, Home(tmp_path), 0.3, guest_orders(guests, 0.1))
    assert found == {"mute": {"reachable": False, "error": "does not answer within 0.3 s"}}


DOCKER = """#!/bin/sh
case "$1 $2" in
"container inspect") {inspect} ;;
*) {exec} ;;
esac
"""
RUNS = """echo '[{"State": {"Running": true, "Status": "running"}, "NetworkSettings": {"Ports": {"8006/tcp": %s}}}]'"""
SHOWN = RUNS % '[{"HostIp": "127.0.0.1", "HostPort": "8007"}]'
ENDED = """echo '[{"State": {"Running": false, "Status": "exited"}, "NetworkSettings": {"Ports": {}}}]'"""


@pytest.mark.parametrize(
    ("inspect", "execute", "state", "seen", "port"),
    [
        (SHOWN, "exit 0", "answers", "", 8007),
        (RUNS % "null", "exit 0", "answers", "", None),
        (SHOWN, "echo 'HTTP Error 500' >&2; exit 1", "silent", "HTTP Error 500", 8007),
        (ENDED, "exit 0", "stopped", "the container is exited", None),
        ("echo 'Error: No such container: one' >&2; exit 1", "", "missing", "there is no such container", None),
        ("echo 'permission denied' >&2; exit 1", "", "unknown", "permission denied", None),
        ("echo nonsense", "", "unknown", "Expecting value", None),
        ("exec sleep 60", "", "unknown", "docker did not answer within 0.5 s", None),
    ],
)
def test_what_docker_says_of_a_container_is_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    inspect: str,
    execute: str,
    state: str,
    seen: str,
    port: int | None,
):
    docker = tmp_path / "docker"
    docker.write_text(DOCKER.replace("{inspect}", inspect).replace("{exec}", execute or "exit 0"))
    docker.chmod(0o700)
    limit_s = 0.5 if "sleep" in inspect else 20.0
    guests = Guests(docker=str(docker), containers=("one",), python="python", url="http://there/", screen_port=8006)
    logs.guests("", guest_orders(guests, limit_s))
    told = json.loads(capsys.readouterr().out)
    assert (told["container"], told["state"], told["port"]) == ("one", state, port)
    assert seen in told["seen"]


def test_a_host_without_docker_has_no_guests(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    guests = Guests(docker=str(tmp_path / "none"), containers=("one",), python="p", url="http://there/", screen_port=1)
    logs.guests("", guest_orders(guests, 20.0))
    assert json.loads(capsys.readouterr().out)["state"] == "missing"
