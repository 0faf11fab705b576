"""The locks on GPUs that the homes and users of a host share."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from evalfleet.runner.gpu import locks as gpulocks
from evalfleet.runner.gpu.locks import GpuLockHeld, GpuLocks

UUID = "GPU-a"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVALFLEET_GPU_LOCKS", str(tmp_path / "locks"))
    return tmp_path / "locks"


def test_one_open_file_for_all_attempts_of_a_runner(folder: Path):
    ours, theirs = GpuLocks("/ours"), GpuLocks("/theirs")
    fd = ours.take(UUID, "a")
    assert ours.take(UUID, "b") == fd
    assert ours.outsider(UUID) is None
    assert theirs.outsider(UUID) == f"the runner of /ours (runner {os.getpid()}, uid {os.getuid()})"
    with pytest.raises(GpuLockHeld, match=f"process {os.getpid()}$"):
        theirs.take(UUID, "c")
    assert not ours.drop(UUID, "a")
    assert not ours.drop(UUID, "nobody")
    with pytest.raises(GpuLockHeld):
        theirs.take(UUID, "c")
    assert ours.drop(UUID, "b")
    theirs.take(UUID, "c")
    assert theirs.drop(UUID, "c")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE((folder / f"{UUID}.lock").stat().st_mode) == 0o666


def test_it_is_not_given_up_for_who_inherited_it(folder: Path):
    locks = GpuLocks("/ours")
    inherited = os.dup(locks.take(UUID, "a"))  # as a process of the attempt has it
    assert locks.drop(UUID, "a")
    left = gpulocks.holder(str(folder), UUID, "/ours")
    assert left is not None
    assert (left.ours, left.pids) == (True, [os.getpid()])
    os.close(inherited)
    assert gpulocks.holder(str(folder), UUID, "/ours") is None


def test_who_only_asks_keeps_nobody_away(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A shared lock is gone after an instant, and is waited for."""
    locks = GpuLocks("/ours")
    locks.take(UUID, "a")
    locks.drop(UUID, "a")
    asking = os.open(folder / f"{UUID}.lock", os.O_RDWR)
    fcntl.flock(asking, fcntl.LOCK_SH)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        os.close(asking)

    monkeypatch.setattr(gpulocks.time, "sleep", pause)
    locks.take(UUID, "b")
    assert len(pauses) == 1
    locks.drop(UUID, "b")


def test_a_file_that_was_replaced_meanwhile_is_not_the_lock(folder: Path, monkeypatch: pytest.MonkeyPatch):
    real = fcntl.flock
    path = folder / f"{UUID}.lock"

    def replaced(fd: int, how: int) -> None:
        monkeypatch.setattr(gpulocks.fcntl, "flock", real)
        path.unlink()
        real(fd, how)

    monkeypatch.setattr(gpulocks.fcntl, "flock", replaced)
    fd = GpuLocks("/ours").take(UUID, "a")
    assert os.fstat(fd).st_ino == path.stat().st_ino
    os.close(fd)


def test_what_is_held_looks_used(folder: Path):
    """Cleaners of /tmp take files that nobody used for days; whoever came then would lock another one."""
    locks = GpuLocks("/ours")
    locks.take(UUID, "a")
    lock = folder / f"{UUID}.lock"
    for path in (folder, lock):
        os.utime(path, (0, 0))
    locks.touch()
    assert min(path.stat().st_mtime for path in (folder, lock)) > 0
    locks.drop(UUID, "a")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_must_be_open_and_sticky(folder: Path):
    folder.mkdir()
    folder.chmod(0o777)
    os.chown(folder, 12345, 12345)
    with pytest.raises(GpuLockHeld, match="belongs to uid 12345 and has mode 777, not 1777"):
        GpuLocks("/ours").take(UUID, "a")
    folder.chmod(0o1777)
    locks = GpuLocks("/ours")
    locks.take(UUID, "a")
    assert locks.drop(UUID, "a")


@pytest.mark.parametrize(
    "note", [b"", b"{", b"[" * 4000, b'{"spool": "\\u001b[31m", "uid": [], "runner": true}', b"\xff"]
)
def test_what_others_wrote_into_it_is_only_text(folder: Path, note: bytes):
    locks = GpuLocks("/ours")
    fd = locks.take(UUID, "a")
    os.ftruncate(fd, 0)
    os.pwrite(fd, note, 0)
    words = GpuLocks("/theirs").outsider(UUID)
    assert words is not None
    assert words.isprintable()
    locks.drop(UUID, "a")
