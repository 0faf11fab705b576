"""Stored files on a host: kept as long as somebody may need them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from evalfleet.runner.attempt.spec import AttemptSpec
from evalfleet.runner.loop import Loop, Timer
from evalfleet.runner.spool import prune as pruning
from evalfleet.runner.spool.prune import EVERY_S, KEPT_S, Pruner, prune
from evalfleet.runner.spool.spool import Spool

NOW = 1_000_000_000.0


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    made = Spool(str(tmp_path))
    made.make()
    return made


def put(spool: Spool, content: bytes, age_s: float = 0.0) -> str:
    digest = hashlib.sha256(content).hexdigest()
    assert not spool.put(digest, 0, content, last=True, who=1)
    spool.wanted.clear()  # its controller has gone
    os.utime(Path(spool.files, digest), (NOW - age_s, NOW - age_s))
    return digest


def names(spool: Spool) -> set[str]:
    return set(os.listdir(spool.files))


def attempt(spool: Spool, name: str, journal: bytes) -> None:
    folder = Path(spool.attempt(name))
    folder.mkdir()
    (folder / "journal.jsonl").write_bytes(journal)


def test_what_is_old_goes_and_what_is_young_stays(spool: Spool) -> None:
    old, young = put(spool, b"old", KEPT_S + 1), put(spool, b"young", KEPT_S - 1)
    assert prune(spool, NOW) == (1, 3)
    assert names(spool) == {young}
    assert prune(spool, NOW) == (0, 0)
    assert prune(spool, NOW + 2) == (1, 5)
    assert old not in names(spool)


def test_what_an_attempt_was_launched_with_stays(spool: Spool) -> None:
    used, unused = put(spool, b"used", 2 * KEPT_S), put(spool, b"unused", 2 * KEPT_S)
    attempt(spool, "a.1.1", json.dumps({"event": 0, "spec": {"files": {"x/y": used}}}).encode() + b"\n{torn")
    attempt(spool, "a.2.1", b"{torn")
    attempt(spool, "a.3.1", b'{"spec": {"files": null}}\n')
    Path(spool.attempt("a.4.1")).mkdir()
    assert prune(spool, NOW) == (1, 6)
    assert names(spool) == {used}
    assert unused not in names(spool)


def test_to_ask_for_a_file_or_to_use_it_keeps_it(spool: Spool, tmp_path: Path) -> None:
    asked, staged = put(spool, b"asked", 2 * KEPT_S), put(spool, b"staged", 2 * KEPT_S)
    assert spool.put(asked, 0, b"", last=False, who=2), "it is there"
    folder = tmp_path / "work-of"
    folder.mkdir()
    spool.stage(str(folder), AttemptSpec({"command": ["true"], "timeout_s": 1, "files": {"f": staged}}))
    spool.wanted.clear()
    assert prune(spool, NOW) == (0, 0)
    assert names(spool) == {asked, staged}


def test_a_connected_controller_counts_on_what_it_was_told_of(spool: Spool) -> None:
    """It asks once per connection, which may last for weeks."""
    digest = put(spool, b"known", 2 * KEPT_S)
    spool.put(digest, 0, b"", last=False, who=2)
    os.utime(Path(spool.files, digest), (NOW - 2 * KEPT_S, NOW - 2 * KEPT_S))
    assert prune(spool, NOW) == (0, 0)
    spool.wanted.clear()
    assert prune(spool, NOW) == (1, 5)


def test_a_put_on_its_way_is_not_disturbed(spool: Spool) -> None:
    content = b"one" + b"two"
    digest = hashlib.sha256(content).hexdigest()
    assert not spool.put(digest, 0, b"one", last=False, who=7)
    (partial,) = names(spool)
    os.utime(Path(spool.files, partial), (NOW - KEPT_S + 1, NOW - KEPT_S + 1))
    assert prune(spool, NOW) == (0, 0)
    assert not spool.put(digest, 3, b"two", last=True, who=7)
    assert Path(spool.files, digest).read_bytes() == content


def test_it_is_done_at_once_and_every_day(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clockwork(Loop):
        def __init__(self) -> None:
            super().__init__(lambda _error: None)
            self.planned: list[tuple[float, object]] = []

        def at(self, when: float, call: object) -> Timer:
            self.planned.append((when, call))
            return Timer(lambda: None)

    monkeypatch.setattr(pruning.time, "monotonic", lambda: 50.0)
    now = NOW
    first, second = put(spool, b"first", KEPT_S + 1), put(spool, b"second", KEPT_S - EVERY_S / 2)
    loop = Clockwork()
    Pruner(spool, loop, lambda: now)
    assert names(spool) == {second}
    assert first not in names(spool)
    ((when, call),) = loop.planned
    assert when == 50.0 + EVERY_S
    now += EVERY_S
    assert callable(call)
    call()
    assert names(spool) == set()
    assert len(loop.planned) == 2, "and again tomorrow"
    os.rmdir(spool.files)
    loop.planned[-1][1]()  # pyright: ignore[reportCallIssue]
    assert "cannot prune" in Path(spool.path("runner.log")).read_text()
    loop.close()
