"""An end record is told once it is on the disk, and not before."""

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from evalfleet.runner.attempt import process_tree
from evalfleet.runner.attempt.journal import Journal
from evalfleet.runner.loop import Loop
from evalfleet.runner.spool.disk_sync import THREADS, DiskSync


def _fail(error: Exception) -> None:
    raise error


def journal_in(folder: Path) -> Journal:
    journal = Journal(str(folder / "journal.jsonl"), "r.1.1", time.time)
    journal.create()
    return journal


def test_a_held_event_is_in_the_file_and_seen_by_no_reader(tmp_path: Path):
    journal = journal_in(tmp_path)
    first = journal.append("launched", {})
    journal.hold("ended", {"cause": "exited"})
    assert (tmp_path / "journal.jsonl").read_bytes().count(b"\n") == 2
    assert journal.read(0) == first
    assert journal.read(len(first)) == b""
    assert (journal.next, journal.size, journal.offset_of(7)) == (1, len(first), len(first))
    line = journal.release()
    assert journal.read(0) == first + line
    assert journal.next == 2
    journal.close()


def test_a_held_event_that_found_no_room_on_the_disk_is_seen_by_no_reader_either(tmp_path: Path):
    journal = journal_in(tmp_path)
    first = journal.append("launched", {})
    full = os.open("/dev/full", os.O_WRONLY)
    kept = os.dup(journal._fd)
    os.dup2(full, journal._fd)
    journal.hold("ended", {"cause": "exited"})
    assert journal.disk_full
    assert journal.read(len(first)) == b""
    line = journal.release()
    assert journal.read(len(first)) == line
    os.dup2(kept, journal._fd)
    assert journal.flush()
    assert journal.read(0) == first + line
    for fd in (full, kept):
        os.close(fd)
    journal.close()


def test_the_loop_is_told_after_the_work_and_in_its_own_thread():
    loop = Loop(_fail)
    syncer = DiskSync(loop)
    saved: list[int] = []
    told: list[tuple[int, bool]] = []
    count = 5 * THREADS

    def work(number: int) -> None:
        assert threading.current_thread() is not threading.main_thread()
        saved.append(number)

    def tell(number: int) -> None:
        told.append((number, number in saved and threading.current_thread() is threading.main_thread()))
        if len(told) == count:
            loop.stop()

    for number in range(count):
        syncer.add(lambda n=number: work(n), lambda n=number: tell(n))
    loop.run()
    loop.close()
    assert sorted(told) == [(number, True) for number in range(count)]


def test_a_slow_disk_for_one_attempt_does_not_hold_up_the_others():
    loop = Loop(_fail)
    syncer = DiskSync(loop)
    gate = threading.Event()
    told: list[str] = []

    def tell(name: str) -> None:
        told.append(name)
        if name == "quick":
            gate.set()
        else:
            loop.stop()

    def wait() -> None:
        gate.wait(60)

    syncer.add(wait, lambda: tell("slow"))
    syncer.add(lambda: None, lambda: tell("quick"))
    loop.run()
    loop.close()
    assert told == ["quick", "slow"]


def test_the_start_time_is_what_the_kernel_says():
    for _ in range(100):
        before = process_tree.boottime_ns()
        with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as child:
            told = process_tree.start_time(child.pid, before)
            found = process_tree.stat_of(child.pid)
            assert found is not None
            assert told == found.start_time


def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.mark.parametrize("when", ["from the start", "later"])
def test_without_a_thread_to_be_had_everything_is_saved_and_told(monkeypatch: pytest.MonkeyPatch, when: str):
    loop = Loop(_fail)
    if when == "from the start":
        no_threads(monkeypatch)
    syncer = DiskSync(loop)
    no_threads(monkeypatch)
    saved: list[int] = []
    told: list[int] = []

    def tell(number: int) -> None:
        told.append(number)
        if len(told) == 3 * THREADS:
            loop.stop()

    for number in range(3 * THREADS):
        syncer.add(lambda n=number: saved.append(n), lambda n=number: tell(n))
    loop.run()
    loop.close()
    assert sorted(told) == sorted(saved) == list(range(3 * THREADS))


def test_what_one_callback_raises_costs_no_other():
    failures: list[Exception] = []
    loop = Loop(failures.append)
    syncer = DiskSync(loop)
    told: list[int] = []

    def tell(number: int) -> None:
        told.append(number)
        if len(told) == 10:
            loop.stop()
        raise ValueError(number)

    for number in range(10):
        syncer.add(lambda: None, lambda n=number: tell(n))
    loop.run()
    loop.close()
    assert sorted(told) == list(range(10))
    assert len(failures) == 10
