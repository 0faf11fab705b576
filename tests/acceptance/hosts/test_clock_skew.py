"""Hosts whose wall clock is wrong, or is set while they work: no moment, duration or limit is judged by it."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support import sshd
from tests.support.fleet import Fleet, wait_for
from tests.support.runner import RunnerSpool, a_spec
from tests.support.skewed_clock import SkewedPython

from evalfleet.hosts.base import AttemptEvent, Inbox
from evalfleet.hosts.ssh.backend import SshBackend, SshSettings
from evalfleet.layout import Home
from evalfleet.testing.backend_contract import Watcher, launch

OFF_S = (600.0, -600.0)
NEAR_S = 0.2  # what a moment may be off after a loaded machine's round trip; the clocks differ by 3000 times that


@pytest.mark.parametrize("off_s", OFF_S)
@pytest.mark.anyio
async def test_over_ssh_moments_are_ours(tmp_path: Path, home: Path, off_s: float) -> None:
    python = SkewedPython(tmp_path, off_s)
    with sshd.host(tmp_path) as server:
        settings = SshSettings(idle_s=60.0, known_hosts=())
        backend = SshBackend(Home(home), server.spec(python=python.path), settings)
        inbox = Inbox()
        before = time.time()
        async with backend.acquire("run1", 1, inbox) as host:
            watcher = Watcher(inbox)
            await host.launch([launch("run1.1.1", "sleep", "0.3")])
            started = await watcher.until("run1.1.1", "started")
            python.set(-7200.0)  # somebody sets the clock while the task runs
            end = await watcher.until("run1.1.1")
            after = time.time()
            assert before - NEAR_S < started.at < end.at < after + NEAR_S
            moments = [end.data["started_at"], end.data["ended_at"]]
            assert moments == sorted(moments)
            assert before - NEAR_S < moments[0] <= moments[1] < after + NEAR_S
            assert 0.3 <= end.data["duration_s"] < after - before
            assert moments[1] - moments[0] == pytest.approx(end.data["duration_s"], abs=0.1)
        # The file on the host has the host's own time: without the translation the test would see that.
        journal = RunnerSpool(server.spool).journal("run1.1.1")
        assert abs(journal[1]["at"] - started.at - off_s) < 2 * NEAR_S
        async with backend.acquire("run1", 2, inbox) as host:
            again = Watcher(inbox)
            assert await host.observe("run1.1.1", -1)
            replayed: AttemptEvent = await again.until("run1.1.1")
            assert abs(replayed.at - end.at) < 2 * NEAR_S, "the next controller sees the same moments"


@pytest.mark.parametrize("off_s", OFF_S)
def test_limits_and_the_next_runner_do_not_mind(tmp_path: Path, off_s: float) -> None:
    python = SkewedPython(tmp_path, off_s)
    spool = RunnerSpool(tmp_path / "spool", python.path)
    spool.start()
    try:
        with spool.client() as client:
            assert abs(client.must("ping")["now"] - time.time() - off_s) < 5, "the clock is really off"
            since = time.monotonic()
            client.launch("t", a_spec("sh", "-c", "while :; do echo x; sleep 0.05; done", timeout_s=1.0), valid_for_s=5)
            python.set(-off_s)
            end = client.end("t")
            assert (end["cause"], 1.0 <= end["duration_s"] < 10) == ("timeout", True)
            assert time.monotonic() - since < 20
            late = client.ask("launch", attempt="l", run="r", epoch=1, spec=a_spec("true"), valid_for_s=-1.0)
            assert late["error"] == "expired"
            client.launch("lost", a_spec("sleep", "60"))
            client.event("lost", "started")
            since = time.monotonic()
        spool.kill()
        python.set(3 * off_s)
        spool.start()
        lost = spool.journal("lost")[-1]
        assert lost["cause"] == "runner_lost"
        assert 0 <= lost["duration_s"] < time.monotonic() - since + 5, "runners of one boot share a clock"
        assert 0 <= lost["idle_s"] < time.monotonic() - since + 5
    finally:
        spool.close()


@pytest.mark.parametrize("off_s", OFF_S)
def test_a_whole_run_has_right_times_and_costs(fleet: Fleet, tmp_path: Path, off_s: float) -> None:
    python = SkewedPython(tmp_path, off_s)
    script = 'echo \'{"ready": true}\' >> "$EVALFLEET_EVENTS"; sleep 0.5'
    tasks = [{"key": f"t_{number}", "command": ["sh", "-c", script]} for number in range(3)]
    fleet.home.mkdir()
    (fleet.home / "config.toml").write_text("[local]\nprice_usd_per_hour = 360.0\n")  # ten cents a second
    before = time.time()
    path = fleet.tasks(tasks, budget_usd=10.0, timeout="20s", start_timeout="20s")
    summary = fleet.json("run", path, "--workers", "2", EVALFLEET_RUNNER_PYTHON=python.path)
    after = time.time()
    assert summary["tasks"]["done"] == 3
    assert 0.15 <= summary["cost"]["total_usd"] < 0.1 * 3 * (after - before)
    assert fleet.command("export", "latest", "--to", "out", "--format", "csv").returncode == 0
    rows: list[dict[str, Any]] = list(csv.DictReader((fleet.folder / "out" / "attempts.csv").read_text().splitlines()))
    assert len(rows) == 3
    for row in rows:
        moments = [float(row[name]) for name in ("claimed_at", "started_at", "ended_at")]
        assert before - 1 <= moments[0] <= moments[1] + NEAR_S <= moments[2] + NEAR_S <= after + 1 + NEAR_S, row
        assert 0.5 <= float(row["duration_s"]) < after - before


@pytest.mark.parametrize("off_s", OFF_S)
def test_a_killed_controller_finds_its_attempts(fleet: Fleet, tmp_path: Path, off_s: float) -> None:
    python = SkewedPython(tmp_path, off_s)
    go = fleet.folder / "go"
    script = f"echo x >> {fleet.ledger}; while [ ! -e {go} ]; do sleep 0.05; done"
    path = fleet.tasks([{"key": "a", "command": ["sh", "-c", script]}])
    run = fleet.start("run", path, EVALFLEET_RUNNER_PYTHON=python.path)
    wait_for(fleet.lines, "the task")
    run.kill()
    run.wait()
    go.touch()
    summary = fleet.json("resume", EVALFLEET_RUNNER_PYTHON=python.path)
    assert summary["tasks"]["done"] == 1
    assert fleet.lines() == ["x"], "its lease did not run out for the new controller"
