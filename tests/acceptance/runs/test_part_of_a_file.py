"""Own tasks by the words of benchmarks: a few of them, several times, with another variable."""

from __future__ import annotations

import json

import pytest
from tests.support.fleet import Fleet

SCRIPT = (
    'import json, os; seed = int(os.environ["EVALFLEET_SEED"]);'
    'json.dump({"score": seed % 2, "metrics": {"model": len(os.environ["MODEL"])}}, open(os.environ["EVALFLEET_RESULT"], "w"))'
)


@pytest.fixture
def tasks(fleet: Fleet) -> str:
    rows = [
        {"key": f"{domain}_{n}", "command": ["python3", "-c", SCRIPT], "env": {"MODEL": "old"}}
        for domain in ("files", "mail")
        for n in (1, 2, 3)
    ]
    return fleet.tasks(rows)


def test_repetitions_are_one_task_in_reports_and_comparisons(fleet: Fleet, tasks: str):
    part = ("--task", "files_*", "--repeat", "4", "--env", "MODEL=newer")
    done = fleet.command("run", tasks, *part, "--name", "a")
    assert done.returncode == 0, done.stdout + done.stderr
    report = fleet.json("report", "a")
    assert report["tasks"]["total"] == 12
    repeats = report["repeats"]
    assert (repeats["tasks"], repeats["most"]) == (3, 4)
    assert {one["k"]: one["score"] for one in repeats["pass_at"]}[4] == 1.0, "one of four seeds of each task passes"
    shown = fleet.command("tasks", "a", "--json")
    assert "files_1_0" in shown.stdout
    assert fleet.command("run", tasks, *part, "--name", "b").returncode == 0
    compared = fleet.json("compare", "a", "b")
    assert (compared["tasks"]["paired"], compared["tasks"]["distinct"]) == (12, 3), "the task is the unit"
    out = fleet.folder / "out"
    fleet.json("export", "a", "--format", "evalfleet", "--to", str(out))
    results = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [one["metrics"]["model"] for one in results] == [len("newer")] * 12, (
        "the variable of the command line went before the file's"
    )


def test_what_does_not_fit_submits_nothing(fleet: Fleet, tasks: str):
    for options, said in (
        (("--task", "file_1"), 'there is no task "file_1"; did you mean "files_1"?'),
        (("--limit", "7"), "only 6 tasks fit"),
        (("--env", "MODEL"), "write it as NAME=VALUE"),
        (("--secret", "NOT_SET_HERE"), "the environment lacks NOT_SET_HERE"),
        (("--agent", "random"), "--agent is for benchmarks only"),
    ):
        done = fleet.command("run", tasks, *options)
        assert done.returncode == 2
        assert said in done.stderr
    assert not (fleet.home / "evalfleet.db").exists()
