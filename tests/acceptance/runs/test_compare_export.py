"""Two real runs, compared and exported by real processes."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.support.fleet import Fleet, fleet_at

from evalfleet.report.exports import waa

AGENT = """
import json, os, pathlib, sys
task = json.load(open(os.environ["EVALFLEET_TASK"]))
number = int(task["key"].rpartition("-")[2])
if number == 9 and sys.argv[1] == "new":
    sys.exit("it crashed")
solved = number % 4 == 0 or sys.argv[1] == "new"
pathlib.Path(os.environ["EVALFLEET_ARTIFACTS"], "step_1.png").write_bytes(b"png")
json.dump({"score": float(solved), "success": solved, "steps": 3}, open(os.environ["EVALFLEET_RESULT"], "w"))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Runs `old` and `new` of twelve tasks, which tests only read; `new` solves all but the last, on which it crashes."""
    with contextmanager(fleet_at)(tmp_path_factory.mktemp("runs")) as fleet:
        (fleet.folder / "agent.py").write_text(AGENT)
        for agent in ("old", "new"):
            tasks: list[dict[str, Any]] = [
                {
                    "key": f"{domain}/{domain}-{number}",
                    "domain": domain,
                    "command": [sys.executable, str(fleet.folder / "agent.py"), agent],
                }
                for number in range(1, 13)
                for domain in [("notepad", "clock")[number % 2]]
            ]
            fleet.json("run", fleet.tasks(tasks, f"{agent}.jsonl", attempts=1), "--workers", "2")
        yield fleet


def test_two_runs_of_the_same_tasks(runs: Fleet):
    found = runs.json("compare", "old", "new")
    assert found["conclusion"] == "b_better"
    # 3 of 12 were solved by both; the crash at number 9 counts 0, as it did before.
    assert found["success"] == {"gained": 8, "lost": 0, "p_value": 2 / 2**8}
    assert found["tasks"]["paired"] == 12
    said = runs.command("compare", "old", "new")
    assert said.returncode == 0, said.stderr
    assert "B is better by 66.7 points (95% CI 41.7 to 91.7; 8 tasks gained, 0 lost, p = 0.0078)." in said.stdout
    back = runs.command("compare", "new", "old").stdout
    assert "B is worse by 66.7 points" in back


def test_bad_input(runs: Fleet):
    runs.json("run", runs.tasks([{"key": "other_1", "command": ["true"]}], "other.jsonl"))
    for args, words in (
        (("compare", "old", "other"), "have no task in common"),
        (("compare", "old", "old"), "both names mean the run"),
        (("compare", "old", "nosuch"), "no run 'nosuch'"),
        (("compare", "old"), "RUN_B"),
        (("export", "old", "--to", str(runs.folder), "--format", "csv"), "is not empty"),
        (("export", "old", "--to", "x", "--format", "xls"), "'evalfleet', 'csv', 'junit', 'waa'"),
        (("export", "old", "--format", "csv"), "--to"),
        (("export", "nosuch", "--to", "x", "--format", "csv"), "no run 'nosuch'"),
    ):
        done = runs.command(*args)
        assert done.returncode == 2, args
        assert done.stdout == ""
        assert words in done.stderr
    assert not (runs.folder / "x").exists()


def test_every_format(runs: Fleet):
    out = runs.folder / "out"
    for name in ("evalfleet", "csv", "junit", "waa"):
        done = runs.json("export", "new", "--to", f"out/{name}", "--format", name)
        assert done["to"] == str(out / name)
        assert done["files"] == sum(path.is_file() for path in (out / name).rglob("*"))
    summary = json.loads((out / "evalfleet" / "summary.json").read_text())
    assert summary["scores"]["valid"] == pytest.approx(11 / 12)
    assert len(list((out / "evalfleet" / "tasks").glob("*/1/artifacts/step_1.png"))) == 11
    with (out / "csv" / "tasks.csv").open(newline="") as file:
        states = [row["state"] for row in csv.DictReader(file)]
    assert (states.count("done"), states.count("failed")) == (11, 1)
    root = ElementTree.parse(out / "junit" / "junit.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("12", "1", "0")
    aggregated = json.loads((out / "waa" / "aggregated_results.json").read_text())
    assert (aggregated["total_tasks"], aggregated["succeeded"], aggregated["no_verdict"]) == (12, 11, 1)
    assert len(list((out / "waa" / waa.tree_of(None)).glob("*/*/result.txt"))) == 11
    workers = [json.loads(path.read_text()) for path in (out / "waa").glob("worker-*.json")]
    assert sum(worker["summary"]["total"] for worker in workers) == 12


def test_words_for_a_person(runs: Fleet):
    done = runs.command("export", "old", "--to", "words", "--format", "csv")
    assert done.returncode == 0, done.stderr
    run = runs.json("report", "old")["run"]
    assert done.stdout == f"Wrote 2 files of run {run} to {runs.folder / 'words'}\n"


def test_only_the_same_work_is_compared(fleet: Fleet):
    """One key with another payload is another task: it is left out and said, and where all are such nothing is compared."""

    def run(name: str, payloads: list[Any], score: float = 1.0) -> None:
        rows = [
            {
                "key": f"t_{n}",
                "payload": payload,
                "command": ["sh", "-c", f"echo '{{\"score\": {score}}}' > $EVALFLEET_RESULT"],
                "env": {"AGENT": name},
            }
            for n, payload in enumerate(payloads)
        ]
        assert fleet.command("run", fleet.tasks(rows, name=f"{name}.jsonl")).returncode == 0

    run("old", [{"question": n} for n in range(4)])
    run("new", [{"question": n} for n in range(4)], 0.0)  # another command and other variables: another agent
    assert fleet.json("compare", "old", "new")["tasks"]["paired"] == 4
    run("edited", [{"question": n if n else "other"} for n in range(4)])
    found = fleet.json("compare", "old", "edited")
    assert (found["tasks"]["paired"], found["tasks"]["different"]) == (3, 1)
    assert found["left_out"][0]["reason"] == "t_0 is not the same work: question differs (A: 0, B: other)"
    told = " ".join(fleet.command("compare", "old", "edited").stdout.split())
    assert "1 of 4 common tasks is not the same work in both runs and left out, such as t_0" in told
    assert fleet.json("compare", "old", "edited", "--allow-different")["tasks"]["paired"] == 4
    run("another", [{"question": -n - 1} for n in range(4)])
    refused = fleet.command("compare", "old", "another")
    assert refused.returncode == 2
    assert "4 common keys and no common task" in refused.stderr
    assert fleet.json("compare", "old", "another", "--allow-different")["tasks"]["paired"] == 4


def test_two_studies_are_not_paired_by_the_numbers_of_their_trials(fleet: Fleet):
    study = fleet.folder / "study.toml"
    for name in ("one", "two"):
        study.write_text(
            f'[study]\nname = "{name}"\nstrategy = "grid"\nobjective = {{ maximize = "a" }}\n[parameters]\na = [1, 2]\n[trial]\n'
            'command = ["sh", "-c", "echo \'{\\"success\\": true, \\"metrics\\": {\\"a\\": 1}}\' > $EVALFLEET_RESULT"]\n'
        )
        assert fleet.command("tune", str(study)).returncode == 0
    refused = fleet.command("compare", "one", "two")
    assert refused.returncode == 2
    assert "both are studies" in refused.stderr
    assert "evalfleet study best" in refused.stderr
    assert fleet.command("compare", "one", "two", "--allow-different").returncode == 0
