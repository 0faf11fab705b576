"""Finished results of WAA become a run, and a run becomes results of WAA again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from examples.fake_waa import client
from examples.fake_waa.client import score_of
from tests.support.fleet import Fleet

from evalfleet.benchmarks.waa.catalogue import index

DOMAINS = {domain: list(index()[domain]) for domain in ("clock", "notepad")}
BROKEN = DOMAINS["clock"][0]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """What WAA's run.py leaves of 6 tasks in one call, one of which an exception ended. It ends with status 0."""
    arena = tmp_path / "client"
    for domain, ids in DOMAINS.items():
        folder = arena / "evaluation_examples_windows" / "examples" / domain
        folder.mkdir(parents=True)
        for task in ids:
            (folder / f"{task}.json").write_text("{}")
    (arena / "settings.json").write_text(json.dumps({"port": 1, "pause_s": 0}))
    (arena / "list.json").write_text(json.dumps(DOMAINS))
    (arena / "faults" / BROKEN).mkdir(parents=True)
    (arena / "faults" / BROKEN / "1-error").touch()
    program = (
        Path(client.__file__).read_text("utf-8").replace("    wait_for_server(args", "    (lambda *a, **k: 0)(args")
    )
    (arena / "run.py").write_text(program)
    flags = ("--test_all_meta_path", "list.json", "--result_dir", "results", "--model", "gpt-4o", "--worker_id", "0")
    subprocess.run([sys.executable, "run.py", *flags, "--agent", "other"], cwd=arena, check=True, timeout=60)
    return arena / "results"


def rows(fleet: Fleet, run: str = "latest") -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in fleet.json("report", run)["results"]}


def test_results_become_a_run(results: Path, fleet: Fleet):
    told = fleet.json("import", str(results), "--format", "waa")
    assert (told["new"], told["name"], told["tasks"], told["verdicts"], told["no_verdict"]) == (
        True,
        "waa-gpt-4o",
        6,
        5,
        1,
    )
    found = rows(fleet)
    broken = f"clock/{BROKEN}"
    assert {key: row["score"] for key, row in found.items() if key != broken} == {
        f"{domain}/{task}": score_of(task) for domain, ids in DOMAINS.items() for task in ids if task != BROKEN
    }
    assert (found[broken]["state"], found[broken]["score"]) == ("held", None)
    assert found[broken]["failure"]["kind"] == "environment_failed"
    assert "Max retries exceeded" in found[broken]["failure"]["evidence"]
    pad = f"notepad/{DOMAINS['notepad'][0]}"
    assert (found[pad]["steps"], found[pad]["duration_s"], found[pad]["worker"]) == (3, 0.0, "waa-0")
    summary = fleet.json("report")
    assert (summary["state"], summary["scores"]["coverage"]) == ("completed", 5 / 6)
    lines = [line for event in fleet.events() if event["task"] == pad for line in event["data"].get("lines", [])]
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    folder = Path(fleet.json("logs", "latest", pad)["folder"])
    assert [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()] == lines
    left = {path.name for path in (folder / "artifacts").iterdir()}
    assert {"traj.jsonl", "result.txt", *(line["screenshot"] for line in lines)} <= left
    assert not list((fleet.home / "runs").glob("*.partial"))
    assert fleet.json("judge")["changes"] == []
    assert fleet.command("doctor").returncode == 0


def test_the_same_results_are_imported_once(results: Path, fleet: Fleet):
    first = fleet.json("import", str(results), "--format", "waa")
    copy = results.with_name("copy")
    shutil.copytree(results, copy)
    again = fleet.json("import", str(copy / "pyautogui" / "a11y_tree" / "gpt-4o" / "0"), "--format", "waa")
    assert (again["new"], again["run"]) == (False, first["run"])
    assert f"already, as run {first['run']}" in fleet.command("import", str(results), "--format", "waa").stdout
    (copy / "pyautogui" / "a11y_tree" / "gpt-4o" / "0" / "clock" / BROKEN / "result.txt").write_text("1.0\n")
    other = fleet.json("import", str(copy), "--format", "waa", "--name", "mended")
    assert (other["new"], other["name"], other["no_verdict"]) == (True, "mended", 0)
    assert fleet.json("compare", first["run"], other["run"])["tasks"]["paired"] == 5
    assert len(fleet.json("status")["runs"]) == 2


def test_an_imported_run_is_not_retried(results: Path, fleet: Fleet):
    told = fleet.json("import", str(results), "--format", "waa")
    shown = fleet.command("report").stdout
    assert "completed, imported: " in shown
    assert "1 held" in shown
    assert "evalfleet retry" not in shown
    assert fleet.json("report")["imported"] is True
    refused = fleet.command("retry", "--only", f"clock/{BROKEN}")
    assert refused.returncode != 0
    assert f"run {told['run']} was imported: its tasks ran elsewhere" in refused.stderr
    assert (rows(fleet)[f"clock/{BROKEN}"]["state"], rows(fleet)[f"clock/{BROKEN}"]["attempts"]) == ("held", 1)


def test_there_and_back_again(results: Path, fleet: Fleet):
    twice = results / "pyautogui" / "a11y_tree" / "gpt-4o"
    shutil.copytree(twice / "0", twice / "3")
    first = fleet.json("import", str(results), "--format", "waa")
    assert first["tasks"] == 12
    before = rows(fleet)
    assert f"clock/{BROKEN}_3" in before
    out = fleet.folder / "out"
    assert fleet.command("export", "--to", str(out), "--format", "waa").returncode == 0
    assert (out / "pyautogui/a11y_tree/gpt-4o/3/clock" / DOMAINS["clock"][1] / "result.txt").exists()
    again = fleet.json("import", str(out), "--format", "waa")
    assert (again["new"], again["run"]) == (False, first["run"]), "the same results"
    other = ("--home", str(fleet.folder / "other"))
    second = fleet.json("import", str(out), "--format", "waa", *other)
    assert (second["new"], second["name"]) == (True, "waa-gpt-4o")
    after = {row["key"]: row for row in fleet.json("report", *other)["results"]}
    words = ("state", "score", "success", "steps", "duration_s", "domain")
    assert {key: [row[word] for word in words] for key, row in after.items()} == {
        key: [row[word] for word in words] for key, row in before.items()
    }


def test_broken_results_are_refused_whole(results: Path, fleet: Fleet):
    tree = results / "pyautogui" / "a11y_tree"

    def refused(folder: Path, said: str) -> None:
        done = fleet.command("import", str(folder), "--format", "waa")
        assert done.returncode == 2
        assert said in done.stderr
        assert not fleet.home.exists()

    refused(results / "nothing", "there is no folder")
    refused(results / "logs", "contains no results of WAA; expected <action_space>/")
    bad = tree / "gpt-4o" / "0" / "clock" / BROKEN / "result.txt"
    bad.write_text("nan\n")
    refused(results, f"{bad}: result.txt holds 'nan', which is not a number from 0 to 1")
    bad.unlink()
    shutil.copytree(tree / "gpt-4o", tree / "gpt-5")
    refused(results, f"contains the results of 2 models; name one of them: {tree / 'gpt-4o'}, {tree / 'gpt-5'}")


@pytest.mark.parametrize(
    ("format", "said"), [("desk", "there is no format 'desk'; known here: waa."), ("wa", 'mean "waa"?')]
)
def test_only_benchmarks_that_read_results_are_formats(fleet: Fleet, tmp_path: Path, format: str, said: str):
    done = fleet.command("import", str(tmp_path), "--format", format)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
