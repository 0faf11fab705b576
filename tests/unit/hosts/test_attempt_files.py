"""What is given out of an attempt's folder on this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from evalfleet.files.base import read
from evalfleet.files.folder import FolderFiles
from evalfleet.hosts.attempt_files import files_inside, open_inside, open_socket


def test_only_the_very_socket_is_given_out(tmp_path: Path):
    with socket.socket(socket.AF_UNIX) as theirs, socket.socket(socket.AF_UNIX) as ours:
        theirs.bind(str(tmp_path / "theirs.sock"))
        theirs.listen()
        folder = tmp_path / ("long-" * 30)  # a path that no socket's name could hold
        folder.mkdir()
        (folder / "vnc.sock").symlink_to(tmp_path / "theirs.sock")
        assert open_socket(folder, "vnc.sock") is None
        (folder / "vnc.sock").unlink()
        (tmp_path / "theirs.sock").rename(folder / "vnc.sock")
        descriptor = open_socket(folder, "vnc.sock")
        assert descriptor is not None
        (folder / "vnc.sock").unlink()
        (folder / "vnc.sock").write_text("something else by now")
        ours.connect(f"/proc/self/fd/{descriptor}")
        os.close(descriptor)
        assert open_socket(folder, "vnc.sock") is None
        assert open_socket(tmp_path / "none", "vnc.sock") is None


@pytest.mark.parametrize("name", ["../key", "link", "folder/key", "pipe", ".", "", "a\0b", "x" * 5000, "/etc/passwd"])
def test_nothing_outside_is_given_out(tmp_path: Path, name: str):
    attempt = tmp_path / "attempt"
    attempt.mkdir()
    (tmp_path / "key").write_text("private")
    (attempt / "link").symlink_to(tmp_path / "key")
    (attempt / "folder").symlink_to(tmp_path)
    os.mkfifo(attempt / "pipe")
    assert open_inside(attempt, name) is None
    assert files_inside(attempt, "folder", 10) == []


def test_a_folder_that_is_a_link_holds_nothing(tmp_path: Path):
    (tmp_path / "key").write_text("private")
    (tmp_path / "attempt").symlink_to(tmp_path)
    assert read(FolderFiles(tmp_path / "attempt"), "key", 100) is None
    assert files_inside(tmp_path / "attempt", "", 10) == []


def test_what_is_too_long_is_cut_or_nothing(tmp_path: Path):
    (tmp_path / "a").write_text("0123456789")
    assert read(FolderFiles(tmp_path), "a", 5) is None
    assert read(FolderFiles(tmp_path), "a", 5, whole=False) == b"01234"
    assert read(FolderFiles(tmp_path), "a", 10) == b"0123456789"
