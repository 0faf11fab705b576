"""Studies whose trials have a server, on this machine and on a host over SSH: phases, causes of failures, nothing left behind."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import Fleet, wait_for
from tests.support.machines import Hosts, pool

from evalfleet.tune.study import study_of

EXAMPLES = Path(__file__).parents[3] / "examples" / "tuning"
BENCH = """
import json, os, sys, urllib.request
try:
    urllib.request.urlopen(os.environ["EVALFLEET_SERVER_URL"] + sys.argv[1]).read()
except OSError:
    import time
    time.sleep(600)  # a load test that never gives up
json.dump({"success": True, "metrics": {"speed": 1.0}}, open(os.environ["EVALFLEET_RESULT"], "w"))
"""
STUDY = """
[study]
name = "s"
strategy = "grid"
trials = 20
max_parallel_experiments = 3
objective = { maximize = "speed" }
attempts = ATTEMPTS
confirm = false
files = ["llm_server.py", "bench.py"]
[parameters]
PARAMETERS
[trial]
command = ["python3", "bench.py", "{path}"]
[trial.server]
command = ["python3", "llm_server.py", "--port", "{port}", "{flags}"]
flags = FLAGS
ready = "http://127.0.0.1:{port}/health"
ready_timeout = "60s"
"""


@pytest.fixture(autouse=True)
def _python3_is_ours(fleet: Fleet) -> None:
    fleet.env["PATH"] = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"


def study(fleet: Fleet, attempts: int = 2, **parameters: list[Any]) -> str:
    shutil.copy(Path(__file__).parents[2] / "support" / "llm_server.py", fleet.folder)
    (fleet.folder / "bench.py").write_text(BENCH)
    lines = "\n".join(f"{name} = {json.dumps(values)}" for name, values in {"path": ["/tokens"], **parameters}.items())
    flags = json.dumps([name for name in parameters if name != "path"])
    path = fleet.folder / "study.toml"
    path.write_text(STUDY.replace("PARAMETERS", lines).replace("FLAGS", flags).replace("ATTEMPTS", str(attempts)))
    return str(path)


def test_servers_that_behave_and_misbehave_side_by_side(fleet: Fleet):
    behave = ["well", "selfish", "fork", "oom", "hub"]
    facts = fleet.json("tune", study(fleet, behave=behave, path=["/tokens", "/die"]), code=0)
    found = {(row["parameters"]["behave"], row["parameters"]["path"]): row for row in facts["trials"]}
    progress = {key: row["progress"] for key, row in found.items()}
    assert progress == {
        **{(behaviour, "/tokens"): "measured" for behaviour in ("well", "selfish", "fork")},
        **{(behaviour, "/die"): "failed" for behaviour in ("well", "selfish", "fork", "oom")},
        ("oom", "/tokens"): "failed",
        **{("hub", path): "failed" for path in ("/tokens", "/die")},
    }
    failure = found["oom", "/tokens"]["failure"]
    assert (failure["kind"], "exit status 1 before it was ready" in failure["evidence"]) == ("out_of_memory", True)
    assert "torch.OutOfMemoryError: CUDA out of memory" in failure["evidence"]
    assert "exit status 1 while it was used" in found["well", "/die"]["failure"]["evidence"]
    assert min(found["well", "/tokens"]["phases"].values()) > 0.01
    assert "2 of 2 attempts used; last: download: " in found["hub", "/tokens"]["reason"]
    # Only what is nobody's parameters was tried again.
    claimed = [event["task"] for event in fleet.events() if event["type"] == "attempt.claimed"]
    assert {key: claimed.count(key) for key in set(claimed)} == {
        row["key"]: 2 if row["parameters"]["behave"] == "hub" else 1 for row in facts["trials"]
    }
    folder = Path(fleet.json("logs", facts["run"], found["well", "/tokens"]["key"])["folder"])
    assert "GET /tokens" in (folder / "artifacts" / "server.log").read_text()
    assert [one for one in fleet.left_processes() if "llm_server" in one] == []


@pytest.mark.long
@pytest.mark.parametrize("who", ["around", "llm_server.py"])
def test_whoever_is_killed_nothing_is_left_and_the_trial_ends(fleet: Fleet, who: str):
    """The program around the command, and the server: each by kill -9 while the command is at work."""
    process = fleet.start("tune", study(fleet, 1, behave=["fork"], path=["/hang"]), "--trials", "1")

    def victim() -> int | None:
        running = [line for line in fleet.left_processes() if "bench.py\0/hang" in line.split(" ", 1)[1][-20:]]
        found = [line for line in fleet.left_processes() if who in line and (who != "around" or "\0around\0" in line)]
        return int(found[0].split()[0]) if running and found else None

    pid = wait_for(victim, "the command at work")
    os.kill(pid, signal.SIGKILL)
    assert process.wait(60) in (1, 3)
    (row,) = fleet.json("study", "show")["trials"]
    assert row["progress"] == "failed"
    assert ("crash: " if who == "llm_server.py" else "signalled") in row["reason"]
    assert [line for line in fleet.left_processes() if "runner-" not in line or "around" in line] == []


def test_a_host_over_ssh_needs_nothing_but_the_files(fleet: Fleet, hosts: Hosts):
    (box,) = hosts("a")
    pool(fleet, [box], slots=2)
    facts = fleet.json("tune", study(fleet, behave=["well", "oom"]), "--pool", "lab")
    found = {row["parameters"]["behave"]: row for row in facts["trials"]}
    assert (found["well"]["progress"], found["oom"]["progress"]) == ("measured", "failed")
    assert found["oom"]["failure"]["kind"] == "out_of_memory"
    folder = Path(fleet.json("logs", facts["run"], found["well"]["key"])["folder"])
    assert "GET /tokens" in (folder / "artifacts" / "server.log").read_text()
    assert found["well"]["phases"]["deploying_s"] > 0.05
    assert found["oom"]["phases"] is None  # it never got so far


def test_the_example_finds_a_configuration_and_tells_those_that_do_not_fit(fleet: Fleet):
    facts = fleet.json("tune", str(EXAMPLES / "watched.toml"))
    assert (facts["state"], facts["searched"]) == ("completed", 6)
    assert facts["best"]["metrics"]["requests_s"] >= facts["baseline"]["metrics"]["requests_s"]
    for row in facts["trials"]:
        if row["parameters"]["max_num_seqs"] > 64:
            assert row["failure"]["kind"] == "out_of_memory"
            assert "does not fit into 4096 MB" in row["failure"]["evidence"]
        else:
            assert (row["progress"], row["phases"]["deploying_s"] > 0.15) == ("measured", True)
    assert facts["counts"]["failed"] >= 1


def test_the_gpu_example_says_what_it_lacks(fleet: Fleet):
    """Here is neither PyTorch nor a GPU: its files are good studies, and its programs say what is missing."""
    for path in sorted((EXAMPLES / "gpu").glob("*.toml")):
        table = tomllib.loads(path.read_text())
        assert study_of(table).trial.requests(table["study"]["baseline"]).gpus == 1
    if importlib.util.find_spec("torch") is not None:
        pytest.skip("PyTorch is here")
    (fleet.folder / "task.json").write_text('{"payload": {"parameters": {}}}')
    env = fleet.environment(EVALFLEET_TASK=str(fleet.folder / "task.json"))
    for words in (["bench.py"], ["serve.py", "--port", "1"]):
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=EXAMPLES / "gpu", env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, "needs PyTorch" in done.stderr, "Traceback" in done.stderr) == (1, True, False)
