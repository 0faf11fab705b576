"""Removing a runner's folder from a host: what runners made goes, what people keep there stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.runner import RunnerSpool, a_spec

from evalfleet.runner.visit.status import remove


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[RunnerSpool]:
    """A folder of a person that was named as a runner's, and in which a run of home `mine` was."""
    folder = tmp_path / "anna"
    spool = RunnerSpool(folder)
    spool.start()
    for name in ("thesis.tex", "files/data.csv", "runner-notes.pyz", "homes.json.old"):
        (folder / name).write_text("mine")
    with spool.client() as client:
        client.launch("r.1", a_spec("true"), home="mine", former=[])
        client.end("r.1")
        client.must("ack", attempt="r.1", run="r", epoch=1)
    (folder / "files" / ("a" * 64)).write_text("stored")
    yield spool
    spool.close()


def tree(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if not one.is_dir())


def test_only_what_runners_made_is_removed(spool: RunnerSpool) -> None:
    said = remove(str(spool.folder), ["mine"])
    assert said["removed"] is False
    assert (
        "also holds other files (files, homes.json.old, runner-notes.pyz, ...); only those of the runner were removed"
        in said["why"]
    )
    assert tree(spool.folder) == ["files/data.csv", "homes.json.old", "runner-notes.pyz", "thesis.tex"]
    remove(str(spool.folder), ["mine"])
    assert len(tree(spool.folder)) == 4


def test_a_folder_in_which_no_runner_was_loses_nothing(tmp_path: Path) -> None:
    kept = ["runner.log", "epochs.json", "trash/a", "files/" + "a" * 64]
    for name in kept:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    (tmp_path / "runner-0123456789ab.pyz").write_text("came with the visit")
    assert remove(str(tmp_path), ["mine"])["removed"] is False
    assert tree(tmp_path) == sorted(kept)


def test_an_empty_one_goes(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    assert remove(str(tmp_path / "spool"), []) == {"removed": True}
    assert not (tmp_path / "spool").exists()


@pytest.mark.parametrize("damage", [None, "{"])
def test_the_fences_of_other_homes_stay(spool: RunnerSpool, damage: str | None) -> None:
    if damage is not None:
        (spool.folder / "homes.json").write_text(damage)
    assert remove(str(spool.folder), ["theirs"]) == {"removed": False, "why": "another home has runs there"}
    assert json.loads((spool.folder / "epochs.json").read_bytes()) == {"r": 1}
