"""A budget below what the run costs: a fair part of the tasks is covered, and the report says which part."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.fleet import Fleet

DOMAINS = ("files", "forms", "search")


def priced(nap_s: dict[str, float]) -> list[dict[str, Any]]:
    """Four tasks of each domain, $0.10 each, that take as long as their domain says."""
    script = "echo '{\"cost_usd\": 0.1}' >> $EVALFLEET_EVENTS; sleep "
    return [
        {"key": f"{domain}_{n}", "command": ["sh", "-c", f"{script}{nap_s.get(domain, 0)}"]}
        for domain in DOMAINS
        for n in range(4)
    ]


def test_what_a_small_budget_covers_is_a_fair_part_and_is_said(fleet: Fleet):
    path = fleet.tasks(priced({"search": 0.3, "forms": 0.1}), name="bench.jsonl")
    assert fleet.command("run", path, "--workers", "4").returncode == 0
    done = fleet.command("run", path, "--workers", "2", "--budget", "0.6")  # half of what the first one cost
    assert done.returncode == 3
    report = fleet.json("report")
    assert {name: (facts["counted"], facts["total"]) for name, facts in report["by_domain"].items()} == dict.fromkeys(
        DOMAINS, (2, 4)
    )
    said = "6 of 12 tasks: files 2 of 4, forms 2 of 4, search 2 of 4"
    assert f"Covers       {said}" in done.stdout
    assert f"The scores cover {said}." in fleet.command("report", "--html", "-").stdout
    assert fleet.command("resume", "--budget", "5").returncode == 0
    assert "Covers" not in fleet.command("report").stdout


def test_a_first_run_with_a_budget_is_fair_from_the_start(fleet: Fleet):
    done = fleet.command("run", fleet.tasks(priced({})), "--workers", "1", "--budget", "0.3")
    assert "Covers       3 of 12 tasks: files 1 of 4, forms 1 of 4, search 1 of 4" in done.stdout


@pytest.mark.parametrize("command", ["run", "tune"])
def test_a_budget_that_admits_nothing_is_refused_at_submission(fleet: Fleet, command: str):
    path = fleet.tasks([{"key": "a", "command": ["true"]}], timeout="15m")
    if command == "tune":
        study = fleet.folder / "study.toml"
        study.write_text(
            '[study]\nname = "s"\ntimeout_per_trial = "15m"\nobjective = { maximize = "x" }\n[parameters]\na = [1]\n'
            '[trial]\ncommand = ["true"]\n'
        )
        path = str(study)
    refused = fleet.command(command, path, "--budget", "1", EVALFLEET_LOCAL_PRICE_USD_PER_HOUR="6")
    assert refused.returncode == 2
    assert "at $6.00 an hour one that takes its whole time limit, 15m, costs $1.50" in refused.stderr
    assert "a budget of $1.50 or more, or a shorter timeout. Nothing was submitted." in refused.stderr
    assert fleet.json("status")["runs"] == []
    enough = fleet.command(command, path, "--budget", "1.5", "--detach", EVALFLEET_LOCAL_PRICE_USD_PER_HOUR="6")
    assert enough.returncode == 0


def test_one_task_that_states_a_cost_within_the_budget_is_enough(fleet: Fleet):
    """What states none may be too dear; the run begins with what fits, and says what it covers."""
    tasks: list[dict[str, Any]] = [
        {"key": "small", "command": ["true"], "max_cost_usd": 0.2},
        {"key": "open", "command": ["true"]},
    ]
    price = {"EVALFLEET_LOCAL_PRICE_USD_PER_HOUR": "6"}
    submitted = fleet.command("run", fleet.tasks(tasks, timeout="15m"), "--budget", "1", "--detach", **price)
    assert submitted.returncode == 0
    refused = fleet.command("run", fleet.tasks(tasks, timeout="15m"), "--budget", "0.1", **price)
    assert (refused.returncode, "does not allow a single attempt" in refused.stderr) == (2, True)
