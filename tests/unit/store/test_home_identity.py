"""Who a home is."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from evalfleet.errors import CopiedHome
from evalfleet.store.home import identity
from evalfleet.store.home.facts import Facts, Identity
from evalfleet.store.open import open_reader, open_store

FACTS = Facts(path="/home", inode="7", device="1", boot="b", machine="m")


def who(home: Path) -> Identity:
    with closing(open_store(home)) as store:
        return store.home.identity()


@pytest.mark.parametrize(
    ("changed", "is_copy"),
    [
        ({}, False),
        ({"path": "/elsewhere"}, False),  # it was moved
        ({"boot": "c", "device": "2"}, False),  # the machine was started anew
        ({"device": "2"}, False),  # its file system was mounted anew
        ({"boot": "", "device": "2"}, False),
        ({"path": "/elsewhere", "device": "2"}, False),  # the same, at another place
        ({"machine": ""}, False),  # a container that does not know its machine
        ({"inode": "8"}, True),
        ({"boot": "c", "machine": "n"}, True),  # a clone of the disk in another machine
        ({"inode": "8", "boot": "c", "machine": "n", "path": "/x"}, True),
    ],
)
def test_what_makes_a_copy(changed: dict[str, str], is_copy: bool):
    assert identity.is_copy(FACTS, replace(FACTS, **changed)) is is_copy


def placed(home: Path, **facts: str) -> None:
    """Let the home remember another place than the one where it is."""
    names = ", ".join(f"{name} = :{name}" for name in facts)
    with closing(sqlite3.connect(home / "evalfleet.db")) as connection, connection:
        connection.execute(f"update home set {names}", facts)


def test_a_home_whose_file_system_was_mounted_anew_is_the_same(tmp_path: Path):
    us = who(tmp_path)
    placed(tmp_path, device="12345")
    assert who(tmp_path) == us, "and it knows its device again"


def test_a_clone_of_the_whole_file_system_is_a_copy_while_the_original_is_there(tmp_path: Path):
    """Files keep their numbers in such a clone; a second name of the original's database stands for its file here."""
    was = tmp_path / "was"
    now = identity.facts_of(_made(tmp_path / "home"))
    known = replace(now, path=str(was), device="12345")
    assert not identity.is_copy(known, now, stays=identity.still_there(known, now)), "nothing is there any more"
    was.mkdir()
    (was / "evalfleet.db").hardlink_to(tmp_path / "home" / "evalfleet.db")
    assert not identity.is_copy(known, now, stays=identity.still_there(known, now)), "the same file"
    clone = replace(now, device="12345")
    assert identity.is_copy(known, clone, stays=identity.still_there(known, clone))


def _made(home: Path) -> Path:
    who(home)
    return home


def test_a_disk_that_starts_in_another_machine_asks_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    machine = tmp_path / "machine-id"
    monkeypatch.setattr(identity, "_MACHINE", machine)
    machine.write_text("one\n")
    us = who(tmp_path)
    machine.write_text("two\n")
    with pytest.raises(CopiedHome, match=r"lies on another machine now.*--adopt"):
        open_store(tmp_path)
    with closing(open_store(tmp_path, copies=True)) as store:
        assert store.home.adopt(tmp_path) is not None
    assert who(tmp_path).labels > us.labels
    machine.unlink()
    assert who(tmp_path).facts.machine == "", "an unknown machine decides nothing"


def test_homes_of_the_same_path_and_host_name_are_not_the_same(tmp_path: Path):
    """Two containers, one after the other here."""
    labels: set[str] = set()
    for _ in range(2):
        us = who(tmp_path / "home")
        assert us == who(tmp_path / "home"), "it stays who it is"
        labels |= us.labels
        assert us.legacy not in us.labels
        shutil.rmtree(tmp_path / "home")
    assert len(labels) == 2


def test_a_moved_home_is_the_same(tmp_path: Path):
    us = who(tmp_path / "home")
    (tmp_path / "home").rename(tmp_path / "moved")
    moved = who(tmp_path / "moved")
    assert (moved.id, moved.facts.path) == (us.id, str(tmp_path / "moved"))


def test_a_copy_can_be_read_and_not_written(tmp_path: Path):
    us = who(tmp_path / "home")
    shutil.copytree(tmp_path / "home", tmp_path / "copy")
    with pytest.raises(CopiedHome, match=r"this home is a copy of .*home: the original is still there"):
        open_store(tmp_path / "copy")
    reader = open_reader(tmp_path / "copy")
    assert reader is not None
    with closing(reader):
        assert reader.home.identity() == us
    assert "copy" in identity.seen.pop(tmp_path / "copy")


def test_the_copy_that_takes_the_place_is_another_home_that_knows_the_first(tmp_path: Path):
    us = who(tmp_path / "home")
    shutil.copytree(tmp_path / "home", tmp_path / "copy")
    shutil.rmtree(tmp_path / "home")
    with closing(open_store(tmp_path / "copy", copies=True)) as store:
        assert store.home.adopt(tmp_path / "copy") is not None
        assert store.home.adopt(tmp_path / "copy") is None, "it is none any more"
    heir = who(tmp_path / "copy")
    assert heir.id != us.id
    assert heir.labels == {heir.label, us.label}
    assert [one.id for one in heir.former] == [us.id]
