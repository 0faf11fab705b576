"""Pools of Batch nodes by commands, in front of an emulator whose nodes are real processes with real pilots and runners."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.rented import rented

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_pool_goes_where_vms_would_stop_comes_back_and_works_through_an_outage(tmp_path: Path):
    with rented(tmp_path, 300) as here:
        boxes = tmp_path / "boxes"
        here.fleet.env |= {"EVALFLEET_AZURE_BATCH_ACCOUNT": "evalfleet", "EVALFLEET_AZURE_STORAGE": str(boxes)}
        # The owner of the pool looks at the pilots ten times in this time.
        silence = ("--deadline", "silence=20s")
        options = ("--backend", "azure-batch", "--workers", "2", "--size", "Standard_D2s_v3", *silence)
        made = here.fleet.json("pool", "create", "p1", *options)
        assert {host["state"] for host in made["hosts"]} == {"ready"}
        refused = here.fleet.command("pool", "exec", "p1", "--", "true")
        assert "cannot be called" in refused.stdout + refused.stderr
        assert "start-task" in here.fleet.command("pool", "logs", "p1", "--list").stdout

        assert here.fleet.command("pool", "stop", "p1").returncode == 0
        assert here.status()["hosts"] == []
        assert "Microsoft.Batch/jobs" not in here.leaks()["resources"]
        assert [path for path in boxes.rglob("*") if path.is_file()] == []
        assert here.fleet.command("pool", "start", "p1").returncode == 0
        assert sorted(here.states().values()) == ["ready", "ready"]

        process = here.fleet.start("run", here.work(6, 0.5), "--pool", "p1")
        here.control("POST", "outages", {"service": "batch", "lasts": 900})
        said = process.communicate(timeout=200)[0]
        assert process.returncode == 0, said
        here.all_ok(6)
        requests = [host["box_requests_per_hour"] for host in here.status()["hosts"]]
        assert all(count > 0 for count in requests), requests
        assert "requests an hour to the machines' boxes, $0.000" in here.fleet.command("pool", "status", "p1").stdout
        here.leave()


def test_an_account_without_quota_is_told(tmp_path: Path):
    scenario = tmp_path / "no-quota.toml"
    scenario.write_text('[[batch]]\nname = "evalfleet"\ndedicated_cores = 0\n')
    with rented(tmp_path, 300, "--scenario", str(scenario)) as here:
        env = {"EVALFLEET_AZURE_BATCH_ACCOUNT": "evalfleet", "EVALFLEET_AZURE_STORAGE": str(tmp_path / "boxes")}
        here.fleet.env |= env
        done = here.fleet.command("pool", "create", "p1", "--backend", "azure-batch", "--size", "Standard_D2s_v3")
        assert done.returncode == 3, done.stdout + done.stderr
        assert "AccountCoreQuotaReached" in done.stdout + done.stderr
        here.leave()
