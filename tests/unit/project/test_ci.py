"""`.ci/run` tries a few failed tests again, alone, and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAKE = """#!/bin/sh
echo "make $1" >> log
if [ "$1" = test ] && [ -f failing ]; then mkdir -p .pytest_cache/v/cache; cp failing .pytest_cache/v/cache/lastfailed; exit 1; fi
[ "$1" != test ] || [ ! -f unchecked ]
"""
PYTEST = """#!/bin/sh
echo "again $*" >> log
[ -f steady ]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {"bin/make": MAKE, ".venv/bin/python": PYTEST}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    return tmp_path


def fails(project: Path, count: int) -> None:
    (project / "failing").write_text(json.dumps({f"test_{number}": True for number in range(count)}, indent=2))


def passes(project: Path) -> bool:
    env = {"PATH": f"{project / 'bin'}:/usr/bin:/bin"}
    return subprocess.run([project / ".ci" / "run"], env=env, capture_output=True, check=False).returncode == 0


def log(project: Path) -> list[str]:
    return (project / "log").read_text().splitlines()


def test_what_passes_is_not_tried_again(project: Path) -> None:
    assert passes(project)
    assert log(project) == ["make test", "make long"]


def test_three_that_pass_alone_do_not_refuse_the_change(project: Path) -> None:
    fails(project, 3)
    (project / "steady").touch()
    assert passes(project)
    assert [line.split(" ")[0] for line in log(project)] == ["make", "again", "make"]


def test_one_that_fails_twice_refuses_it(project: Path) -> None:
    fails(project, 1)
    assert not passes(project)
    assert "make long" not in log(project)


def test_four_are_not_tried_again(project: Path) -> None:
    fails(project, 4)
    (project / "steady").touch()
    assert not passes(project)
    assert log(project) == ["make test"]


def test_a_failed_check_is_no_failed_test(project: Path) -> None:
    (project / "unchecked").touch()
    (project / "steady").touch()
    assert not passes(project)
    assert log(project) == ["make test"]
