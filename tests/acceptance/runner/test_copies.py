"""Copies and moves of a spool: a runner ends what belongs to its own spool, wherever that lies now, and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.runner import RunnerSpool, a_spec, is_alive, wait_until


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[RunnerSpool]:
    runner = RunnerSpool(tmp_path / "spool")
    runner.start()
    yield runner
    runner.close()


def copied(spool: RunnerSpool, to: Path) -> RunnerSpool:
    shutil.copytree(spool.folder, to)
    return RunnerSpool(to)


def test_the_runner_of_a_copy_does_not_touch_the_originals_processes(spool: RunnerSpool, tmp_path: Path) -> None:
    with spool.client() as client:
        client.launch("a", a_spec("sleep", "300"))
        pid = client.event("a", "started")["pid"]
        copy = copied(spool, tmp_path / "copy")
        copy.start()
        try:
            assert copy.journal("a")[-1]["cause"] == "runner_lost"  # there is no process of the copy's
        finally:
            copy.close()
        assert is_alive(pid)
        client.must("cancel", run="r", epoch=1, attempt="a")
        assert client.end("a")["cause"] == "cancelled"


def test_a_copy_of_an_older_runners_spool_spares_them_too(spool: RunnerSpool, tmp_path: Path) -> None:
    """Its journals do not say which file they are."""
    with spool.client() as client:
        client.launch("a", a_spec("sleep", "300"))
        pid = client.event("a", "started")["pid"]
        copy = copied(spool, tmp_path / "copy")
        first, *rest = copy.journal("a")
        del first["file"]
        journal = copy.attempt("a") / "journal.jsonl"
        journal.write_text("".join(json.dumps(line) + "\n" for line in (first, *rest)))
        copy.start()
        copy.close()
        assert is_alive(pid)


def test_what_a_moved_spool_left_is_ended(spool: RunnerSpool, tmp_path: Path) -> None:
    with spool.client() as client:
        client.launch("a", a_spec("env", "-i", "sleep", "300"))
        pid = client.event("a", "started")["pid"]
    spool.kill()
    spool.folder.rename(tmp_path / "moved")
    moved = RunnerSpool(tmp_path / "moved")
    moved.start()
    try:
        wait_until(lambda: not is_alive(pid), "the end of what is left")
        assert moved.journal("a")[-1]["cause"] == "runner_lost"
    finally:
        moved.close()
