"""Studies as a person makes them: real processes, killed controllers, exact counts."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.fleet import Fleet, wait_for

EXAMPLE = Path(__file__).parents[3] / "examples" / "tuning" / "server.toml"
PROGRAM = """
import json, os, sys, time
payload = json.load(open(os.environ["EVALFLEET_TASK"]))["payload"]
parameters = payload["parameters"]
print("I am", payload["trial"], flush=True)
began = time.monotonic()
with open("ledger", "a") as file:
    file.write(json.dumps({**parameters, **payload.get("budget", {})}) + "\\n")
time.sleep(float(os.environ.get("NAP", "0")))
while os.path.exists("gate"):
    time.sleep(0.02)
if parameters["a"] > LIMIT:
    sys.exit("out of memory")
with open("spans", "a") as file:
    file.write(json.dumps([began, time.monotonic(), payload["role"]]) + "\\n")
json.dump({"success": True, "metrics": {"speed": parameters["a"]}}, open(os.environ["EVALFLEET_RESULT"], "w"))
"""


@pytest.fixture(autouse=True)
def _python3_is_ours(fleet: Fleet) -> None:
    fleet.env["PATH"] = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"


def study(fleet: Fleet, parameters: str = 'a = { type = "integer", low = 1, high = 10000 }', **fields: Any) -> str:
    """A study whose trials write down that they ran."""
    limit, nap = fields.pop("limit", 10**9), fields.pop("nap", 0)
    (fleet.folder / "trial.py").write_text(PROGRAM.replace("LIMIT", str(limit)))
    lines = [f"{name} = {toml(value)}" for name, value in {"name": "s", "confirm": False, **fields}.items()]
    path = fleet.folder / "study.toml"
    path.write_text(
        "[study]\n" + "\n".join(lines) + '\nobjective = { maximize = "speed" }\n'
        f"[parameters]\n{parameters}\n[trial]\n"
        f'command = ["python3", "trial.py"]\nenv = {{ NAP = "{nap}" }}\n'
    )
    return str(path)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return "{ " + ", ".join(f"{name} = {toml(one)}" for name, one in table.items()) + " }"
    return json.dumps(value)


def ran(fleet: Fleet) -> list[str]:
    return [json.dumps(json.loads(line), sort_keys=True) for line in fleet.lines()]


def test_the_example_finds_a_configuration_that_keeps_the_limit(fleet: Fleet):
    facts = fleet.json("tune", str(EXAMPLE))
    assert (facts["state"], facts["searched"], facts["wanted"]) == ("completed", 24, 24)
    assert facts["best"]["metrics"]["ttft_p99_ms"] <= 200
    assert facts["best"]["measurements"] == facts["baseline"]["measurements"] == 3
    assert facts["best"]["metrics"]["throughput_tok_s"] > facts["baseline"]["metrics"]["throughput_tok_s"]
    assert "do not overlap" in facts["verdict"]
    roles = [row["role"] for row in facts["trials"]]
    assert {role: roles.count(role) for role in set(roles)} == {"baseline": 1, "search": 24, "repeat": 8, "confirm": 6}
    assert facts["confirmed"]["alone"]["measurements"] == 3
    assert facts["confirmed"]["alone"]["parameters"] == facts["best"]["parameters"]
    assert "alone on its machine" in facts["confirmed"]["text"]
    assert fleet.json("study", "best") == {"run": facts["run"], "parameters": facts["best"]["parameters"]}
    alone = fleet.command("study", "best", "--format", "json").stdout
    assert json.loads(alone) == facts["best"]["parameters"]
    flags = fleet.command("study", "best", "server").stdout.split()
    assert flags[:2] == ["--tp", str(facts["best"]["parameters"]["tp"])]
    assert "max_num_seqs = " in fleet.command("study", "best", "--format", "toml").stdout
    table = list(csv.DictReader(io.StringIO(fleet.command("study", "export", "--format", "csv").stdout)))
    assert [row["key"] for row in table] == [row["key"] for row in facts["trials"]]


def test_100_trials_8_at_a_time_are_exactly_100(fleet: Fleet):
    facts = fleet.json("tune", study(fleet, trials=100, max_parallel_experiments=8))
    assert facts["searched"] == facts["counts"]["measured"] == 100
    assert len(ran(fleet)) == len(set(ran(fleet))) == 100


def test_a_space_of_6_points_ends_at_6(fleet: Fleet):
    facts = fleet.json(
        "tune", study(fleet, "a = [1, 2, 3]\nb = [true, false]", trials=20, strategy="grid"), "--parallel", "4"
    )
    assert (facts["state"], facts["searched"]) == ("completed", 6)
    assert len(set(ran(fleet))) == len(ran(fleet)) == 6
    (closed,) = [event for event in fleet.events() if event["type"] == "run.closed"]
    assert closed["data"]["reason"] == "the space has no more points; 6 of 20 trials are done"


def test_a_killed_controller_loses_no_trial_and_none_is_proposed_twice_19(fleet: Fleet):
    path = study(fleet, trials=16, max_parallel_experiments=4, nap=0.15)
    for seen in (3, 7, 11):
        args = ["tune", path] if seen == 3 else ["study", "resume"]
        process = fleet.start(*args)
        wait_for(lambda: len(fleet.lines()) >= seen, f"{seen} trials")  # noqa: B023 - asked before the loop goes on
        process.kill()
        process.wait()
    facts = fleet.json("tune", path, "--resume")
    assert (facts["state"], facts["searched"], facts["counts"]["measured"]) == ("completed", 16, 16)
    assert len(ran(fleet)) == len(set(ran(fleet))) == 16
    submitted = [event["task"] for event in fleet.events() if event["type"] == "task.submitted"]
    assert submitted == [f"trial_{number:04d}" for number in range(1, 17)]
    # What came of it is what comes of an undisturbed study with the same seed.
    fleet.ledger.unlink()
    again = fleet.json("tune", path)
    assert [row["parameters"] for row in again["trials"]] == [row["parameters"] for row in facts["trials"]]


def test_trials_that_fail_by_their_own_fault_stop_nothing(fleet: Fleet):
    facts = fleet.json("tune", study(fleet, trials=24, max_parallel_experiments=4, limit=6000, seed=3))
    assert facts["state"] == "completed"
    assert facts["counts"]["failed"] > 5
    assert facts["counts"]["failed"] + facts["counts"]["measured"] == 24
    assert facts["best"]["metrics"]["speed"] <= 6000
    retried = fleet.json("study", "retry-failed")
    assert len(retried["tasks"]) == facts["counts"]["failed"]


def test_where_everything_fails_the_study_pauses_and_says_why(fleet: Fleet):
    done = fleet.command("tune", study(fleet, trials=40, max_parallel_experiments=2, limit=0))
    assert done.returncode == 3, done.stdout
    assert "trials failed in the same way" in done.stdout
    assert "exit status 1: out of memory" in done.stdout
    assert len(set(ran(fleet))) < 12  # not all 40


def test_more_trials_for_one_that_is_over(fleet: Fleet):
    first = fleet.json("tune", study(fleet, trials=3))
    answer = fleet.json("study", "add-trials", "s", "4")
    assert answer["trials"] == 7
    facts = fleet.json("study", "resume", "s")
    assert (facts["run"], facts["state"], facts["searched"]) == (first["run"], "completed", 7)
    assert len(set(ran(fleet))) == 7


def test_a_running_study_is_paused_given_more_and_goes_on(fleet: Fleet):
    (fleet.folder / "gate").touch()
    process = fleet.start("tune", study(fleet, trials=10, max_parallel_experiments=2))
    wait_for(lambda: len(fleet.lines()) >= 2, "two trials")
    assert fleet.json("study", "add-trials", "s", "2")["trials"] == 12
    fleet.json("study", "pause")
    (fleet.folder / "gate").unlink()
    assert process.wait(30) == 3
    facts = fleet.json("study", "show")
    assert (facts["state"], facts["counts"]["open"]) == ("paused", 0)
    assert facts["searched"] < 12
    facts = fleet.json("study", "resume", "--parallel", "8")
    assert (facts["state"], facts["searched"], facts["parallel"]) == ("completed", 12, 8)
    assert len(set(ran(fleet))) == len(ran(fleet)) == 12


def test_a_cancelled_study_stays_so_and_its_trials_are_ended_21(fleet: Fleet):
    process = fleet.start("tune", study(fleet, trials=50, nap=60))
    wait_for(fleet.lines, "a trial")
    assert fleet.command("cancel").returncode == 0
    assert process.wait(30) == 1
    assert fleet.json("study", "show")["open"] is False
    assert not any("trial.py" in left for left in fleet.left_processes())


def test_halving_gives_more_to_the_best_and_confirms_the_winner_alone(fleet: Fleet):
    path = study(
        fleet,
        trials=9,
        strategy="halving",
        halving={"resource": "requests", "min": 10, "max": 90},
        baseline={"a": 5},
        max_parallel_experiments=4,
        confirm=True,
    )
    facts = fleet.json("tune", path)
    assert (facts["state"], facts["searched"], facts["resource"]) == ("completed", 9, "requests")
    assert [(one["budget"], one["wanted"], one["measured"]) for one in facts["rungs"]] == [
        (10, 9, 9),
        (30, 3, 3),
        (90, 1, 1),
    ]
    told = [json.loads(line) for line in fleet.lines()]
    assert sorted(row["amount"] for row in told) == [10] * 9 + [30] * 3 + [90] * 4  # baseline, winner, and both alone
    assert {row["resource"] for row in told} == {"requests"}
    best = max(row["a"] for row in told)
    assert facts["best"]["parameters"] == facts["confirmed"]["alone"]["parameters"] == {"a": best}
    assert facts["flags"] == f"--a {best}"
    assert [row["role"] for row in facts["trials"]][-2:] == ["confirm", "confirm"]
    spans = [json.loads(line) for line in (fleet.folder / "spans").read_text().splitlines()]
    for began, over, role in spans:
        if role == "confirm":
            assert all(other[1] <= began or other[0] >= over for other in spans if other != [began, over, role])
    row = facts["trials"][0]
    assert (row["role"], row["rung"], row["task"], row["failure"]) == ("baseline", 2, 1, None)
    assert row["worker"].startswith("local-")
    assert row["started_at"] <= row["ended_at"]
    assert [one["best"] for one in facts["history"]] == [5.0, best]
    lines = fleet.command("study", "show").stdout
    assert "alone on its machine speed is" in lines
    assert "rung 2 (90 requests): 1 of 1 measured" in lines


def test_a_failed_baseline_pauses_the_study_until_it_is_repaired(fleet: Fleet):
    path = study(fleet, trials=4, baseline={"a": 20_000}, limit=10_000)
    done = fleet.command("tune", path)
    assert done.returncode == 3, done.stdout
    assert "the baseline failed (trial_0001: bad_exit: exit status 1: out of memory)" in done.stdout
    run = fleet.json("study", "list")["studies"][0]
    assert f"`evalfleet study resume {run['run']}` goes on" in run["reason"]
    study(fleet, trials=4, baseline={"a": 20_000})  # repaired
    facts = fleet.json("study", "resume")
    assert (facts["state"], facts["searched"], facts["baseline"]["measurements"]) == ("completed", 4, 1)
    assert [row["progress"] for row in facts["trials"] if row["role"] == "baseline"] == ["failed", "measured"]


def test_a_running_study_is_made_wider_and_is_driven_by_one_alone_24(fleet: Fleet):
    path = study(fleet, trials=7, max_parallel_experiments=1)
    (fleet.folder / "gate").touch()
    process = fleet.start("tune", path, "--json")
    wait_for(fleet.lines, "a trial")
    assert fleet.json("study", "resume", "--parallel", "5")["workers"] == 5
    wait_for(lambda: len(fleet.lines()) >= 3, "more of them at a time")  # before the first verdict at most three
    refused = fleet.command("tune", path, "--resume")  # a second click starts no second one
    assert refused.returncode == 3
    (fleet.folder / "gate").unlink()
    assert process.wait(30) == 0
    facts = fleet.json("study", "show")
    assert (facts["searched"], facts["parallel"], len(ran(fleet))) == (7, 5, 7)


def test_a_trial_that_is_too_slow_ends_with_all_it_started_and_logs_stay_apart_22_23(fleet: Fleet):
    path = Path(study(fleet, "a = [1, 2]", trials=2, strategy="grid", max_parallel_experiments=2))
    path.write_text(path.read_text().replace("[parameters]", 'timeout_per_trial = "1s"\n[parameters]'))
    program = fleet.folder / "trial.py"
    program.write_text(program.read_text().replace("time.sleep(", "time.sleep(30 if parameters['a'] == 2 else "))
    facts = fleet.json("tune", str(path))
    assert {row["failure"]["kind"] for row in facts["trials"] if row["failure"]} == {"stall"}  # nothing was heard of it
    assert not any("trial.py" in left for left in fleet.left_processes())
    for row in facts["trials"]:
        assert fleet.command("logs", facts["run"], row["key"]).stdout.split() == ["I", "am", str(row["number"])]


def test_two_studies_of_one_home_are_never_mixed_up_25(fleet: Fleet):
    path = study(fleet, trials=10, max_parallel_experiments=3)
    both = [fleet.start("tune", path, "--name", name, "--json") for name in ("one", "two")]
    assert [process.wait(60) for process in both] == [0, 0]
    found = fleet.json("study", "list")["studies"]
    assert {one["name"]: one["counts"]["measured"] for one in found} == {"one": 10, "two": 10}
    assert len(ran(fleet)) == 20
    assert len(set(ran(fleet))) == 10  # the same seed, the same points


def test_metrics_that_lack_the_objective_are_a_failed_trial(fleet: Fleet):
    path = Path(study(fleet, trials=2))
    path.write_text(path.read_text().replace('maximize = "speed"', 'maximize = "sped"'))
    facts = fleet.json("tune", str(path), code=1)
    assert {row["reason"] for row in facts["trials"]} == {"its metrics lack sped"}
    refused = fleet.command("study", "best")
    assert refused.returncode == 3
    assert "no configuration" in refused.stderr


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["tune", "none.toml"], "there is no study file"),
        (["tune", "study.toml", "--resume", "--name", "other"], "no study 'other'"),
        (["study", "show"], "there is no study yet"),
        (["study", "pause"], "there is no study yet"),
    ],
)
def test_refusals(fleet: Fleet, args: list[str], part: str):
    study(fleet)
    done = fleet.command(*args)
    assert done.returncode == 2
    assert part in done.stderr


def test_a_plain_run_is_no_study(fleet: Fleet):
    fleet.json("run", fleet.tasks([{"key": "a", "command": ["true"]}]))
    fleet.json("tune", study(fleet, trials=1))
    plain = fleet.json("status")["runs"][-1]["run"]
    for command in (["show", plain], ["best", plain], ["add-trials", plain, "1"], ["resume", plain]):
        done = fleet.command("study", *command)
        assert (done.returncode, "is no study" in done.stderr) == (2, True), done.stderr
    assert len(fleet.json("study", "list")["studies"]) == 1


def test_a_study_shown_as_a_run_shows_what_it_found_and_no_score(fleet: Fleet):
    """Everybody who asks for the run gets the best configuration and `tune`'s exit code."""
    limited = study(fleet, "a = [10, 20, 30]", strategy="grid", constraints=["speed <= 5"])
    assert fleet.command("tune", limited, "--detach").returncode == 0
    driven = fleet.command("resume", "latest")
    assert driven.returncode == 1  # all measured, and none keeps the limit
    assert "no configuration keeps all limits" in driven.stdout
    for done in (driven, fleet.command("report"), fleet.command("status", "latest"), fleet.command("watch")):
        assert not any(word in done.stdout for word in ("alid score", "trict score", "overage")), done.stdout
        assert "no configuration keeps all limits" in done.stdout
    run = fleet.json("resume", code=1)
    assert (run["scores"]["valid"], run["scores"]["strict"], run["study"]["best"]) == (None, None, None)
    assert [facts["score_valid"] for facts in run["by_domain"].values()] == [None]
    assert run["study"]["nearest"]["parameters"] == {"a": 10}

    found = study(fleet, "a = [10, 20, 30]", strategy="grid", constraints=["speed <= 25"])
    fleet.command("tune", found, "--detach")
    driven = fleet.command("resume", "latest")
    assert driven.returncode == 0
    assert "a=20  ->  speed=20" in driven.stdout
    report = fleet.command("report").stdout
    assert "Best" in report
    assert "a=20" in report
    assert "kept: speed <= 25" in report
    assert "evalfleet study best" in report
    assert fleet.command("watch").returncode == 0
    listed = fleet.command("status").stdout
    assert "best: speed=20  a=20" in listed
    assert "no configuration keeps all limits" in listed
    assert "100.0%" not in listed
    for command in ("resume", "watch", "retry"):
        refused = fleet.command(command, "latest", "--min-score", "0.1")
        assert refused.returncode == 2
        assert "is a study" in refused.stderr


def test_run_says_that_a_study_is_for_tune(fleet: Fleet):
    path = study(fleet)
    refused = fleet.command("run", path)
    assert refused.returncode == 2
    assert f"evalfleet tune {path}" in refused.stderr


def test_optuna_says_nothing_above_the_view(fleet: Fleet):
    pytest.importorskip("optuna")
    done = fleet.command("tune", study(fleet, strategy="bayesian", trials=2, constraints=["speed <= 1e9"]))
    assert done.returncode == 0
    assert "Warning" not in done.stderr
