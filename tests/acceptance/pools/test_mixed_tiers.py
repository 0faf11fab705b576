"""Tiers of unlike pools: machines over SSH and nodes of Azure Batch, by commands, in front of an emulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support import machines
from tests.support.fleet import wait_for
from tests.support.machines import Hosts, hosts_at
from tests.support.rented import Rented, rented
from tests.support.sshd import Sshd

from evalfleet.model import Outcome
from evalfleet.store.open import open_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    yield from hosts_at(tmp_path)


@contextmanager
def two_tiers(folder: Path, lab: list[Sshd], *options: str) -> Iterator[Rented]:
    """Pool `both` of `lab`, machines over SSH at a dollar an hour, and of `nodes`, up to three nodes of Batch."""
    with rented(folder, 300) as here:
        boxes = folder / "boxes"
        here.fleet.env |= {"EVALFLEET_AZURE_BATCH_ACCOUNT": "evalfleet", "EVALFLEET_AZURE_STORAGE": str(boxes)}
        here.fleet.env |= {"EVALFLEET_LEASE_DURATION": "6s", "EVALFLEET_LEASE_GIVE_UP": "6s"}
        machines.pool(here.fleet, lab, price_usd_per_hour=1.0)
        size = ("--size", "Standard_D2s_v3", "--min", "0", "--max", "3")
        here.fleet.json("pool", "create", "nodes", "--backend", "azure-batch", *size)
        here.fleet.json("pool", "create", "both", "--tier", "lab", "--tier", "nodes", *options)
        yield here
        for name in ("both", "lab", "nodes"):
            done = here.fleet.command("pool", "delete", name, "--yes")
            assert done.returncode == 0, done.stdout + done.stderr
        assert here.is_empty(), here.leaks()
        assert [path for path in boxes.rglob("*") if path.is_file()] == []


def places(here: Rented, run: str = "latest") -> Counter[str]:
    """How many verdicts came from each tier."""
    with closing(open_store(here.fleet.home)) as store:
        attempts = store.attempts.all(store.runs.find(run).id)
    return Counter("lab" if one.host in ("a", "b") else "nodes" for one in attempts if one.outcome is Outcome.OK)


def tiers(here: Rented) -> dict[str, Any]:
    return {row["tier"]: row for row in here.status("both")["tiers"]}


@pytest.mark.long
def test_work_spills_from_ssh_machines_to_batch_and_moves_there_when_they_go(tmp_path: Path, hosts: Hosts):
    lab = hosts("ab")
    with two_tiers(tmp_path, lab) as here:
        run = here.fleet.start("run", here.work(24, 0.7), "--pool", "both", "--workers", "4")
        wait_for(lambda: "ready" in here.states("nodes").values() or run.poll() is not None, "a node of Batch")
        assert here.told("tier.spilled", "pool:both")
        for host in lab:
            host.stop()
        wait_for(lambda: tiers(here)["lab"]["state"] == "open" or run.poll() is not None, "the breaker of the lab")
        assert "not used: " in tiers(here)["lab"]["why"]
        out = run.communicate(timeout=200)[0]
        assert run.returncode == 0, out
        assert here.fleet.json("report")["tasks"]["done"] == 24
        assert places(here)["nodes"] > 3
        for host in lab:
            host.start()


def test_the_cheapest_tier_is_first_and_a_run_on_another_tier_goes_on_beside(tmp_path: Path, hosts: Hosts):
    """Batch at a tenth of a dollar comes before the lab at one; who uses a tier directly is not disturbed."""
    with two_tiers(tmp_path, hosts("ab"), "--prefer", "cheapest") as here:
        assert tiers(here)["nodes"]["usd_per_hour"] is None, "nobody has asked yet"
        for asked in (("logs", "both"), ("exec", "both", "--", "true")):
            assert "name one of its tiers: lab, nodes" in here.fleet.command("pool", *asked).stderr
        assert "there is no machine now in nodes" in here.fleet.command("pool", "logs", "nodes").stderr
        # While nodes are on their way, or prove themselves, machines that are ready anyway take work.
        assert here.fleet.command("pool", "scale", "nodes", "--min", "2").returncode == 0
        wait_for(lambda: Counter(here.states("nodes").values())["ready"] == 2, "two nodes")
        tasks = here.work(14, 0.5)
        run = here.fleet.start("run", tasks, "--pool", "both", "--workers", "2", "--name", "cheap")
        direct = here.fleet.start("run", tasks, "--pool", "lab", "--workers", "2", "--name", "direct")
        outs = [process.communicate(timeout=200)[0] for process in (run, direct)]
        assert (run.returncode, direct.returncode) == (0, 0), outs
        assert places(here, "cheap")["nodes"] > places(here, "cheap")["lab"]
        assert places(here, "direct") == {"lab": 14}
        assert list(tiers(here)) == ["nodes", "lab"]
        assert tiers(here)["nodes"]["usd_per_hour"] < tiers(here)["lab"]["usd_per_hour"] == 1.0
