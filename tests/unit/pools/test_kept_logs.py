"""Logs that are kept of machines that failed: where, how many, without secrets, and within a time."""

from __future__ import annotations

import stat
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from evalfleet.hosts.late_redaction import without_credentials
from evalfleet.layout import Home
from evalfleet.pools.cloud.problems import Action, Cause, Problem, Refusal
from evalfleet.pools.machine.logs import kept as kept_logs
from evalfleet.pools.machine.logs.kept import keep, kept, read_all
from evalfleet.pools.machine.logs.logs import MachineLogs

pytestmark = pytest.mark.anyio


class ClusterLogs:
    """A cloud that keeps logs of its own, as those do whose machines cannot be logged in to."""

    def __init__(self, texts: dict[str, str], *, console: str = "", hangs: bool = False) -> None:
        self._texts, self._console, self._hangs = texts, console, hangs

    async def log(self, name: str) -> str:
        return self._console

    async def logs(self, name: str) -> list[str]:
        return list(self._texts)

    async def read_log(self, name: str, log: str, limit: int) -> str:
        if self._texts[log] == "refused":
            raise Refusal(Problem(cause=Cause.SERVER, action=Action.WAIT, message="the node is gone"))
        if self._hangs:
            await anyio.sleep_forever()
        return self._texts[log][-limit:]


def logs_of(cloud: Any, folder: Path) -> MachineLogs:
    return MachineLogs("m-1", cast("Any", cloud), None, Home(folder), AsyncExitStack())


async def test_a_cloud_brings_its_own_logs_and_what_cannot_be_read_says_why(tmp_path: Path):
    cloud = ClusterLogs({"start-task": "pulling", "pilot": "refused", "empty": " \n"}, console="booted")
    texts = await read_all(logs_of(cloud, tmp_path), 20)
    assert texts == {
        "boot": "booted",
        "start-task": "pulling",
        "pilot": "[evalfleet: cannot be read: the node is gone]\n",
    }


async def test_a_log_that_never_comes_costs_only_its_time(tmp_path: Path):
    assert await read_all(logs_of(ClusterLogs({"job": "x"}, hangs=True), tmp_path), 0.05) == {}


async def test_logs_are_kept_with_every_run_that_used_the_pool_or_with_the_pool(tmp_path: Path):
    home = Home(tmp_path)
    assert await keep(home, "p", "m-1", ["r1", "r2"], {"container/win": "a"}, {}) == "runs/r1/machines/m-1/1"
    assert (tmp_path / "runs/r2/machines/m-1/1/container+win.log").read_text() == "a"
    assert await keep(home, "p", "m-1", [], {"boot": "b"}, {}) == "pools/p/machines/m-1/1"
    assert await keep(home, "p", "m-1", ["r1"], {"boot": "c"}, {}) == "runs/r1/machines/m-1/2"
    found = {(one.log, one.run, one.path.read_text()) for one in kept(home, "p", "m-1")}
    assert found == {
        ("container/win", "r1", "a"),
        ("container/win", "r2", "a"),
        ("boot", None, "b"),
        ("boot", "r1", "c"),
    }
    assert kept(home, "p", "m-2") == []


async def test_what_is_kept_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept_logs, "MOST_TIMES", 2)
    monkeypatch.setattr(kept_logs, "MOST_MACHINES", 2)
    folders = [
        await keep(Home(tmp_path), "p", host, ["r"], {"boot": "x"}, {}) for host in ("a", "a", "a", "b", "c", "b")
    ]
    assert [folder and folder.removeprefix("runs/r/machines/") for folder in folders] == [
        *("a/1", "a/2", None),
        *("b/1", None, "b/2"),
    ]
    many = ClusterLogs({f"log-{number}": "x" * 300_000 for number in range(20)})
    texts = await read_all(logs_of(many, tmp_path), 20)
    assert len(texts) == kept_logs.MOST_LOGS
    assert {len(text) for text in texts.values()} == {kept_logs.LIMIT_CHARS}


async def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path):
    (tmp_path / "runs").write_text("a file is in the way")
    assert await keep(Home(tmp_path), "p", "m-1", ["r1"], {"boot": "x"}, {}) is None


async def test_a_half_written_folder_of_a_dead_controller_is_taken_over(tmp_path: Path):
    partial = tmp_path / "runs/r1/machines/m-1/.1.partial"
    partial.mkdir(parents=True)
    assert await keep(Home(tmp_path), "p", "m-1", ["r1"], {"boot": "x"}, {}) == "runs/r1/machines/m-1/1"
    assert stat.S_ISDIR((tmp_path / "runs/r1/machines/m-1/1").stat().st_mode)
    assert not partial.exists()


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        ("key is hunter2-hunter2 here", "key is [secret KEY] here"),
        ("GET /b?sv=1&sig=abc%2Fdef&se=2 200", "GET /b?sv=1&sig=[redacted]&se=2 200"),
        ("Authorization: Bearer eyJhbGciOi.x", "Authorization: Bearer [redacted]"),
        ("AccountName=a;AccountKey=Zm9vYmFy==;End", "AccountName=a;AccountKey=[redacted];End"),
        ("docker login --password=swordfish", "docker login --password=[redacted]"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n-----END OPENSSH PRIVATE KEY-----\nend", "[redacted]\nend"),
        ("-----BEGIN RSA PRIVATE KEY-----\nb3Bl and the rest is cut", "[redacted]"),
        ("signature=none, 3 tokens left", "signature=none, 3 tokens left"),
    ],
)
def test_credentials_are_cut_out(line: str, clean: str):
    assert without_credentials(line, {"KEY": "hunter2-hunter2"}) == clean
