"""`evalfleet reap` in front of an emulated Azure: what has no purpose goes, and nothing else does."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import Fleet, wait_for
from tests.support.rented import rented

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


VM_API = "2024-07-01"
NETWORK_API = "2022-11-01"


def reaped(home: Fleet, *options: str) -> dict[str, Any]:
    return home.json("reap", *options)


def kinds(rows: list[dict[str, str]]) -> list[str]:
    return [row["type"].rpartition("/")[2].lower() for row in rows]


def test_machines_of_a_home_that_was_deleted(tmp_path: Path):
    with rented(tmp_path, 100) as here:
        fleet = here.fleet
        here.create("--workers", "2", "--spot")
        shutil.rmtree(fleet.home)
        left = reaped(fleet, "--force")
        assert left["resources"] == [], "another home at the same place is not the one that made them"
        [owner] = left["others"]
        assert f"--owner {owner}" in fleet.command("reap").stdout
        assert reaped(fleet, "--owner", owner)["resources"] == [], "somebody may keep them still"
        would = reaped(fleet, "--dry-run", "--force", "--owner", owner)
        assert {row["why"] for row in would["resources"]} == {f"made by {owner}"}
        assert kinds(would["resources"])[:2] == ["virtualmachines"] * 2
        assert len(here.control("GET", "leaks")["resources"]) > 1  # nothing has gone
        done = reaped(fleet, "--force", "--owner", owner)
        assert done["left"] == 0
        assert {row["name"] for row in would["resources"]} >= {row["name"] for row in done["resources"]}
        assert here.is_empty(), here.leaks()
        assert reaped(fleet)["resources"] == []


def test_a_vm_whose_maker_died_before_it_heard_of_it(tmp_path: Path):
    with rented(tmp_path, 20) as here:
        fleet = here.fleet
        making = fleet.start("pool", "create", "p1", "--backend", "azure-vm", "--workers", "1", "--regions", "eastus")
        wait_for(lambda: here.events("vm.creating"), "the request")
        os.killpg(making.pid, signal.SIGKILL)
        making.wait()
        shutil.rmtree(fleet.home)
        [owner] = reaped(fleet)["others"]
        assert reaped(fleet, "--force", "--owner", owner)["left"] == 0
        assert here.is_empty(), here.leaks()


def test_another_homes_machines_stay_until_they_expire(tmp_path: Path):
    with rented(tmp_path, 100) as here:
        here.create("--workers", "1", "--max-hours", "1")
        other = here.another_home(tmp_path / "other-home")
        for words in ((), ("--force",)):
            told = reaped(other, *words)
            assert (told["resources"], told["left"], len(told["others"])) == ([], 0, 1)
        assert set(here.states().values()) == {"ready"}
        tags = here.arm("GET", "Microsoft.Compute/virtualMachines/evalfleet-1", None, VM_API)["tags"]
        past = {**tags, "evalfleet-expires": "2026-01-01T00:00:00Z"}
        here.arm("PATCH", "Microsoft.Compute/virtualMachines/evalfleet-1", {"tags": past}, VM_API)
        done = reaped(other)
        assert done["left"] == 0
        assert {row["why"] for row in done["resources"]} == {f"expired; made by {tags['evalfleet-owner']}"}
        assert here.births() == {"evalfleet-1": 1}
        assert len(here.events("vm.deleted")) == 1
        here.leave()  # by the home that it belongs to


def test_parts_without_a_machine(tmp_path: Path):
    with rented(tmp_path, 100) as here:
        here.create("--workers", "1")
        tags = here.arm("GET", "Microsoft.Compute/virtualMachines/evalfleet-1", None, VM_API)["tags"]
        body = {"location": "eastus", "tags": tags, "properties": {"publicIPAllocationMethod": "Static"}}
        here.arm("PUT", "Microsoft.Network/publicIPAddresses/evalfleet-7-ip", body, NETWORK_API)
        assert reaped(here.fleet, "--dry-run")["resources"] == [
            {
                "type": "Microsoft.Network/publicIPAddresses",
                "name": "evalfleet-7-ip",
                "region": "eastus",
                "why": "pool 'p1' does not want it",
            }
        ]
        assert reaped(here.fleet)["left"] == 0
        assert set(here.states().values()) == {"ready"}
        here.leave()


@pytest.mark.long
def test_a_pool_whose_run_is_over(tmp_path: Path):
    with rented(tmp_path, 100) as here:
        fleet = here.fleet
        run = fleet.start("run", here.work(4, 30), "--backend", "azure-vm", "--workers", "2", "--regions", "eastus")
        wait_for(lambda: len(here.begun()) == 2, "two tasks to run")
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        (pool,) = fleet.json("pool", "list")["pools"]
        assert reaped(fleet)["resources"] == []  # the run may be resumed
        assert len(fleet.json("pool", "list")["pools"]) == 1
        assert fleet.command("cancel", "latest").returncode == 0
        reaped(fleet)
        assert fleet.json("pool", "list")["pools"] == [], pool
        assert here.is_empty(), here.leaks()


def test_a_pool_that_is_wanted_stays_whole(tmp_path: Path):
    with rented(tmp_path, 100) as here:
        here.create("--workers", "2")
        assert reaped(here.fleet)["resources"] == []
        here.fleet.json("pool", "stop")
        assert reaped(here.fleet)["resources"] == []
        assert set(here.states().values()) == {"stopped"}
        here.leave()


@pytest.mark.long
def test_bake_and_begin_with_the_image(tmp_path: Path):
    with rented(tmp_path, 400) as here:
        fleet = here.fleet
        (fleet.folder / "setup.sh").write_text("echo from the first one > prepared\n")
        here.create("--workers", "1", "--setup", "setup.sh")
        baked = fleet.json("pool", "bake")
        assert (baked["image"], baked["source"]) == ("golden", "evalfleet-1")
        here.create("--workers", "1", "--image", "golden", "--name-prefix", "two", name="p2")
        said = fleet.command("pool", "exec", "p2", "--", "cat", "prepared")
        assert "from the first one" in said.stdout, said.stdout + said.stderr
        summary = here.run("run", here.work(3, 0.1), "--pool", "p2")
        assert summary["scores"]["verdicts"] == 3
        here.delete("p2")
        here.delete("p1")
        assert reaped(fleet)["resources"] == []  # golden images stay
        assert here.leaks()["leaks"] == []


def test_an_image_that_is_not_there_is_said(tmp_path: Path):
    with rented(tmp_path, 100) as here:
        made = here.fleet.command("pool", "create", "p1", "--backend", "azure-vm", "--image", "silver")
        assert made.returncode == 3
        assert "there is no image 'silver'" in made.stdout
        here.leave()  # nothing that is missing keeps a pool alive
