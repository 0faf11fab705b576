"""Who a home is."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from evalfleet.errors import CopiedHome
from evalfleet.store import identity
from evalfleet.store.home import Facts, Identity
from evalfleet.store.sqlite import open_reader, open_store

FACTS = Facts(path="/home", inode="7", device="1", boot="b", machine="m")


def who(home: Path) -> Identity:
    with closing(open_store(home)) as store:
        return store.identity()


@pytest.mark.parametrize(
    ("changed", "is_copy"),
    [
        ({}, False),
        ({"path": "/elsewhere"}, False),  # it was moved
        ({"boot": "c", "device": "2"}, False),  # the machine was started anew
        ({"boot": "c", "machine": "n", "device": "3"}, False),  # a home on a network disk
        ({"inode": "8"}, True),
        ({"device": "2"}, True),
        ({"inode": "8", "boot": "c", "machine": "n", "path": "/x"}, True),
    ],
)
def test_what_makes_a_copy(changed: dict[str, str], is_copy: bool):
    assert identity.is_copy(FACTS, replace(FACTS, **changed)) is is_copy


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
        assert reader.identity() == us
    assert "copy" in identity.seen.pop(tmp_path / "copy")


def test_the_copy_that_takes_the_place_is_another_home_that_knows_the_first(tmp_path: Path):
    us = who(tmp_path / "home")
    shutil.copytree(tmp_path / "home", tmp_path / "copy")
    shutil.rmtree(tmp_path / "home")
    with closing(open_store(tmp_path / "copy", copies=True)) as store:
        assert store.adopt(tmp_path / "copy") is not None
        assert store.adopt(tmp_path / "copy") is None, "it is none any more"
    heir = who(tmp_path / "copy")
    assert heir.id != us.id
    assert heir.labels == {heir.label, us.label}
    assert [one.id for one in heir.former] == [us.id]
