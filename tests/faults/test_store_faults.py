"""Real processes and real signals against one SQLite home."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.store import cases

from evalfleet.errors import Owned
from evalfleet.model import Policy, TaskState
from evalfleet.store.open import open_reader, open_store
from evalfleet.store.store import Store

ROOT = Path(__file__).parents[2]
PRELUDE = """
import os, signal, sys, time
from pathlib import Path
from evalfleet.model import *

from evalfleet.store.open import open_reader, open_store
from tests.support.store import cases
home = Path(sys.argv[1])
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start another Python process with some code in it; none outlives the test."""
    processes: list[subprocess.Popen[str]] = []

    def begin(code: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code, *map(str, arguments)],
            cwd=ROOT,  # where it finds `tests`
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def let_go(processes: list[subprocess.Popen[str]]) -> None:
    """Tell those that are ready to begin, all at once."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 60)
    assert ready, "the process said nothing"
    return process.stdout.readline().strip()


def ended(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    return output


def check(home: Path) -> None:
    connection = sqlite3.connect(home / "evalfleet.db")
    try:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert connection.execute("pragma foreign_key_check").fetchall() == []
    finally:
        connection.close()


# Many writers

WRITER = """
run_id, me = sys.argv[2], int(sys.argv[3])
store = open_store(home)
run = store.runs.get(run_id)
print("ready", flush=True)
sys.stdin.readline()
for number in range(200):
    with store.batch():
        before = store.runs.breaker(run_id) or {"count": 0}
        store.runs.store_breaker(run, {"count": before["count"] + 1})
        store.events.note(run_id, "test.noted", {"me": me, "number": number, "count": before["count"] + 1})
store.close()
"""

READER = """
run_id = sys.argv[2]
store = open_reader(home)
print("ready", flush=True)
seen = last = looks = 0
while seen < 800:
    looks += 1
    with store.snapshot():
        count = (store.runs.breaker(run_id) or {"count": 0})["count"]
        events = [e for e in store.events.of_run(run_id, after=last, limit=10000) if e.type == "test.noted"]
    for event in events:
        # In the order of commits, and nothing skipped that comes later.
        assert event.data["count"] == seen + 1, (event, seen)
        seen, last = seen + 1, event.number
    assert seen == count, (seen, count)
store.close()
print("looks", looks)
"""


def test_four_writers_lose_nothing_and_readers_see_order(tmp_path: Path, start: Start) -> None:
    store = open_store(tmp_path)
    run = cases.submit(store)
    reader = start(READER, tmp_path, run.id)
    writers = [start(WRITER, tmp_path, run.id, number) for number in range(4)]
    for process in (reader, *writers):
        assert line(process) == "ready"
    let_go(writers)
    for process in writers:
        ended(process)
    assert "looks" in ended(reader)
    assert store.runs.breaker(run.id) == {"count": 800}
    events = [event for event in store.events.of_run(run.id, limit=10_000) if event.type == "test.noted"]
    assert [event.data["count"] for event in events] == list(range(1, 801))
    for number in range(4):
        assert [event.data["number"] for event in events if event.data["me"] == number] == list(range(200))
    store.close()
    check(tmp_path)


# Death in the middle of a transaction

KILLED = """
run_id, point = sys.argv[2], int(sys.argv[3])
store = open_store(home)
run = store.runs.take(run_id, "doomed")
run = store.runs.begin(run) or store.runs.get(run_id)
attempt = cases.claimed(store, run).attempt
database, left = store.database, [point]
execute = database.rows
def rows(name, /, **values):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return execute(name, **values)
database.rows = rows
store.attempts.finish(run, cases.with_verdict(attempt))
if left[0] == 1:
    # All statements are through: die before the next transaction.
    os.kill(os.getpid(), signal.SIGKILL)
print("survived")
"""


def test_death_at_any_statement_leaves_all_or_nothing(tmp_path: Path, start: Start) -> None:
    store = open_store(tmp_path)
    died_at = 0
    for point in range(1, 20):
        run = cases.submit(store)
        process = start(KILLED, tmp_path, run.id, point)
        output, _ = process.communicate(timeout=60)
        task, [attempt] = store.tasks.at(run.id, 1), store.attempts.all(run.id)
        types = [event.type for event in store.events.of_run(run.id)]
        if process.returncode == 0:
            assert "survived" in output
            assert task.state is TaskState.DONE
            break
        assert process.returncode == -signal.SIGKILL, output
        died_at = point
        whole = task.state is TaskState.DONE
        assert (attempt.verdict is not None) == ("attempt.finished" in types) == ("task.done" in types) == whole
        # The next controller takes over at once and finishes what is left.
        taken = store.runs.take(run.id, "next")
        assert taken.epoch == 2
        if not whole:
            assert [found.id for found in store.attempts.unended(run.id)] == [attempt.id]
            assert cases.finished(store, taken, cases.with_verdict(attempt)).counts
    assert died_at >= 4
    store.close()
    check(tmp_path)


WRITES_FOR_EVER = """
run_id = sys.argv[2]
store = open_store(home)
run = store.runs.get(run_id)
count = (store.runs.breaker(run_id) or {"count": 0})["count"]
print("ready", flush=True)
while True:
    count += 1
    with store.batch():
        store.runs.store_breaker(run, {"count": count, "text": "x" * 20000})
        store.events.note(run_id, "test.noted", {"count": count})
    print(count, flush=True)
"""


def test_death_at_random_moments_keeps_what_was_committed(tmp_path: Path, start: Start) -> None:
    store = open_store(tmp_path)
    run = cases.submit(store)
    rng = random.Random(7)
    for _ in range(12):
        process = start(WRITES_FOR_EVER, tmp_path, run.id)
        assert line(process) == "ready"
        said = [line(process) for _ in range(rng.randrange(1, 30))]
        time.sleep(rng.random() / 100)  # somewhere inside a later transaction
        process.kill()
        output, _ = process.communicate()
        said += output.split()
        stored = (store.runs.breaker(run.id) or {})["count"]
        assert stored >= int(said[-1])
        event = store.events.last(run.id)
        assert event is not None
        assert event.data["count"] == stored
        store.events.note(run.id, "test.noted", {"count": stored})  # the lock is free
    store.close()
    check(tmp_path)


# Owners

OWNER = """
store = open_store(home)
run = store.runs.begin(store.runs.take(sys.argv[2], f"doomed, pid {os.getpid()}"))
print("mine", flush=True)
sys.stdin.readline()
"""


def test_a_killed_owner_is_followed_at_once(tmp_path: Path, start: Start) -> None:
    store = open_store(tmp_path)
    run = cases.submit(store)
    process = start(OWNER, tmp_path, run.id)
    assert line(process) == "mine"
    with pytest.raises(Owned, match=f"doomed, pid {process.pid}"):
        store.runs.take(run.id, "next")
    assert store.runs.driver(run.id) == f"doomed, pid {process.pid}"
    process.kill()
    process.wait()
    assert store.runs.driver(run.id) is None
    assert store.runs.get(run.id).driver == f"doomed, pid {process.pid}"
    taken = store.runs.take(run.id, "next")
    assert (taken.epoch, taken.driver) == (2, "next")
    store.close()


def test_one_who_only_asks_does_not_turn_an_owner_away(tmp_path: Path, start: Start) -> None:
    asking = """
store = open_reader(home)
print("ready", flush=True)
while True:
    store.runs.driver(sys.argv[2])
"""
    store = open_store(tmp_path)
    run = cases.submit(store)
    process = start(asking, tmp_path, run.id)
    assert line(process) == "ready"
    for _ in range(50):
        store.runs.leave(store.runs.take(run.id, "me"))
    store.close()


def test_changed_sees_the_commits_of_other_processes(tmp_path: Path, start: Start) -> None:
    store = open_store(tmp_path)
    run = cases.submit(store)
    reader = open_reader(tmp_path)
    assert reader is not None
    assert not reader.changed()
    process = start('open_store(home).events.note(sys.argv[2], "test.noted", {})', tmp_path, run.id)
    ended(process)
    assert reader.changed()
    assert store.changed()
    assert not reader.changed()
    reader.close()
    store.close()


# Opening

OPENS = """
print("ready", flush=True)
sys.stdin.readline()
store = open_store(home)
cases.submit(store)
store.close()
reader = open_reader(home)
print(len(reader.runs.newest()))
reader.close()
"""


def test_many_may_open_a_new_home_at_once(tmp_path: Path, start: Start) -> None:
    for attempt in range(2):
        home = tmp_path / f"home {attempt}"
        processes = [start(OPENS, home) for _ in range(4)]
        for process in processes:
            assert line(process) == "ready"
        let_go(processes)
        for process in processes:
            ended(process)
        reader = open_reader(home)
        assert reader is not None
        assert len(reader.runs.newest()) == 4
        reader.close()
        check(home)


# Size

BIG = """
import time
from evalfleet.model import Policy, TaskSpec
specs = (
    TaskSpec(
        key=f"task_{number}", domain=f"domain_{number % 50}", command=("python3", "agent.py", "--seed", str(number)),
        env={"A": "1"}, payload={"prompt": "x" * 100},
    )
    for number in range(100_000)
)
store = open_store(home)
began, cpu = time.monotonic(), time.process_time()
run = store.runs.submit("big", Policy(), specs, folder="/", base_env={})
wall, cpu = time.monotonic() - began, time.process_time() - cpu
began = time.process_time()
for _ in range(10):
    assert len(store.tasks.candidates(run.id, 100)) == 100
candidates = (time.process_time() - began) / 10
began = time.process_time()
counts = store.tasks.counts(run.id)
counted = time.process_time() - began
# Not ru_maxrss, which begins with what the process that forked us had.
rss = int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) / 1024
store.close()
import json
print(json.dumps({"wall": wall, "cpu": cpu, "rss": rss, "candidates": candidates, "counts": counted}))
"""


def test_a_hundred_thousand_tasks(tmp_path: Path, start: Start) -> None:
    figures = json.loads(ended(start(BIG, tmp_path)))
    assert figures["cpu"] < 5, figures
    assert figures["rss"] < 150, figures
    assert figures["candidates"] < 0.05, figures
    assert figures["counts"] < 0.2, figures


def test_nothing_is_written_while_another_holds_the_lock(tmp_path: Path, start: Start) -> None:
    """Checkpoint and close wait as well: a process that holds write.lock is alone with the log."""
    holding = """
import fcntl
file = os.open(home / "write.lock", os.O_RDWR)
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""
    store, other = open_store(tmp_path), open_store(tmp_path)
    run = cases.submit(store)
    process = start(holding, tmp_path)
    assert line(process) == "held"
    closing = start(
        'store = open_reader(home); print(len(store.runs.newest()), flush=True); store.close(); print("closed", flush=True)',
        tmp_path,
    )
    assert ended(closing).split() == ["1", "closed"]  # a reader needs no lock
    log = (tmp_path / "evalfleet.db-wal").stat().st_size
    assert log > 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evalfleet.store.database.sqlite.BUSY_S", 0.05)
        for write in (lambda: store.events.note(run.id, "test.noted", {}), other.close):
            with pytest.raises(Exception, match=r"write\.lock"):
                write()
    assert (tmp_path / "evalfleet.db-wal").stat().st_size == log
    process.kill()
    process.wait()
    store.events.note(run.id, "test.noted", {})
    store.close()
    other.database.connection.close()  # pyright: ignore[reportAttributeAccessIssue] - its own close failed


def test_a_reader_neither_checkpoints_nor_removes_the_log(tmp_path: Path, start: Start) -> None:
    died = """
store = open_store(home)
cases.submit(store)
os.kill(os.getpid(), signal.SIGKILL)
"""
    process = start(died, tmp_path)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    database, log = tmp_path / "evalfleet.db", tmp_path / "evalfleet.db-wal"
    before = (database.read_bytes(), log.read_bytes())
    reader = open_reader(tmp_path)
    assert reader is not None
    assert len(reader.runs.newest()) == 1
    reader.close()
    assert (database.read_bytes(), log.read_bytes()) == before
    store: Store = open_store(tmp_path)
    assert len(store.runs.newest()) == 1
    store.close()
    assert not log.exists()


def test_a_store_that_nobody_closed_is_closed_under_the_lock(tmp_path: Path, start: Start) -> None:
    process = start("store = open_store(home); cases.submit(store)", tmp_path)
    ended(process)
    assert not (tmp_path / "evalfleet.db-wal").exists()
    assert os.path.getsize(tmp_path / "evalfleet.db") > 0
    store = open_store(tmp_path)
    assert store.runs.newest()[0].policy == Policy()
    store.close()


def test_a_second_look_at_the_home_keeps_our_locks(tmp_path: Path, start: Start) -> None:
    """Opening and closing the file ourselves would drop SQLite's locks on it: others would remove the log under us."""
    store = open_store(tmp_path)
    run = cases.submit(store)
    log = (tmp_path / "evalfleet.db-wal").stat().st_ino
    for open_again in (open_reader, open_store):
        again = open_again(tmp_path)
        assert again is not None
        again.close()
        ended(start("store = open_store(home); cases.submit(store); store.close()", tmp_path))
        assert (tmp_path / "evalfleet.db-wal").stat().st_ino == log
    store.events.note(run.id, "test.noted", {})
    assert len(store.runs.newest()) == 3
    store.close()
    check(tmp_path)
