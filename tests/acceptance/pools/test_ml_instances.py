"""Compute instances of Azure ML as a pool, as people have them who come from WAA's `run_azure.py`: one per worker."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.rented import Rented, rented

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
API = "2024-04-01"


def instances(here: Rented) -> list[dict[str, object]]:
    path = "Microsoft.MachineLearningServices/workspaces/evalfleet/computes"
    return [row["properties"] for row in here.arm("GET", path, None, API)["value"]]


def test_instances_run_tasks_and_leave_nothing(tmp_path: Path):
    with rented(tmp_path, 200) as here:
        boxes = tmp_path / "boxes"
        here.fleet.env |= {"EVALFLEET_AZURE_WORKSPACE": "evalfleet", "EVALFLEET_AZURE_STORAGE": str(boxes)}
        options = ("--regions", "eastus", "--size", "Standard_D8_v3", "--workers", "2")
        made = here.fleet.json("pool", "create", "p1", "--backend", "azure-ml-instance", *options)
        assert {host["state"] for host in made["hosts"]} == {"ready"}
        assert [row["computeType"] for row in instances(here)] == ["ComputeInstance"] * 2
        assert here.run("run", here.work(4, 0.2), "--pool", "p1")["tasks"]["done"] == 4
        here.all_ok(4)
        assert here.states() == {}, "they would cost until their deadlines: they go with the run"
        assert "there is no machine now in p1" in here.fleet.command("pool", "ssh", "evalfleet-1").stderr
        here.leave()
        assert instances(here) == []
        assert [path for path in boxes.rglob("*") if path.is_file()] == []
