"""A study from its text to its best parameters, over HTTP alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.fleet import Fleet, wait_for
from tests.support.web_server import Listener, Served, serve

PROGRAM = """
import json, os, pathlib, sys
n = json.load(open(os.environ["EVALFLEET_TASK"]))["payload"]["parameters"]["n"]
if n == 3 and not pathlib.Path("mended").exists():
    sys.exit("three is broken")
json.dump({"success": True, "metrics": {"speed": n}}, open(os.environ["EVALFLEET_RESULT"], "w"))
"""
STUDY = """
[study]
name = "web"
objective = { maximize = "speed" }
strategy = "grid"
contenders = 1
confirm = false
[parameters]
n = [1, 2, 3, 4]
[trial]
command = ["PYTHON", "trial.py"]
"""


def shown(server: Served, run: str) -> dict:
    return server.get(f"studies/{run}")


@pytest.mark.long
def test_a_study_is_made_driven_widened_and_mended_over_http(fleet: Fleet, tmp_path: Path):
    folder = tmp_path / "study folder"
    folder.mkdir()
    (folder / "trial.py").write_text(PROGRAM)
    server = serve(fleet)
    listener = Listener(server)
    body = {"toml": STUDY.replace("PYTHON", sys.executable), "folder": str(folder), "trials": 3, "parallel": 2}
    run = server.post("studies", body, 201)["run"]
    wait_for(lambda: shown(server, run)["state"] in ("completed", "paused"), "the end of its trials")
    facts = shown(server, run)
    assert (facts["searched"], facts["counts"]["measured"], facts["counts"]["failed"]) == (3, 2, 1), facts["reason"]
    assert facts["best"]["parameters"] == {"n": 2}
    (folder / "mended").touch()
    assert len(server.post(f"studies/{run}/retry-failed")["tasks"]) == 1
    wait_for(lambda: shown(server, run)["counts"]["failed"] == 0, "the trial that was mended")
    wait_for(lambda: shown(server, run)["best"]["parameters"] == {"n": 3}, "a better one")
    assert server.post(f"studies/{run}/parallel", {"parallel": 1})["parallel"] == 1
    assert server.post(f"studies/{run}/add-trials", {"trials": 1})["trials"] == 4
    wait_for(lambda: shown(server, run)["searched"] == 4, "one more trial")
    wait_for(lambda: shown(server, run)["best"]["parameters"] == {"n": 4}, "the best")
    wait_for(lambda: shown(server, run)["state"] == "completed", "its end")
    asked = [event["data"] for event in listener.events if event["type"] == "run.requested"]
    assert [one["verb"] for one in asked] == ["submit", "retry", "amend", "amend"]
    assert {one["by"].partition(" (")[0] for one in asked} == {"token serve"}
    listener.close()
