"""The command `plan`: what it says without an account, and what brings 154 tasks of WAA to three to five dollars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalfleet.azure import prices
from evalfleet.cli import main as entry
from evalfleet.layout import Home
from evalfleet.pools.cloud.catalogue import ListPrice
from evalfleet.pools.cloud.records import Offering


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALFLEET_HOME", str(tmp_path))


def run(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    assert entry.run(args) == code
    output = capsys.readouterr()
    return output.err if code else output.out


def plan(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    return json.loads(run(capsys, "plan", *args, "--json"))


def chosen(told: dict[str, Any]) -> dict[str, Any]:
    return told["options"][told["chosen"]]


def test_what_brings_waa_to_three_to_five_dollars(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """The defaults cost about ten dollars. A smaller size halves that; the spot market takes most of the rest."""
    ten = ("waa", "--workers", "10", "--regions", "eastus")
    default = chosen(plan(capsys, *ten, "--size", "Standard_D8ds_v5"))
    assert 9.0 < default["usd"]["mean"] < 12.5  # $10.02 of machine time, and disks
    smaller = chosen(plan(capsys, *ten, "--size", "Standard_D4ds_v5"))
    assert 4.5 < smaller["usd"]["mean"] < 6.5
    best = chosen(plan(capsys, *ten))
    assert best["groups"][0]["size"] == "Standard_D4as_v5"
    assert 3.0 < best["usd"]["mean"] < 5.0
    spot = Offering(size="Standard_D8ds_v5", region="eastus", spot=True)
    prices.store(Home(tmp_path).prices, {spot: ListPrice(usd_per_hour=0.09, date="2026-06-18")})
    taken = chosen(plan(capsys, *ten, "--size", "Standard_D8ds_v5", "--spot"))
    assert 2.0 < taken["usd"]["mean"] < 4.0
    assert taken["seconds"]["mean"] > default["seconds"]["mean"]  # evictions take time
    shared = ("waa", "--workers", "5", "--minutes-per-task", "4", "--regions", "eastus", "--no-spot")  # two guests each
    assert 5.0 < chosen(plan(capsys, *shared, "--size", "Standard_D8ds_v5"))["usd"]["mean"] < 6.2
    assert 4.0 < chosen(plan(capsys, *shared, "--size", "Standard_D8as_v5"))["usd"]["mean"] < 5.0
    dear = chosen(plan(capsys, "waa", "--workers", "10", "--regions", "centralus"))
    assert dear["usd"]["mean"] > best["usd"]["mean"]


def test_the_front_is_a_table_of_80_columns(capsys: pytest.CaptureFixture[str]):
    text = run(capsys, "plan", "waa", "--budget", "5")
    assert max(map(len, text.splitlines())) <= 80
    assert "154 tasks of waa, for at most $5.00" in text
    assert "assumed: tasks of 8 minutes on average" in text
    assert "reserved machines (62% of the price" in text
    plan_id = text.split()[1].rstrip(":")
    assert f"`evalfleet run waa --plan {plan_id}` takes it" in text
    shown = run(capsys, "plan", "--show", plan_id)
    assert shown == text
    listed = run(capsys, "plan", "--list")
    assert plan_id in listed
    assert max(map(len, listed.splitlines())) <= 80


def test_a_deadline_takes_the_cheapest_and_a_budget_the_fastest(capsys: pytest.CaptureFixture[str]):
    told = plan(capsys, "waa", "--deadline", "3h")
    assert told["keeps"]
    assert chosen(told)["seconds"]["high"] <= 3 * 3600
    slower = told["options"][told["chosen"] + 1]
    assert slower["seconds"]["high"] > 3 * 3600
    told = plan(capsys, "waa", "--budget", "8")
    assert chosen(told)["usd"]["high"] <= 8
    assert all(one["usd"]["high"] > 8 for one in told["options"][: told["chosen"]])
    told = plan(capsys, "waa", "--deadline", "5m")
    assert not told["keeps"]


def test_a_task_file_names_what_each_task_needs(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    rows = [{"key": f"t{n}", "domain": "small", "command": ["true"]} for n in range(30)]
    rows += [{"key": "big", "domain": "large", "command": ["true"], "requests": {"memory_mb": 60_000}}]
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = plan(capsys, str(file), "--workers", "6")
    sizes = {group["size"]: group["machines"] for group in chosen(told)["groups"]}
    assert len(sizes) == 2
    assert min(sizes.values()) == 1
    asked = plan(capsys, "waa", "--workers", "10", "--memory", "libreoffice_calc=32")
    assert len({group["size"] for group in chosen(asked)["groups"]}) == 2


def test_the_former_name_still_works(capsys: pytest.CaptureFixture[str]):
    assert entry.run(["estimate", "--tasks", "154", "--workers", "10"]) == 0
    told = capsys.readouterr()
    assert "D8ds_v5 eastus" in told.out
    assert "`estimate` is called `plan --tasks N` now" in told.err
    assert "estimate" not in run(capsys, "--help")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["plan"], "name a task file or a benchmark"),
        (["plan", "nope"], "neither a file nor a benchmark"),
        (["plan", "waa", "--deadline", "soon"], "--deadline"),
        (["plan", "waa", "--budget", "0"], "--budget"),
        (["plan", "waa", "--size", "huge"], 'no VM size "huge"'),
        (["plan", "waa", "--memory", "x"], "write DOMAIN=GB"),
        (["plan", "waa", "--max-steps", "3"], "--max-steps changes nothing"),
        (["plan", "waa", "--backend", "ssh"], "of ssh"),
        (["plan", "--show", "zzz"], "no plan"),
    ],
)
def test_what_is_refused(capsys: pytest.CaptureFixture[str], args: list[str], said: str):
    assert said in run(capsys, *args, code=2)
