"""`evalfleet pool exec` over real SSH servers, and what is wrong with words that people type."""

from __future__ import annotations

import json
import os
import re
import signal
import time

import pytest
from tests.support import machines
from tests.support.fleet import DEADLINE_S, Fleet, wait_for
from tests.support.machines import Hosts, pool
from tests.support.sshd import Line


def test_a_command_runs_everywhere_and_every_line_has_its_host(fleet: Fleet, hosts: Hosts):
    pool(fleet, hosts("abc"))
    done = fleet.command("pool", "exec", "lab", "--", "for n in 1 2 3; do echo $n; echo e$n >&2; done; printf half")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == sorted(f"{h} | {n}" for h in "abc" for n in (1, 2, 3, "half"))
    assert sorted(done.stderr.splitlines()) == sorted(f"{h} | e{n}" for h in "abc" for n in (1, 2, 3))


def test_one_host_fails_and_one_hangs(fleet: Fleet, hosts: Hosts):
    one, two, three = hosts("abc")
    pool(fleet, [one, two, three])
    (two.home / "fails").touch()
    (three.home / "hangs").touch()
    line = "echo $$ > ~/pid; test -e ~/fails && exit 4; test -e ~/hangs && { trap '' TERM; sleep 600; }; echo fine"
    begun = time.monotonic()
    done = fleet.command("pool", "exec", "--timeout", "2s", "--json", "--", line)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert time.monotonic() - begun < 30
    assert told["hosts"]["a"] == {"exit": 0, "stdout": "fine\n", "stderr": "", "error": None}
    assert told["hosts"]["b"]["exit"] == 4
    assert told["hosts"]["c"] | {"error": ""} == {"exit": None, "stdout": "", "stderr": "", "error": ""}
    assert "within 2 s" in told["hosts"]["c"]["error"]
    hung = int((three.home / "pid").read_text())
    wait_for(lambda: not os.path.exists(f"/proc/{hung}"), "the end of the command that hung")


def test_a_host_that_is_lost_is_named_and_the_others_are_done(fleet: Fleet, hosts: Hosts):
    one, two, three = hosts("abc")
    pool(fleet, [one, two, three])
    two.stop()
    (three.home / "waits").touch()
    process = fleet.start("pool", "exec", "lab", "--", "test -e ~/waits && { echo begun; sleep 600; }; echo done")
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(2)]
    assert sorted(said) == ["a | done\n", "c | begun\n"]
    assert three.cut() > 0
    rest, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 3
    assert re.search(r"evalfleet: host b: .*cannot be reached", rest)
    assert "evalfleet: host c: the connection was lost" in rest
    assert "host a" not in rest


def test_ctrl_c_ends_the_command_there_without_a_traceback(fleet: Fleet, hosts: Hosts):
    one, two = hosts("ab")
    pool(fleet, [one, two])
    process = fleet.start("pool", "exec", "--", "echo $$; exec sleep 600")
    assert process.stdout is not None
    pids = [int(process.stdout.readline().split("|")[1]) for _ in range(2)]
    os.killpg(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, rest.strip()) == (130, "")
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "the end of both")


def test_a_reader_that_goes_away_is_no_error(fleet: Fleet, hosts: Hosts):
    pool(fleet, hosts("ab"))
    assert machines.left_by_its_reader(fleet, "pool", "exec", "--", "yes") == (141, b"")


@pytest.mark.long
def test_a_slow_line_is_no_lost_host(fleet: Fleet, hosts: Hosts):
    (host,) = hosts("a")
    line = Line(host.port)
    try:
        pool(fleet, [host], port=line.port)
        line.delay_s = 0.3
        assert fleet.command("pool", "exec", "--", "echo here").stdout == "a | here\n"
        assert fleet.command("pool", "ssh", "a", "echo here").stdout == "here\n"
    finally:
        line.close()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("ssh", "boxx1", "true"), 'no machine "boxx1"; did you mean "box1"?'),
        (("ssh", "zzz"), 'no machine "zzz"; known here: box1'),
        (("ssh", "box1-3"), 'no machine "box1-3"'),
        (("ssh", "--json", "box1"), "--json needs a command"),
        (("exec", "--"), "which command?"),
        (("exec", "lab", "uptime"), "pool exec lab -- uptime"),
        (("exec", "lab", "two", "--", "uptime"), "at most one pool"),
        (("exec", "attic", "--", "uptime"), "no pool 'attic'"),
        (("exec", "--worker", "bx1", "--", "uptime"), 'did you mean "box1"?'),
        (("exec", "--timeout", "soon", "--", "uptime"), "is not a duration"),
        (("logs", "attic"), "no pool 'attic'"),
        (("logs", "--worker", "zzz"), 'no machine "zzz"'),
        (("tunnel", "box1", "http"), "is not understood"),
        (("tunnel", "box1", "70000"), "is not understood"),
        (("tunnel", "box1", "80:0"), "is not understood"),
        (("vnc", "box1", "--all"), "not both"),
        (("screenshot", "zzz"), 'no machine "zzz"'),
        (("screenshot", "box1", "--to", "-", "--json"), "nor into JSON"),
    ],
)
def test_bad_input_is_told_before_anything_is_done(fleet: Fleet, args: tuple[str, ...], words: str):
    (fleet.folder / "hosts.toml").write_text('[[host]]\nname = "box1"\naddress = "127.0.0.1"\nport = 1\nslots = 2\n')
    assert fleet.command("pool", "create", "lab", "--backend", "ssh", "--hosts", "hosts.toml").returncode == 0
    done = fleet.command("pool", *args)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("args", [("ssh", "a"), ("exec", "--", "true"), ("logs",), ("vnc",), ("tunnel", "a", "80")])
def test_without_a_pool_there_is_nothing_to_act_on(fleet: Fleet, args: tuple[str, ...]):
    done = fleet.command("pool", *args)
    assert (done.returncode, "no pools yet" in done.stderr) == (2, True)
