"""Which host is meant, how it is reached, and what a visitor of a host is shown."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from evalfleet.cli.pools import tunnel
from evalfleet.hosts import access
from evalfleet.hosts.access import ReachableHost, UnavailableHost
from evalfleet.hosts.ssh.login.config import Hop
from evalfleet.hosts.ssh.login.hosts_file import Login, SshHostSpec
from evalfleet.hosts.ssh.visit import client
from evalfleet.runner.visit import logs


def host(name: str = "box", **fields: object) -> ReachableHost:
    login = fields.pop("login", Login(address="10.0.0.4"))
    spec = SshHostSpec(name=name, login=login, **fields)  # pyright: ignore[reportArgumentType]
    return ReachableHost(pool="lab", spec=spec)


def test_a_host_is_meant_by_its_name_or_by_a_worker_of_it():
    box, other = host("box", slots=2), host("box-2")
    gone = UnavailableHost(pool="lab", name="far", slots=1, why="is stopped")
    hosts = [box, other, gone]
    assert access.host_of_worker("box", hosts) is box
    assert access.host_of_worker("box-1", hosts) is box
    assert access.host_of_worker("box-2", hosts) is other  # a host's own name comes first
    assert access.host_of_worker("box-2-1", hosts) is other
    assert access.host_of_worker("far-1", hosts) is gone
    assert access.host_of_worker("box-3", hosts) is None


def test_pauses_grow_to_a_limit_and_differ():
    rng = Random(7)
    pauses = [access.pause_s(failures, rng) for failures in range(1, 2000)]
    assert 0.75 <= pauses[0] <= 1
    assert all(0.75 * 2**turn <= pauses[turn] <= 2**turn for turn in range(5))
    assert all(22.5 <= pause <= 30 for pause in pauses[6:])
    assert len(set(pauses)) == len(pauses)


def settings_of(folder: Path, text: str, name: str) -> dict[str, str]:
    """What the system's ssh itself makes of a configuration; of what may be said more than once, the last."""
    if shutil.which("ssh") is None:
        pytest.skip("no ssh here")
    (folder / "config").write_text(text)
    done = subprocess.run(["ssh", "-G", "-F", folder / "config", name], capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def test_ssh_understands_its_configuration(tmp_path: Path):
    key = tmp_path / 'my "key" 100%'
    key.touch()
    box = host(host_key="ssh-ed25519 AAAA", connect_s=7.4)
    hop = Hop(login=Login(address="10.0.0.4", port=2222, user="e v"), key=key)
    text = client.configuration(box, [hop], tmp_path / "own hosts", tmp_path / "learned")
    found = settings_of(tmp_path, text, "evalfleet-0")
    wanted = {"hostname": "10.0.0.4", "port": "2222", "user": "e v", "connecttimeout": "7", "identitiesonly": "yes"}
    assert found | wanted == found
    assert found["stricthostkeychecking"] in ("yes", "true")
    assert found["userknownhostsfile"] == str(tmp_path / "own hosts")  # and no other counts beside it
    assert found["identityfile"].replace("%%", "%") == str(key)
    assert "proxyjump" not in found


def test_ssh_goes_the_same_way_by_the_same_rules(tmp_path: Path):
    gate = Hop(login=Login(address="gate", port=23, user="me"), known_hosts=(tmp_path / "theirs",), asks_agent=False)
    inner = Hop(login=Login(address="inner"), known_as=Login(address="alias"))
    last = Hop(login=Login(address="10.0.0.4"), identities=(tmp_path / "one", tmp_path / "two"), agent="/run/agent")
    text = client.configuration(host(), [gate, inner, last], tmp_path / "own", tmp_path / "learned")
    found = [settings_of(tmp_path, text, f"evalfleet-{number}") for number in range(3)]
    assert [each.get("proxyjump") for each in found] == [None, "evalfleet-0", "evalfleet-1"]
    assert [(each["hostname"], each["port"]) for each in found] == [("gate", "23"), ("inner", "22"), ("10.0.0.4", "22")]
    assert all(each["stricthostkeychecking"] in ("yes", "true") for each in found)
    assert found[0]["userknownhostsfile"] == f"{tmp_path}/learned {tmp_path}/theirs"
    assert found[1]["userknownhostsfile"].split()[0] == f"{tmp_path}/learned"
    assert (found[0]["identityagent"], found[2]["identityagent"]) == ("none", "/run/agent")
    assert found[1]["hostkeyalias"] == "alias"
    assert found[2]["identityfile"] == f"{tmp_path}/two"
    brought = Hop(login=Login(address="inner"), command="nc --x=100% inner 22")
    alone = settings_of(tmp_path, client.configuration(host(), [brought], tmp_path, tmp_path), "evalfleet-0")
    assert alone["proxycommand"].replace("%%", "%") == "nc --x=100% inner 22"


def test_known_hosts_lines_name_the_port_or_the_alias():
    box = Hop(login=Login(address="a.b"))
    assert client.known_line(box, "ssh-ed25519 AAAA") == "a.b ssh-ed25519 AAAA\n"
    assert client.known_line(Hop(login=Login(address="::1", port=23)), "k v") == "[::1]:23 k v\n"
    aliased = Hop(login=Login(address="a.b", port=23), known_as=Login(address="c"))
    assert client.known_line(aliased, "k v") == "c k v\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("80", (None, "80", None)),
        ("80:81", (None, "80", "81")),
        ("db:5432", ("db", "5432", None)),
        ("10.0.0.5:80:81", ("10.0.0.5", "80", "81")),
        ("[fe80::1]:80", ("[fe80::1]", "80", None)),
        ("3com:80", ("3com", "80", None)),
    ],
)
def test_a_way_has_a_port_perhaps_a_host_and_a_port_here(text: str, wanted: tuple[str | None, ...]):
    match = tunnel.WAY.fullmatch(text)
    assert match
    assert (match["host"], match["port"], match["local"]) == wanted


@pytest.mark.parametrize("text", ["", "http", "80:", ":80", "80:81:82", "a b:80", "db:", "123456", "fe80::1:80"])
def test_what_is_no_way(text: str):
    assert tunnel.WAY.fullmatch(text) is None


# What a visitor is shown


def journal(folder: Path, *lines: dict[str, object]) -> str:
    path = folder / "journal.jsonl"
    path.write_text("".join(json.dumps({"attempt": "r.1.1", **line}, separators=(",", ":")) + "\n" for line in lines))
    return str(path)


def test_an_attempt_is_over_with_its_end_record_only(tmp_path: Path):
    started: dict[str, object] = {"event": 0, "type": "started"}
    note: dict[str, object] = {"event": 1, "type": "progress", "note": {"type": "ended"}}
    assert not logs.is_over(journal(tmp_path, started))
    assert not logs.is_over(journal(tmp_path, started, note))
    assert logs.is_over(journal(tmp_path, started, {"event": 1, "type": "ended"}))
    assert logs.is_over(journal(tmp_path, started, {"event": 1, "type": "ended", "result": "x" * 300_000}))
    assert not logs.is_over(journal(tmp_path, started, {"event": 1, "type": "progress", "note": "ended" * 70_000}))
    assert not logs.is_over(journal(tmp_path))
    assert logs.is_over(str(tmp_path / "nothing"))


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(logs, "say", lambda **line: lines.extend(line["lines"]))
    return lines


def test_the_last_lines_come_first_then_whole_lines_only(tmp_path: Path, said: list[str]):
    log = tmp_path / "a.log"
    log.write_text("one\ntwo\n\nfour\n")
    source = logs.LogSource(str(tmp_path), "a.log", "x", "stdout")
    source.skip(2)
    source.tell(last=False)
    assert said == ["", "four"]
    with log.open("a") as file:
        file.write("five\nha")
    source.tell(last=False)
    assert said[2:] == ["five"]
    with log.open("a") as file:
        file.write("lf")
    source.tell(last=True)
    assert said[3:] == ["half"]
    assert source.offset == log.stat().st_size


@pytest.mark.parametrize(("lines", "wanted"), [(0, []), (1, ["b"]), (5, ["a", "b"])])
def test_as_many_lines_as_were_asked_for(tmp_path: Path, said: list[str], lines: int, wanted: list[str]):
    (tmp_path / "a.log").write_text("a\nb")
    source = logs.LogSource(str(tmp_path), "a.log", "x", "stdout")
    source.skip(lines)
    source.tell(last=True)
    assert said == wanted


def test_a_log_that_is_begun_anew_is_read_from_its_beginning(tmp_path: Path, said: list[str]):
    log = tmp_path / "a.log"
    log.write_text("a long first line\n")
    source = logs.LogSource(str(tmp_path), "a.log", "x", "stdout")
    source.tell(last=False)
    log.rename(tmp_path / "a.log.1")
    source.tell(last=False)
    log.write_text("anew\n")
    source.tell(last=False)
    assert said == ["a long first line", "anew"]


def test_an_endless_line_is_shown_in_pieces(tmp_path: Path, said: list[str]):
    (tmp_path / "a.log").write_bytes(b"x" * (logs.BLOCK + 10))
    source = logs.LogSource(str(tmp_path), "a.log", "x", "stdout")
    source.tell(last=False)
    assert [len(line) for line in said] == [logs.BLOCK]
    source.tell(last=True)
    assert [len(line) for line in said] == [logs.BLOCK, 10]
