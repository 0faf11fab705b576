"""What `make wheel` builds works where there is no checkout: an empty environment, an empty home, no index."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.support.fleet import wait_for
from tests.support.wheelhouse import wheelhouse

ROOT = Path(__file__).parents[3]

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not (ROOT / ".venv/bin/python").exists(), reason="there is no .venv; `make setup`"),
]


@pytest.mark.long
def test_a_wheel_runs_the_demo_in_an_empty_environment(tmp_path: Path):
    built = tmp_path / "dist"
    _run([str(ROOT / "scripts/wheel"), str(built)])
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assert "evalfleet/web/static/index.html" in names, "the wheel was made from the source distribution"
    assert "evalfleet/runner/__init__.py" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests/")]

    _run([sys.executable, "-m", "venv", str(tmp_path / "venv")])
    bin_ = tmp_path / "venv/bin"
    index = ["--no-index", "--find-links", str(wheelhouse(tmp_path / "wheels"))]
    _run([str(bin_ / "python"), "-m", "pip", "install", "--quiet", *index, str(wheel)])
    # With an empty HOME and PATH of its own: nothing of the checkout helps.
    env = {"HOME": str(tmp_path), "PATH": f"{bin_}:/usr/bin:/bin", "EVALFLEET_CHROMIUM": "/nowhere"}
    out = _run(["evalfleet", "demo"], env=env, cwd=tmp_path)
    assert "It runs the built-in shell tasks instead." in out
    assert "22 of 24 tasks got a verdict" in out
    assert "$ evalfleet --home demo-home report latest" in out
    assert (tmp_path / "demo-home/report.html").stat().st_size > 10_000
    wait_for(lambda: not list((tmp_path / "demo-home").glob("**/runner.sock")), "the end of the runner", 60)


def test_each_extra_of_the_docs_exists_and_each_extra_is_in_the_docs():
    page = (ROOT / "docs/howto/install.md").read_text("utf-8")
    told = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    extras = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    assert told == set(re.findall(r"^(\w+) = \[", extras, re.MULTILINE))


def _run(command: list[str], *, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EVALFLEET_")}
    done = subprocess.run(
        command,
        env=env or clean,
        cwd=cwd,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
