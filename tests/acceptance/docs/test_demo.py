"""`make demo`: what a person sees first, with a Chromium and without."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.support.fleet import Fleet, wait_for

from evalfleet.benchmarks.miniwob.benchmark import Miniwob
from evalfleet.config import Settings
from evalfleet.environments.browser.environment import NAMES

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "scripts" / "demo"
LISTED = ROOT / "examples" / "miniwob_20.txt"

# scripts/demo uses the environment that `make setup` made; the tests may run in another one.
needs_venv = pytest.mark.skipif(not (ROOT / ".venv/bin/evalfleet").exists(), reason="there is no .venv; `make setup`")
MISSING = [need.what for need in Miniwob(Settings(home=Path())).requirements() if not need.present]


def demo(fleet: Fleet, path: str, timeout_s: float = 400) -> str:
    done = subprocess.run(
        [str(DEMO), str(fleet.home)],
        env={"PATH": path, "HOME": ""},
        cwd=fleet.folder,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_make_runs_it_after_set_up():
    assert re.search(r"^demo: setup .*\n\t@?scripts/demo$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert os.access(DEMO, os.X_OK)


@needs_venv
@pytest.mark.long  # 40 episodes in Chromium: a minute of one core
@pytest.mark.timeout(500)
@pytest.mark.skipif(bool(MISSING), reason=f"missing: {', '.join(MISSING)}")
def test_two_agents_on_a_real_benchmark(fleet: Fleet):
    out = demo(fleet, os.environ["PATH"])
    assert len(re.findall(r"20 of 20 tasks got a verdict", out)) == 2
    better = re.search(r"^B is better by (\d+)\.\d points \(95% CI .*, 0 lost, p < 0\.001\)\.$", out, re.MULTILINE)
    assert better
    assert int(better[1]) > 50, "the oracle solves all, the random agent little"
    for name in ("oracle", "random"):
        page = fleet.home / f"{name}.html"
        assert f"Wrote {page}" in out
        assert page.read_text("utf-8").count("data:image/png;base64,") > 20
    assert out.rstrip().endswith(f"  {fleet.home}/random.html")
    wait_for(lambda: not fleet.left_processes(), "the end of the runner")
    # The excerpt in the README is what the demo really prints; times, ids and the random agent's luck differ.
    excerpt = re.search(r"^```text\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert excerpt
    told = [line for line in excerpt[1].splitlines() if not re.match(r"Run |B is better|$", line)]
    assert len(told) == 4
    assert [line for line in told if line not in out] == []


@pytest.fixture
def poor_path(tmp_path: Path) -> str:
    """A PATH with everything that this machine has but a Chromium, and with an apt-get that cannot reach its mirror."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in ("/bin", "/usr/bin"):
        for program in Path(place).iterdir():
            if program.name not in (*NAMES, "apt-get") and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    apt = folder / "apt-get"
    apt.write_text("#!/bin/sh\necho 'E: Unable to locate package' >&2\nexit 100\n")
    apt.chmod(0o755)
    return str(folder)


@needs_venv
@pytest.mark.slow
def test_shell_tasks_where_there_is_no_chromium(fleet: Fleet, poor_path: str):
    out = demo(fleet, poor_path, 110)
    lacks = "This machine lacks Chromium, so the demo cannot run MiniWoB++. It runs the built-in shell tasks instead."
    assert lacks in out.replace("Chromium and the package miniwob==1.1.0", "Chromium")
    assert "browser: " in out, "what was tried, and why it did not work"
    assert re.search(r"retried +editor_3", out)
    assert re.search(r"failed +files_4 .*did not open", out)
    assert re.search(r"browser_2  stall, blamed on", out)
    assert "22 of 24 tasks got a verdict" in out
    page = fleet.home / "report.html"
    assert f"Wrote {page}" in out
    assert "</html>" in page.read_text("utf-8")
    for command in ("logs latest files_4", "events latest --task browser_2", "resume"):
        assert f"evalfleet --home {fleet.home} {command}" in out
    assert out.rstrip().endswith(f"The report: {page}")
    wait_for(lambda: not fleet.left_processes(), "the end of the runner")


def test_demo_says_what_its_tasks_do():
    text = (ROOT / "src/evalfleet/cli/home/demo.py").read_text("utf-8")
    tasks = (ROOT / "examples" / "demo.jsonl").read_text("utf-8").splitlines()[1:]
    assert len(tasks) == 24
    assert "24" in text
    troubled = {match[1] for line in tasks if (match := re.search(r'"key": "(\w+)".*"trouble"', line))}
    assert troubled == {"editor_3", "files_4", "browser_2"}
    assert all(key in text for key in troubled)


@pytest.mark.skipif(bool(MISSING), reason=f"missing: {', '.join(MISSING)}")
def test_both_agents_get_tasks_that_the_oracle_solves():
    names = [line for line in LISTED.read_text("utf-8").splitlines() if not line.startswith("#")]
    solvable = {task.name for task in Miniwob(Settings(home=Path())).catalogue() if task.oracle}
    assert len(set(names)) == 20
    assert set(names) <= solvable
