"""Plans against what came: each run on the emulator is planned from the runs of other seeds, and then made."""

from __future__ import annotations

import math
import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.rented import Rented, rented

SPEED = 200  # cloud seconds per second: a task of 3 minutes takes one
TASKS, WORKERS = 15, 3
HISTORY, SEEDS = 3, 10
ENOUGH = 8


def tasks_of(here: Rented, seed: int) -> str:
    """The same keys for each seed, each with its own usual length; what an attempt takes differs from seed to seed."""
    usual, luck = random.Random("keys"), random.Random(seed)
    lengths = [math.exp(usual.gauss(0.0, 0.5)) for _ in range(TASKS)]
    seconds = [length * math.exp(luck.gauss(-0.05, 0.25)) for length in lengths]
    rows = [
        {"key": f"t_{number}", "domain": f"d{number % 4}", "command": ["sleep", f"{length:.3f}"]}
        for number, length in enumerate(seconds)
    ]
    return here.fleet.tasks(rows, retry_base="200ms")


def planned(here: Rented, source: str) -> dict[str, Any]:
    return here.fleet.json("plan", source, "--workers", str(WORKERS), "--regions", "eastus", "--no-spot")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_run_follows_its_plan_and_both_are_shown_side_by_side(tmp_path: Path):
    with rented(tmp_path, SPEED) as here:
        source = tasks_of(here, 0)
        refused = here.fleet.command("run", source, "--plan")
        assert (refused.returncode, "no plan for 15 tasks" in refused.stderr) == (2, True), refused.stderr
        plan = planned(here, source)
        assert plan["basis"]["known_tasks"] == 0
        (option,) = plan["options"]
        assert (option["workers"], plan["keeps"], plan["actual"]) == (WORKERS, True, None)
        mixed = here.fleet.command("run", source, "--plan", plan["id"], "--workers", "3")
        assert "--plan decides about the machines" in mixed.stderr
        summary = here.run("run", source, "--plan", plan["id"])
        actual = summary["plan"]["actual"]
        assert (actual["run"], actual["over"]) == (summary["run"], True)
        assert actual["seconds"] == pytest.approx(summary["duration_s"] * SPEED)
        assert actual["usd"] == pytest.approx(here.control("GET", "bill")["usd"], rel=0.1)
        assert len(here.births()) == WORKERS
        shown = here.fleet.command("report").stdout
        assert "planned (90 %)" in shown
        assert f"of plan {plan['id']}" in shown
        again = here.fleet.command("run", source, "--plan", plan["id"])
        assert (again.returncode, "follows plan" in again.stderr) == (3, True), again.stderr
        assert here.is_empty(), here.leaks()
        assert planned(here, source)["basis"]["known_tasks"] == TASKS
        assert [one["id"] for one in here.fleet.json("plan", "--list")["plans"]][1] == plan["id"]


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_truth_lies_inside_the_plan_in_8_of_10_seeds(tmp_path: Path):
    in_time, in_money, lines = 0, 0, list[str]()
    with rented(tmp_path, SPEED) as here:
        for seed in range(HISTORY + SEEDS):
            source = tasks_of(here, seed)
            plan = planned(here, source)
            (option,) = plan["options"]
            actual = here.run("run", source, "--plan", plan["id"])["plan"]["actual"]
            lines.append(
                f"seed {seed}: {actual['seconds']:.0f} s of {option['seconds']}, ${actual['usd']:.3f} of {option['usd']}"
            )
            if seed >= HISTORY:
                in_time += actual["seconds_inside"]
                in_money += actual["usd_inside"]
    print("\n".join(lines))
    assert in_time >= ENOUGH, lines
    assert in_money >= ENOUGH, lines


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_domain_names_what_it_needs_and_gets_it(tmp_path: Path):
    """From plan to pool to run to truth with two sizes: what is large runs on large machines only."""
    with rented(tmp_path, SPEED) as here:
        rows = [{"key": f"{kind}_{n}", "domain": kind, "command": ["true"]} for kind in ("a", "b") for n in range(4)]
        source = here.fleet.tasks(rows, retry_base="200ms")
        asked = ("--workers", "3", "--regions", "eastus", "--no-spot", "--memory", "b=20")
        plan = here.fleet.json("plan", source, *asked)
        groups = plan["options"][plan["chosen"]]["groups"]
        planned = {group["size"]: group["machines"] for group in groups}
        assert (len(planned), sum(planned.values()), plan["memory_mb"]) == (2, 3, {"b": 20 * 1024})
        summary = here.run("run", source, "--plan", plan["id"], "--speculate")
        assert summary["plan"]["actual"]["over"]
        with closing(sqlite3.connect(here.fleet.home / "evalfleet.db")) as db:
            sizes = dict(db.execute("select name, size from machine").fetchall())
            used = db.execute(
                "select substr(key, 1, 1), host from attempt join task on task.number = task_number"
            ).fetchall()
            (speculates,) = db.execute("select policy ->> '$.speculate' from run").fetchone()
        assert Counter(sizes.values()) == planned
        large = max(groups, key=lambda group: group["usd_per_hour"])["size"]
        assert {sizes[host] for kind, host in used if kind == "b"} == {large}
        assert speculates == 1
        assert here.is_empty(), here.leaks()
