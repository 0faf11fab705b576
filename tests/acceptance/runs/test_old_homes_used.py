"""Homes of earlier versions, used by commands."""

from __future__ import annotations

import pytest
from tests.support.fleet import Fleet
from tests.support.old_homes import FOREIGN, OLD, unpacked

from evalfleet.store.database.statements import migrations


@pytest.mark.parametrize("commit", OLD)
def test_an_old_home_is_read_and_used_on(commit: str, fleet: Fleet):
    unpacked(commit, fleet.home)
    assert "hello" in fleet.command("logs", "latest", "good").stdout
    assert fleet.json("report", "latest")["scores"]["valid"] == pytest.approx(0.5)
    assert fleet.command("run", fleet.tasks([{"key": "new", "command": ["true"]}])).returncode == 0
    assert len(fleet.json("status")["runs"]) == 2
    if OLD[commit] < len(migrations("sqlite")):
        assert f"evalfleet.db.schema-{OLD[commit]}" in fleet.command("doctor").stdout


@pytest.mark.parametrize("commit", FOREIGN)
def test_doctor_reads_a_home_that_cannot_be_brought_up_to_date(commit: str, fleet: Fleet):
    unpacked(commit, fleet.home)
    refused = fleet.command("status")
    assert refused.returncode == 2
    assert "left as it was" in refused.stderr
    told = fleet.command("doctor")
    assert told.returncode == 3
    assert "1 run and 3 tasks in it" in " ".join(told.stdout.split())
