"""Somebody swaps files and folders for links all the time, while they are collected, copied, served and removed.

Nothing outside may change by a byte, and nothing of it may be given out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.store import cases
from tests.support.web_client import serving

from evalfleet.files.base import read
from evalfleet.files.folder import FolderFiles
from evalfleet.hosts.attempt_files import files_inside, open_inside
from evalfleet.hosts.local.collect import collect_files
from evalfleet.layout import Home
from evalfleet.model import Policy, TaskSpec
from evalfleet.report.exports.source import copy_files
from evalfleet.report.trajectory import film_of
from evalfleet.runner.attempt.collect import AttemptFiles
from evalfleet.runner.attempt.spec import RequestRefused
from evalfleet.runner.redact import Redactor
from evalfleet.runner.safe_files import remove
from evalfleet.runner.spool.spool import fetch
from evalfleet.store.open import open_store

WITNESS = b"witness: correct-horse-battery\n"
FOR_S = 1.5

SWAP = """
import os, sys
folder, outside = sys.argv[1:]
FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# where, what, and which file or folder outside takes its place for a moment
SWAPS = [("artifacts", "a.txt", "a.txt"), ("artifacts", "deep", ""), (".", "artifacts", "")]
SWAPS += [(".", name, "a.txt") for name in ("events.jsonl", "stdout.log")]

def swap(here, name, target):
    os.symlink(os.path.join(outside, target), ".link", dir_fd=here)
    try:
        os.rename(name, ".kept", src_dir_fd=here, dst_dir_fd=here)
        os.rename(".link", name, src_dir_fd=here, dst_dir_fd=here)
        os.stat(name, dir_fd=here)
        os.unlink(name, dir_fd=here)
        os.rename(".kept", name, src_dir_fd=here, dst_dir_fd=here)
    except OSError:
        os.unlink(".link", dir_fd=here)

print("swapping", flush=True)
while True:
    for where, name, target in SWAPS:
        opened = []
        try:
            # by descriptors, so that it does not itself write through one of its links
            opened.append(os.open(folder, FLAGS))
            opened.append(os.open(where, FLAGS, dir_fd=opened[0]))
            swap(opened[1], name, target)
        except OSError:
            pass
        for fd in opened:
            os.close(fd)
"""


def state_of(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for one in sorted([folder, *folder.rglob("*")]):
        known = one.lstat()
        content = one.read_bytes() if one.is_file() else None
        found[str(one)] = (known.st_mode, known.st_ino, known.st_mtime_ns, known.st_size, content)
    return found


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    for name in ("a.txt", "deep/a.txt", "trajectory.jsonl", "result.json"):
        (folder / name).write_bytes(WITNESS)
    (folder / "deep").chmod(0o750)
    return folder


def fill(folder: Path) -> None:
    (folder / "artifacts" / "deep").mkdir(parents=True, exist_ok=True)
    for name in ("artifacts/a.txt", "artifacts/deep/a.txt", "events.jsonl", "stdout.log"):
        (folder / name).write_text("mine: correct-horse-battery\n")
    end = {"type": "ended", "artifacts": [{"path": "a.txt", "size": 1}, {"path": "deep/a.txt", "size": 1}]}
    (folder / "journal.jsonl").write_text(json.dumps(end) + "\n")


@contextmanager
def swapping(folder: Path, outside: Path) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", SWAP, str(folder), str(outside)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def given_out(folder: Path, copies: Path) -> bytes:
    """Everything that somebody could be shown of an attempt, once."""
    found: list[bytes] = []
    for name in ("artifacts/a.txt", "artifacts/deep/a.txt", "stdout.log", "events.jsonl"):
        found.append(read(FolderFiles(folder), name, 1000) or b"")
        with suppress(RequestRefused):
            found.append(fetch(str(folder), name, 0, 1000)[0])
    for path, _ in files_inside(folder, "artifacts", 100):
        descriptor = open_inside(folder, f"artifacts/{path}")
        if descriptor is not None:
            with open(descriptor, "rb") as file:
                found.append(file.read())
    film_of(FolderFiles(folder))
    for path in copy_files(FolderFiles(folder), copies):
        found.append((copies / path).read_bytes())
    return b"".join(found)


def test_nothing_outside_is_touched_or_given_out(tmp_path: Path, outside: Path) -> None:
    before = state_of(outside)
    folder = tmp_path / "attempt"
    redactor = Redactor({"KEY": "correct-horse-battery"})
    seen: list[bytes] = []
    rounds = 0
    deadline = time.monotonic() + 2 * FOR_S
    with swapping(folder, outside):
        while time.monotonic() < deadline:
            rounds += 1
            with suppress(OSError):
                fill_safely(folder)
            seen.append(given_out(folder, tmp_path / "copies" / str(rounds)))
            files = AttemptFiles(str(folder), redactor)
            files.verdict()
            files.collect()
            files.close()
            if rounds % 3 == 0:
                with suppress(OSError):
                    collect_files(
                        folder,
                        tmp_path / "home" / str(rounds),
                        {"KEY": "correct-horse-battery"},
                        listed_only=rounds % 2 == 0,
                    )
            if rounds % 5 == 0:
                remove(str(folder))
    assert state_of(outside) == before
    assert b"witness" not in b"".join(seen)
    assert b"mine" in b"".join(seen)
    for one in (tmp_path / "home").rglob("*"):
        assert one.is_symlink() or not one.is_file() or b"witness" not in one.read_bytes()
    assert rounds > 5


def fill_safely(folder: Path) -> None:
    """A new attempt's folder, made beside and put there whole: this test itself must not write through a link."""
    fresh = folder.with_name("fresh")
    remove(str(fresh))
    fill(fresh)
    remove(str(folder))
    fresh.rename(folder)


async def test_a_server_gives_out_nothing_else(home: Path, outside: Path) -> None:
    with closing(open_store(home)) as store:
        submitted = store.runs.submit(
            "r", Policy(workers=1), [TaskSpec(key="a", domain="d", command=("true",))], folder="/", base_env={}
        )
        run = store.runs.begin(store.runs.take(submitted.id, "me"))
        assert run is not None
        cases.finished(store, run, cases.with_verdict(cases.claimed(store, run, 1).attempt))
    folder = Home(home).attempt(run.id, "a", 1)
    fill(folder)
    before = state_of(outside)
    address = f"/api/v1/runs/{run.id}/tasks/1/attempts/1"
    answers: list[bytes] = []
    statuses: set[int] = set()
    async with serving(home) as client:
        deadline = time.monotonic() + FOR_S
        with swapping(folder, outside):
            while time.monotonic() < deadline:
                for path in ("files/a.txt", "files/deep/a.txt", "files/a.txt?download", "logs/stdout", ""):
                    reply = await client.ask(f"{address}/{path}".rstrip("/"), token=client.reader)
                    statuses.add(reply.status)
                    answers.append(reply.body)
    assert state_of(outside) == before
    assert b"witness" not in b"".join(answers)
    assert b"mine" in b"".join(answers)
    assert statuses <= {200, 404}
