"""`make demo`: what a person sees first."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from fleet import Fleet, wait_for

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "scripts" / "demo"

# scripts/demo uses the environment that `make setup` made; the tests may run in another one.
needs_venv = pytest.mark.skipif(not (ROOT / ".venv/bin/evalfleet").exists(), reason="there is no .venv; `make setup`")


def test_make_runs_it_after_set_up():
    assert re.search(r"^demo: setup .*\n\t@?scripts/demo$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert os.access(DEMO, os.X_OK)


@needs_venv
@pytest.mark.slow
def test_demo_without_home_and_terminal(fleet: Fleet):
    done = subprocess.run(
        [str(DEMO), str(fleet.home)],
        env={"PATH": os.environ["PATH"], "HOME": ""},
        cwd=fleet.folder,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    out = done.stdout
    assert re.search(r"retried +editor_3", out)
    assert re.search(r"failed +files_4 .*did not open", out)
    assert re.search(r"browser_2  stall, blamed on", out)
    assert "22 of 24 tasks got a verdict" in out
    page = fleet.home / "report.html"
    assert f"Wrote {page}" in out
    assert "</html>" in page.read_text("utf-8")
    for command in ("logs latest files_4", "events latest --task browser_2", "resume"):
        assert f"evalfleet --home {fleet.home} {command}" in out
    wait_for(lambda: not fleet.left_processes(), "the end of the runner")
    # The excerpt in the README is what the demo really prints.
    excerpt = re.search(r"^```text\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert excerpt
    shown = [line for line in excerpt[1].splitlines() if re.match(r"  (Valid|Strict|Coverage)", line)]
    assert len(shown) == 3
    if "2 failed" in out:  # on a very busy machine the task that hangs may be held instead
        assert [line for line in shown if line not in out] == []


def test_demo_says_what_its_tasks_do():
    text = DEMO.read_text("utf-8")
    tasks = (ROOT / "examples" / "demo.jsonl").read_text("utf-8").splitlines()[1:]
    assert len(tasks) == 24
    assert "24" in text
    troubled = {match[1] for line in tasks if (match := re.search(r'"key": "(\w+)".*"trouble"', line))}
    assert troubled == {"editor_3", "files_4", "browser_2"}
    assert all(key in text for key in troubled)
