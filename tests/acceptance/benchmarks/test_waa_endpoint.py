"""The model that agents of Windows Agent Arena ask: refusals, tokens, and the key that no container sees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from examples.fake_waa.arena import Arena
from tests.support.fleet import Fleet, wait_for
from tests.support.waa import KEY, PAD, attempts, run, sleepers

from evalfleet.runner.attempt.process_tree import stat_of

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("401 Incorrect API key provided", "status 401: Incorrect API key provided"),
        ("404 The model `gpt-4o` does not exist", "The model `gpt-4o` does not exist"),
        ("400 Unsupported parameter: max_tokens", "Unsupported parameter: max_tokens"),
    ],
)
def test_an_endpoint_that_refuses_is_named_before_the_first_task(waa: Arena, fleet: Fleet, answer: str, said: str):
    waa.fail_model(answer)
    begun = time.monotonic()
    summary = run(fleet, "--domain", "notepad", code=3)
    assert time.monotonic() - begun < 60
    assert summary["state"] == "paused"
    assert said in json.dumps(summary["reason"])
    assert {one["kind"] for one in attempts(fleet)} == {"service_refused"}
    assert KEY not in json.dumps(summary)


def test_an_endpoint_that_fails_in_the_middle_is_named(waa: Arena, fleet: Fleet):
    """run.py would ask 30 times and tell nothing."""
    settings = json.loads((waa.client / "settings.json").read_text())
    (waa.client / "settings.json").write_text(json.dumps({**settings, "pause_s": 0.5}))
    process = fleet.start("run", "waa", "--agent", "navi", "--model", "m", "--task", PAD, OPENAI_API_KEY=KEY)
    asked = waa.docker / "model-keys"
    wait_for(lambda: asked.exists() and len(asked.read_text().splitlines()) >= 2, "the model to be asked by run.py")
    waa.fail_model("401 Your key was revoked")
    wait_for(lambda: attempts(fleet), "the first attempt to end")
    waa.fail_model(None)
    assert process.wait(60) in (0, 3)
    first = attempts(fleet)[0]
    assert (first["kind"], "status 401: Your key was revoked" in first["evidence"]) == ("service_refused", True)


def test_the_key_is_nowhere_in_the_container(waa: Arena, fleet: Fleet):
    waa.fail(PAD[8:], "stop")
    process = fleet.start("run", "waa", "--agent", "navi", "--model", "m", "--task", PAD, OPENAI_API_KEY=KEY)
    (pid,) = wait_for(lambda: sleepers(waa.containers[0]), "the agent to act")
    environ = Path(f"/proc/{pid}/environ").read_bytes()
    assert KEY.encode() not in environ
    assert b"OPENAI_API_KEY=evalfleet-" in environ  # what our proxy takes, and nobody else
    assert waa.model_keys() == {f"Bearer {KEY}"}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                assert KEY.encode() not in (entry / "cmdline").read_bytes()
            except OSError:
                continue
    acting = stat_of(pid)
    assert acting
    os.kill(acting.parent, signal.SIGKILL)  # it has shown all that it has to; nobody needs to wait for its stall
    assert process.wait(60) == 0
    (waa.docker / "model-keys").unlink()  # the endpoint's own record
    for folder in (fleet.home, waa.folder, fleet.folder):
        found = subprocess.run(["grep", "-rlaF", KEY, str(folder)], capture_output=True, text=True, check=False)
        assert found.stdout == ""


def test_keys_that_run_py_cannot_use_are_refused(waa: Arena, fleet: Fleet):
    command = ("run", "waa", "--agent", "navi", "--model", "m", "--task", PAD)
    azure = fleet.command(*command, AZURE_API_KEY=KEY, AZURE_ENDPOINT="https://example.invalid/")
    assert azure.returncode == 2
    assert "WAA's run.py asks OpenAI's API only" in azure.stderr
    none = fleet.command(*command)
    assert none.returncode == 2
    assert "navi needs a key: export OPENAI_API_KEY=…" in none.stderr
