"""Bringing files home from the spool of this machine, whatever lies there and whoever is killed on the way."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from evalfleet.hosts.local import collect
from evalfleet.hosts.local.collect import collect_files


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "spool" / "r.1.1"
    (folder / "artifacts" / "deep").mkdir(parents=True)
    (folder / "artifacts" / "deep" / "a.txt").write_text("a")
    (folder / "artifacts" / "b.txt").write_text("b")
    (folder / "artifacts" / "unlisted").write_text("?")
    (folder / "work").mkdir()
    (folder / "stdout.log").write_text("said")
    end(folder, artifacts=[{"path": "deep/a.txt", "size": 1}, {"path": "b.txt", "size": 1}])
    return folder


def end(folder: Path, **fields: Any) -> None:
    lines = [{"type": "launched"}, {"type": "ended", **fields}]
    (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def tree(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if not one.is_dir())


LISTED = ["artifacts/b.txt", "artifacts/deep/a.txt", "journal.jsonl", "stdout.log"]


def test_the_usual_case_is_one_rename(source: Path, tmp_path: Path) -> None:
    inode = source.stat().st_ino
    collect_files(source, tmp_path / "home" / "1", {}, listed_only=False)
    assert (tmp_path / "home" / "1").stat().st_ino == inode
    assert not source.exists()


def test_with_secrets_only_what_is_listed_comes(source: Path, tmp_path: Path) -> None:
    collect_files(source, tmp_path / "home" / "1", {}, listed_only=True)
    assert tree(tmp_path / "home" / "1") == LISTED
    assert tree(source) == ["artifacts/unlisted"]
    collect_files(source, tmp_path / "home" / "1", {}, listed_only=True)
    assert os.listdir(tmp_path / "home") == ["1"]


def test_what_could_not_be_cleaned_stays(source: Path, tmp_path: Path) -> None:
    (source / "result.json").write_text("hunter22")
    end(source, artifacts=[], unclean=["result.json"])
    collect_files(source, tmp_path / "home" / "1", {}, listed_only=True)
    assert tree(tmp_path / "home" / "1") == ["journal.jsonl", "stdout.log"]


@pytest.mark.parametrize("moment", range(5))
def test_who_is_killed_on_the_way_is_followed_by_one_who_goes_on(
    source: Path, tmp_path: Path, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = tmp_path / "home" / "1"
    move, moved = collect._move_file, 0

    class Killed(BaseException):
        pass

    def move_some(here: int, there: int, name: str) -> None:
        nonlocal moved
        if moved == moment:
            raise Killed
        move(here, there, name)
        moved += bool(os.access(name, os.F_OK, dir_fd=there))

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(collect, "_move_file", move_some)
        patched.setattr(collect, "_complete", die)
        with pytest.raises(Killed):
            collect_files(source, destination, {}, listed_only=True)
    assert not destination.exists()
    # the runner tells of the attempt as long as its journal is there: then nothing may be missing elsewhere
    assert (source / "journal.jsonl").exists() or tree(destination.with_name("1.partial")) == LISTED
    collect_files(source, destination, {}, listed_only=True)
    assert tree(destination) == LISTED


@pytest.mark.parametrize("moment", range(6))
def test_who_is_killed_while_a_folder_that_cannot_be_renamed_comes_file_by_file_loses_nothing(
    source: Path, tmp_path: Path, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of an overlay's lower layer: the system refuses to rename it, and renames the files in it."""
    destination = tmp_path / "home" / "1"
    whole, moved, rename, move = tree(source), 0, Path.rename, collect._move_file

    class Killed(BaseException):
        pass

    def refuse(path: Path, target: Path) -> Path:
        if path == source:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        if moved == moment:
            raise Killed
        return rename(path, target)

    def move_some(here: int, there: int, name: str) -> None:
        nonlocal moved
        if moved == moment:
            raise Killed
        move(here, there, name)
        moved += 1

    monkeypatch.setattr(Path, "rename", refuse)
    with monkeypatch.context() as patched:
        patched.setattr(collect, "_move_file", move_some)
        with pytest.raises(Killed):
            collect_files(source, destination, {}, listed_only=False)
    moved = -1
    collect_files(source, destination, {}, listed_only=False)
    assert tree(destination) == whole


def test_all_but_the_last_step_was_done_and_the_spool_is_empty(source: Path, tmp_path: Path) -> None:
    destination = tmp_path / "home" / "1"
    collect_files(source, destination, {}, listed_only=True)
    destination.rename(destination.with_name("1.partial"))
    for one in (source / "artifacts" / "unlisted",):
        one.unlink()
    for folder in (source / "artifacts" / "deep", source / "artifacts", source / "work", source):
        folder.rmdir()
    collect_files(source, destination, {"KEY": "hunter22"}, listed_only=True)
    assert tree(destination) == LISTED


def test_without_an_end_record_nothing_is_moved(source: Path, tmp_path: Path) -> None:
    (source / "journal.jsonl").write_text('{"type": "launched"}\n')
    with pytest.raises(OSError, match="no end record"):
        collect_files(source, tmp_path / "home" / "1", {}, listed_only=True)
    assert len(tree(source)) == 5


def test_links_stay_where_they_are(source: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("theirs")
    for name in ("deep/a.txt", "b.txt"):
        (source / "artifacts" / name).unlink()
    (source / "artifacts" / "deep").rmdir()
    (source / "artifacts" / "deep").symlink_to(outside)
    (source / "artifacts" / "b.txt").symlink_to(outside / "a.txt")
    collect_files(source, tmp_path / "home" / "1", {"KEY": "theirs"}, listed_only=True)
    assert tree(tmp_path / "home" / "1") == ["journal.jsonl", "stdout.log"]
    assert (outside / "a.txt").read_text() == "theirs"


def test_another_file_system_gets_copies(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source / "artifacts" / "link").symlink_to("/etc/passwd")
    rename = os.rename

    def across(*args: Any, **fds: Any) -> None:
        if fds or str(args[0]).startswith(str(source)):
            raise OSError(18, "Invalid cross-device link")
        rename(*args)

    monkeypatch.setattr(os, "rename", across)
    collect_files(source, tmp_path / "home" / "1", {}, listed_only=False)
    assert tree(tmp_path / "home" / "1") == [
        "artifacts/b.txt",
        "artifacts/deep/a.txt",
        "artifacts/unlisted",
        *LISTED[2:],
    ]


def test_a_closed_folder_is_opened_and_no_link_is_followed(source: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (source / "artifacts" / "link").symlink_to(outside)
    (source / "artifacts" / "deep").chmod(0)
    collect._open_up(source)
    assert (source / "artifacts" / "deep").stat().st_mode & 0o777 == 0o700
    assert outside.stat().st_mode & 0o777 == 0o755
