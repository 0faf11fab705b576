"""Every command of the runner, against real daemons and real processes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.support.runner import RunnerClient, RunnerSpool, a_spec, sh, wait_until

from evalfleet.runner.attempt.output import LINE_CHARACTERS


def test_hello(spool: RunnerSpool, client: RunnerClient) -> None:
    info = spool.info()
    assert info is not None
    answer = client.must("hello", protocol=1)
    assert answer["version"] == spool.version == info.version
    assert answer["pid"] == info.pid
    assert answer["boot_id"] == info.boot_id
    assert answer["attempts"] == []
    assert client.ask("hello", protocol=99)["error"] == "bad_request"


def test_ping_and_unknown_command(client: RunnerClient) -> None:
    assert client.must("ping")["now"] > 1e9
    assert client.ask("dance")["error"] == "bad_request"
    assert client.ask("launch", attempt="../x", run="r", epoch=1)["error"] == "bad_request"


def test_an_attempt_from_launch_to_ack(spool: RunnerSpool, client: RunnerClient) -> None:
    script = 'echo out; echo err >&2; echo "{\\"score\\": 1}" > $EVALFLEET_RESULT; echo x > $EVALFLEET_ARTIFACTS/a'
    assert client.launch("a.1.1", a_spec(*sh(script), payload={"n": 1}))["known"] is False
    end = client.end("a.1.1")
    assert [event["type"] for event in client.of("a.1.1")] == ["launched", "started", "ended"]
    assert [event["event"] for event in client.of("a.1.1")] == [0, 1, 2]
    assert (end["cause"], end["exit_code"], end["signal"]) == ("exited", 0, None)
    assert end["result"] == {"score": 1}
    assert end["has_result"] is True
    assert end["tail"] == "err"
    assert end["artifacts"] == [{"path": "a", "size": 2}]
    assert end["cpu_s"] >= 0
    assert end["max_rss_mb"] > 0
    assert 0 < end["duration_s"] < 60
    folder = spool.attempt("a.1.1")
    assert (folder / "stdout.log").read_text() == "out\n"
    assert json.loads((folder / "task.json").read_text()) == {
        "key": "task",
        "domain": "test",
        "number": 1,
        "payload": {"n": 1},
    }
    assert spool.journal("a.1.1") == client.of("a.1.1")
    hello = client.must("hello", protocol=1)
    assert hello["attempts"] == [{"attempt": "a.1.1", "run": "r", "state": "ended", "last": 2}]
    client.must("ack", run="r", epoch=1, attempt="a.1.1")
    assert not folder.exists()
    client.must("ack", run="r", epoch=1, attempt="a.1.1")
    assert client.must("hello", protocol=1)["attempts"] == []


def test_what_a_task_sees(spool: RunnerSpool, client: RunnerClient) -> None:
    end = client.run(
        "a",
        *sh("env > $EVALFLEET_ARTIFACTS/env; ls -l /proc/self/fd > $EVALFLEET_ARTIFACTS/fd; cat"),
        env={"MINE": "1"},
    )
    assert end["exit_code"] == 0  # cat ended: its standard input is empty
    folder = spool.attempt("a")
    env = dict(line.split("=", 1) for line in (folder / "artifacts/env").read_text().splitlines())
    for shells in ("PWD", "OLDPWD", "SHLVL", "_"):
        env.pop(shells, None)
    assert env == {
        "MINE": "1",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONUNBUFFERED": "1",
        "EVALFLEET_ATTEMPT": "a",
        "EVALFLEET_ATTEMPT_NUMBER": "1",
        "EVALFLEET_TASK": f"{folder}/task.json",
        "EVALFLEET_RESULT": f"{folder}/result.json",
        "EVALFLEET_EVENTS": f"{folder}/events.jsonl",
        "EVALFLEET_ARTIFACTS": f"{folder}/artifacts",
    }
    descriptors = (folder / "artifacts/fd").read_text()
    assert "socket" not in descriptors
    assert "runner" not in descriptors
    assert "eventpoll" not in descriptors


def test_signals_are_as_a_task_expects(client: RunnerClient) -> None:
    end = client.run("a", *sh("grep -E '^Sig(Blk|Ign)' /proc/self/status"))
    blocked, ignored = (int(line.split()[1], 16) for line in end["tail"].splitlines())
    libc_own = 0b11 << 31  # the C library keeps 32 and 33 to itself and may ignore them in a child
    assert (blocked, ignored & ~libc_own) == (0, 0)


def test_launch_is_idempotent(spool: RunnerSpool, client: RunnerClient, tmp_path: Path) -> None:
    count = tmp_path / "count"
    spec = a_spec(*sh(f"echo x >> {count}; sleep 0.2"))
    assert client.launch("a", spec)["known"] is False
    assert client.launch("a", spec)["known"] is True
    with spool.client() as other:
        assert other.launch("a", spec)["known"] is True
        other.end("a")
        assert [event["event"] for event in other.of("a")] == [0, 1, 2]
    client.end("a")
    assert client.launch("a", spec)["known"] is True
    assert count.read_text() == "x\n"


def test_old_epochs_are_fenced(spool: RunnerSpool, client: RunnerClient) -> None:
    client.launch("a", a_spec("sleep", "60"), epoch=4)
    with spool.client() as newer:
        newer.must("hello", protocol=1, run="r", epoch=5)
    assert client.ask("cancel", run="r", epoch=4, attempt="a")["error"] == "stale_epoch"
    assert client.ask("ack", run="r", epoch=4, attempt="a")["error"] == "stale_epoch"
    refused = client.ask("launch", run="r", epoch=4, attempt="b", valid_for_s=9, spec=a_spec("true"), secrets={})
    assert refused["error"] == "stale_epoch"
    assert client.ask("hello", protocol=1, run="r", epoch=4)["error"] == "stale_epoch"
    client.must("hello", protocol=1, run="other", epoch=1)
    assert client.ask("ack", run="r", epoch=5, attempt="a")["error"] == "bad_request"  # it still runs
    client.must("cancel", run="r", epoch=5, attempt="a", reason="enough")
    end = client.end("a")
    assert (end["cause"], end["message"], end["signal"]) == ("cancelled", "enough", 15)


def test_cancel_of_the_unknown_and_ended(client: RunnerClient) -> None:
    client.must("cancel", run="r", epoch=1, attempt="nobody")
    client.run("a", "true")
    client.must("cancel", run="r", epoch=1, attempt="a")


def test_expired(client: RunnerClient) -> None:
    refused = client.ask("launch", run="r", epoch=1, attempt="a", valid_for_s=-1, spec=a_spec("true"), secrets={})
    assert refused["error"] == "expired"
    assert client.must("hello", protocol=1)["attempts"] == []


@pytest.mark.parametrize(
    ("command", "fields", "message", "number"),
    [
        (["/x/agent"], {}, "No such file or directory: '/x/agent'", 2),
        (["no-such-program"], {}, "No such file or directory: 'no-such-program'", 2),
        (["/etc"], {}, "Permission denied: '/etc'", 13),
        (["true"], {"cwd": "/no/folder"}, "No such file or directory: '/no/folder'", 2),
        (["true", "x" * 200_000], {}, "Argument list too long: 'true'", 7),
    ],
)
def test_a_command_that_cannot_be_executed(
    client: RunnerClient, command: list[str], fields: dict[str, Any], message: str, number: int
) -> None:
    end = client.run("a", *command, **fields)
    assert (end["cause"], end["message"], end["errno"], end["exit_code"]) == ("launch_failed", message, number, None)
    assert [event["type"] for event in client.of("a")] == ["launched", "ended"]


def test_attach_replays_without_gaps(spool: RunnerSpool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = """for i in 1 2 3; do echo '{"step": '$i'}' >> $EVALFLEET_EVENTS; sleep 0.3; done; """
    script += f"while [ ! -e {gate} ]; do sleep 0.02; done"
    with spool.client() as first:
        first.launch("a", a_spec(*sh(script)))
        first.event("a", "progress")
    with spool.client() as second:
        assert second.must("attach", attempt="nobody", **{"from": 0})["known"] is False
        assert second.must("attach", attempt="a", **{"from": 1})["known"] is True
        second.event("a", "progress")
        gate.touch()
        second.end("a")
        assert [event["event"] for event in second.of("a")] == list(range(1, second.events[-1]["event"] + 1))
        steps = [line["step"] for event in second.of("a") if event["type"] == "progress" for line in event["lines"]]
        assert steps == [1, 2, 3]
    with spool.client() as third:
        third.must("attach", attempt="a", **{"from": 0})
        third.end("a")
        assert third.of("a") == spool.journal("a")
        last = third.events[-1]["event"]
        third.events.clear()
        third.must("attach", attempt="a", **{"from": last})
        third.end("a")
        assert [event["event"] for event in third.of("a")] == [last]


def test_put_and_staged_files(client: RunnerClient, spool: RunnerSpool) -> None:
    script = b"#!/bin/sh\ncat data/in.txt\necho changed > data/in.txt\n"
    digests = {}
    for data in (script, b"x" * 300_000):
        digest = hashlib.sha256(data).hexdigest()
        digests[data[:1]] = digest
        half = len(data) // 2
        pieces = [(0, data[:half], False), (half, data[half:], True)]
        for offset, piece, last in pieces:
            put = client.must("put", sha256=digest, offset=offset, data=base64.b64encode(piece).decode(), last=last)
            assert put["known"] is False
        assert client.must("put", sha256=digest, offset=0, data="", last=False)["known"] is True
    files = {"run.sh": digests[b"#"], "data/in.txt": digests[b"x"]}
    end = client.run("a", "./run.sh", cwd=None, files=files)
    assert (end["exit_code"], len(end["tail"])) == (0, LINE_CHARACTERS + len(" … "))
    assert (spool.attempt("a") / "work/data/in.txt").read_text() == "changed\n"
    assert (spool.folder / "files" / digests[b"x"]).stat().st_size == 300_000
    missing = client.ask(
        "launch", run="r", epoch=1, attempt="b", spec=a_spec("true", files={"x": "0" * 64}), secrets={}
    )
    assert missing["error"] == "bad_request"
    assert not spool.attempt("b").exists()


def test_put_refuses_other_data(client: RunnerClient) -> None:
    data = base64.b64encode(b"evil").decode()
    assert client.ask("put", sha256="0" * 64, offset=0, data=data, last=True)["error"] == "bad_request"
    assert client.ask("put", sha256="0" * 64, offset=7, data=data, last=True)["error"] == "bad_request"
    assert client.ask("put", sha256="../../x", offset=0, data=data, last=True)["error"] == "bad_request"
    assert client.ask("put", sha256="0" * 64, offset=0, data="!!", last=True)["error"] == "bad_request"


def test_fetch(client: RunnerClient) -> None:
    client.run(
        "a", *sh("head -c 3000000 /dev/zero > $EVALFLEET_ARTIFACTS/big; ln -s /etc/passwd $EVALFLEET_ARTIFACTS/link")
    )
    size = 0
    while True:
        piece = client.must("fetch", attempt="a", path="artifacts/big", offset=size, limit=1 << 30)
        size += len(base64.b64decode(piece["data"]))
        if piece["eof"]:
            break
    assert size == piece["size"] == 3_000_000
    for path in ("../../runner.json", "artifacts/link", "artifacts", "/etc/passwd", "none"):
        assert client.ask("fetch", attempt="a", path=path, offset=0, limit=10)["ok"] is False
    assert client.ask("fetch", attempt="b", path="x", offset=0, limit=10)["error"] == "unknown_attempt"


def test_ack_after_the_folder_was_moved(client: RunnerClient, spool: RunnerSpool, tmp_path: Path) -> None:
    client.run("a", "true")
    shutil.move(spool.attempt("a"), tmp_path / "mine")
    assert client.must("attach", attempt="a", **{"from": 0})["known"] is False
    client.must("ack", run="r", epoch=1, attempt="a")
    assert (tmp_path / "mine/journal.jsonl").exists()
    assert client.must("hello", protocol=1)["attempts"] == []


def test_inventory(client: RunnerClient) -> None:
    found = client.must("inventory")
    assert found["cpus"] >= 1
    assert found["memory_mb"] > 100
    assert found["disk_free_mb"] >= 0
    assert {type(found["kvm"]), type(found["docker"])} == {bool}
    assert found["hostname"] == socket.gethostname()
    assert found["boot_id"]
    assert found["python"]


def test_shutdown_if_idle(spool: RunnerSpool, client: RunnerClient) -> None:
    with spool.client() as other:
        other.must("ping")
        assert client.must("shutdown", if_idle=True)["ended"] is False
    wait_until(lambda: not busy(client), "the other connection to be gone")
    client.launch("a", a_spec("sleep", "60"))
    assert client.must("shutdown", if_idle=True)["ended"] is False
    client.must("cancel", run="r", epoch=1, attempt="a")
    client.end("a")
    assert client.must("shutdown", if_idle=True)["ended"] is True
    wait_until(lambda: spool.info() is None, "the runner's end")
    assert not (spool.folder / "runner.json").exists()


def busy(client: RunnerClient) -> bool:
    """Whether the runner still sees another connection. A launch that is refused tells nothing, so the socket table is read."""
    path = client.socket.getpeername()
    lines = [line for line in Path("/proc/net/unix").read_text().splitlines() if line.endswith(path)]
    return sum(line.split()[5] == "03" for line in lines) > 1


def test_shutdown_ends_live_attempts(spool: RunnerSpool, client: RunnerClient) -> None:
    client.launch("a", a_spec("sleep", "60"))
    client.event("a", "started")
    assert client.must("shutdown")["ended"] is True
    end = client.end("a")
    assert (end["cause"], end["message"]) == ("runner_lost", "the runner was asked to stop")
    wait_until(lambda: spool.info() is None, "the runner's end")
    spool.start()
    with spool.client() as again:
        again.must("attach", attempt="a", **{"from": 0})
        assert again.end("a") == end


def test_garbage_and_endless_lines_drop_the_client(spool: RunnerSpool, client: RunnerClient) -> None:
    for garbage in (b"hello\n", b"[1]\n", b"\xff\n", b'{"do": "ping"}\n'):
        with spool.client() as rude:
            rude.socket.sendall(garbage)
            data = b""
            while piece := rude.socket.recv(4096):
                data += piece
            assert json.loads(data)["error"] == "bad_request"
    with spool.client() as rude:
        piece = b"x" * (1 << 20)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            rude.socket.sendall(piece * 100)
    client.must("ping")


def test_a_client_that_does_not_read_costs_nothing(spool: RunnerSpool, client: RunnerClient) -> None:
    info = spool.info()
    assert info is not None
    client.run("a", *sh("head -c 2000000 /dev/zero > $EVALFLEET_ARTIFACTS/big"))
    with spool.client() as stuck:
        request = (
            json.dumps({"id": 1, "do": "fetch", "attempt": "a", "path": "artifacts/big", "limit": 1 << 20}).encode()
            + b"\n"
        )
        stuck.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            stuck.socket.sendall(request * 100_000)
        client.run("b", "true")
        pages = int(Path(f"/proc/{info.pid}/statm").read_text().split()[1])
        assert pages * os.sysconf("SC_PAGE_SIZE") < 60 << 20


def test_many_events_to_a_slow_client(spool: RunnerSpool, client: RunnerClient) -> None:
    script = """
    note=$(head -c 3000 /dev/zero | tr '\\0' n)
    for i in $(seq 900); do
        echo '{"step": '$i', "note": "'$note'"}'
        [ $((i % 90)) -eq 0 ] && sleep 0.5
    done >> $EVALFLEET_EVENTS
    """
    with spool.client() as slow:
        slow.launch("a", a_spec(*sh(script)))
        client.must("attach", attempt="a", **{"from": 0})
        client.end("a")
        slow.end("a")
        assert slow.of("a") == client.of("a") == spool.journal("a")
