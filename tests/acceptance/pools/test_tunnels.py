"""`evalfleet pool tunnel` and `vnc`: a real page on the host's side, real connections that break."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import IO, Any

import pytest
from tests.support.fleet import DEADLINE_S, Fleet
from tests.support.machines import Hosts, pool, until


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = self.path.encode() * 50_000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def page() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def got(address: str) -> bytes:
    with urllib.request.urlopen(f"http://{address}/x", timeout=DEADLINE_S) as answer:
        return answer.read()


@contextlib.contextmanager
def going_on(fleet: Fleet, *args: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A command that goes on until it is told to end, which it must do cleanly."""
    process = fleet.start(*args)
    assert process.stdout is not None
    yield process, process.stdout
    os.killpg(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, rest
    assert "Traceback" not in rest


def test_a_tunnel_carries_a_page(fleet: Fleet, hosts: Hosts, page: int):
    pool(fleet, hosts("a"))
    with going_on(fleet, "pool", "tunnel", "a", str(page)) as (_, output):
        address, words = output.readline().split(" leads to ")  # its own number is taken here, by the page itself
        assert words == f"port {page} of a; Ctrl-C ends it\n"
        assert address != f"127.0.0.1:{page}"
        assert got(address) == b"/x" * 50_000
        with pytest.raises(ConnectionRefusedError):  # of this machine's addresses, that one only
            socket.create_connection(("127.0.0.2", int(address.split(":")[1])), 5).close()
    with pytest.raises(urllib.error.URLError):
        got(address)


def test_a_tunnel_leads_to_a_machine_behind_the_host_from_a_port_of_our_choice(fleet: Fleet, hosts: Hosts, page: int):
    pool(fleet, hosts("a"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free, used = _free_port(), taken.getsockname()[1]
        with going_on(fleet, "pool", "tunnel", "a", f"127.0.0.1:{page}:{free}", "--json") as (_, output):
            told = json.loads(output.readline())
            assert told == {"schema": 2, "host": "a", "target": f"127.0.0.1:{page}", "address": f"127.0.0.1:{free}"}
            assert got(told["address"]) == b"/x" * 50_000
        refused = fleet.command("pool", "tunnel", "a", f"{page}:{used}")
        assert (refused.returncode, "cannot use port" in refused.stderr) == (2, True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_tunnel_is_mended_and_says_so(fleet: Fleet, hosts: Hosts, page: int):
    (host,) = hosts("a")
    pool(fleet, [host])
    with going_on(fleet, "pool", "tunnel", "a", str(page)) as (_, output):
        address = output.readline().split()[0]
        assert got(address) == b"/x" * 50_000
        host.stop()
        assert "the connection broke; next try in" in output.readline()
        host.start()
        assert got(address) == b"/x" * 50_000  # who comes meanwhile waits
        until(output, [], "connected again")


def test_a_tunnel_does_not_come_back_to_a_host_with_another_key(fleet: Fleet, hosts: Hosts, page: int):
    (host,) = hosts("a")
    pool(fleet, [host])
    process = fleet.start("pool", "tunnel", "a", str(page))
    assert process.stdout is not None
    process.stdout.readline()
    host.stop()
    host.new_host_key()
    host.start()
    rest, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, "its key has changed" in rest) == (3, True)


def test_a_port_on_which_nobody_listens_is_told_once(fleet: Fleet, hosts: Hosts):
    pool(fleet, hosts("a"))
    port = _free_port()  # the host is this machine: at the same number the tunnel would lead to itself
    process = fleet.start("pool", "tunnel", "a", f"{port}:{_free_port()}")
    assert process.stdout is not None
    address = process.stdout.readline().split()[0]
    for _ in range(3):
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            got(address)
    os.killpg(process.pid, signal.SIGTERM)
    rest, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert rest.count(f"port {port} from there") == 1
    assert len(rest.splitlines()) == 1


def test_screens_have_a_link_each_and_a_lost_host_is_named(fleet: Fleet, hosts: Hosts, page: int):
    one, two, three = hosts("abc")
    pool(fleet, [one, two])
    pool(fleet, [three], name="attic")
    two.stop()
    with going_on(fleet, "pool", "vnc", "--all", "--port", str(page), "--json") as (_, output):
        assert "host b: " in output.readline()
        links = {row["host"]: row["link"] for row in (json.loads(output.readline()) for _ in range(2))}
        assert sorted(links) == ["a", "c"]
        assert len(set(links.values())) == 2
        for link in links.values():
            assert got(link.removeprefix("http://").removesuffix("/")) == b"/x" * 50_000
    one.stop()
    three.stop()
    assert fleet.command("pool", "vnc", "--all").returncode == 3
    assert fleet.command("pool", "vnc").returncode == 2  # which one?
