"""Pruning and its neighbours, with real runners."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.runner import RunnerClient, RunnerSpool, a_spec, is_alive, wait_until

WEEK_S = 7 * 86400


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[RunnerSpool]:
    runner = RunnerSpool(tmp_path / "spool")
    yield runner
    runner.close()
    assert "Traceback" not in runner.log()


def put(client: RunnerClient, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    client.must("put", sha256=digest, offset=0, data=base64.b64encode(content).decode(), last=True)
    return digest


def age(spool: RunnerSpool, digest: str, by_s: float) -> None:
    moment = time.time() - by_s
    os.utime(spool.folder / "files" / digest, (moment, moment))


def look(spool: RunnerSpool) -> dict[str, Any]:
    command = spool.command("look", "--spool", str(spool.folder))
    return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)


def test_the_next_runner_prunes_what_nobody_needs(spool: RunnerSpool) -> None:
    spool.start()
    with spool.client() as client:
        old, young, used = put(client, b"old"), put(client, b"young"), put(client, b"used")
        end = client.run("a.1.1", "/bin/sh", "-c", "cat f", files={"f": used}, cwd=None)
        assert end["tail"] == "used"
    for digest in (old, used):
        age(spool, digest, WEEK_S + 60)
    age(spool, young, WEEK_S - 60)
    spool.kill()
    spool.start()
    assert set(os.listdir(spool.folder / "files")) == {young, used}
    assert "pruned 1 files (3 bytes)" in spool.log()
    with spool.client() as client:
        assert put(client, b"old") == old, "who needs it puts it again"
        assert client.run("a.2.1", "/bin/sh", "-c", "cat f", files={"f": old}, cwd=None)["tail"] == "old"
        client.must("ack", run="r", epoch=1, attempt="a.1.1")
    age(spool, used, WEEK_S + 60)
    spool.kill()
    spool.start()
    assert set(os.listdir(spool.folder / "files")) == {young, old}, "nothing of it is left once its attempt is acked"


def test_a_host_says_since_when_nobody_needs_it(spool: RunnerSpool) -> None:
    info = spool.start(idle_s=2.0)
    with spool.client():
        assert look(spool)["reapable_for_s"] is None
    wait_until(lambda: not is_alive(info.pid), "the idle end")
    first = look(spool)["reapable_for_s"]
    assert 0 <= first < 60
    wait_until(lambda: look(spool)["reapable_for_s"] > first, "its growth")
    spool.start()
    assert look(spool)["reapable_for_s"] is None, "somebody needs it again"
    with spool.client() as client:
        client.launch("a.1.1", a_spec("sleep", "60"))
        client.event("a.1.1", "started")
    spool.kill()
    assert look(spool)["reapable_for_s"] is None, "a runner that dies says nothing about the host"


def test_a_runner_that_is_retired_says_so_too(spool: RunnerSpool) -> None:
    spool.start()
    command = spool.command("retire", "--spool", str(spool.folder))
    assert json.loads(subprocess.run(command, capture_output=True, check=True).stdout) == {"ended": True}
    assert look(spool)["reapable_for_s"] is not None


@pytest.mark.parametrize("content", ["", "soon", "\n"])
def test_a_spoiled_mark_is_none(tmp_path: Path, content: str) -> None:
    spool = RunnerSpool(tmp_path / "spool")
    (spool.folder / "reapable").write_text(content)
    assert look(spool)["reapable_for_s"] is None
