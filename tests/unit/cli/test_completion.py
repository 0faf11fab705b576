"""What the Tab key offers: by the protocol that click's scripts for bash speak."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from evalfleet.model import Policy, TaskSpec
from evalfleet.store.open import open_store


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with closing(open_store(tmp_path)) as store:
        for name in ("nightly", "smoke"):
            tasks = [TaskSpec(key=f"{name}_{n}", domain="x", command=("true",)) for n in (1, 2)]
            store.runs.submit(name, Policy(), tasks, folder=str(tmp_path), base_env={})
    return tmp_path


def offered(home: Path, *words: str) -> list[str]:
    line = ["evalfleet", "--home", str(home), *words]
    env = {
        **os.environ,
        "_EVALFLEET_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
    }
    done = subprocess.run([sys.executable, "-m", "evalfleet"], env=env, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return [word.removeprefix("plain,") for word in done.stdout.split()]


def test_commands_come_from_the_table(home: Path):
    assert offered(home, "unq") == ["unquarantine"]
    assert offered(home, "pool", "sto") == ["stop"]


def test_runs_are_offered_by_id_and_by_the_name_that_was_begun(home: Path):
    assert offered(home, "report", "ni") == ["nightly"]
    assert offered(home, "report", "l") == ["latest"]


def test_keys_are_those_of_the_run_that_was_named(home: Path):
    assert offered(home, "logs", "nightly", "n") == ["nightly_1", "nightly_2"]
    assert offered(home, "logs", "smoke", "n") == []


def test_a_home_that_cannot_be_read_says_nothing(tmp_path: Path):
    assert offered(tmp_path / "nowhere", "report", "n") == []
    (tmp_path / "evalfleet.db").write_bytes(b"not a database" * 100)
    assert offered(tmp_path, "logs", "latest", "n") == []
