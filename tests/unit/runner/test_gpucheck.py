"""When an attempt may start on a GPU, and when that is clean again."""

from __future__ import annotations

from typing import Any

import pytest

from evalfleet.model import JsonObject
from evalfleet.runner.gpu import rules as check

NOBODY: frozenset[int] = frozenset()


def process(pid: int, memory_mb: int | None = 1000, attempt: str | None = None, **fields: Any) -> JsonObject:
    plain = {"pid": pid, "memory_mb": memory_mb, "name": "python", "kind": "compute", "attempt": attempt}
    return {**plain, "ours": attempt is not None, "hidden": False, **fields}


def card(**fields: Any) -> JsonObject:
    plain: JsonObject = {
        "index": 0,
        "uuid": "GPU-a",
        "memory_mb": 80000,
        "used_mb": 0,
        "reserved_mb": 600,
        "mig": False,
    }
    return {**plain, "processes": [], **fields}


@pytest.mark.parametrize(
    ("fields", "leases", "left"),
    [
        ({"used_mb": None}, {}, None),
        ({"used_mb": 256}, {}, 0),  # an idle card
        ({"used_mb": 300}, {}, 300),
        ({"used_mb": 1000, "reserved_mb": None}, {}, 0),  # the driver's own memory is counted in
        ({"used_mb": 5000, "processes": None}, {}, 5000),
        ({"used_mb": 5000, "processes": [process(1, 4900)]}, {}, 0),
        ({"used_mb": 5000, "processes": [process(1, None)]}, {}, None),
        ({"used_mb": 9000, "processes": [process(1, 500, kind="graphics")]}, {}, 8500),
        ({"used_mb": 9000}, {"a": 9000}, 0),  # in a container nobody's processes are told
        ({"used_mb": 9000}, {"a": 3000, "b": 3000}, 3000),
        ({"used_mb": 9000, "processes": [process(1, 9000, "a")]}, {"a": 3000}, 0),  # more than it leased, but known
        ({"used_mb": 9000, "processes": [process(1, 4000), process(2, 1000, "a")]}, {"a": 3000}, 2000),
        ({"used_mb": 70000}, {"a": None}, 0),
    ],
)
def test_memory_that_nobody_explains(fields: JsonObject, leases: dict[str, int | None], left: int | None):
    assert check.unexplained_mb(card(**fields), leases) == left


@pytest.mark.parametrize(
    ("fields", "memory_mb", "others", "words"),
    [
        ({}, None, {}, None),
        ({}, 80000, {}, None),
        ({}, 80001, {}, "has 80000 MB left of 80000, but 80001 MB are requested"),
        ({}, 40000, {"a": 40000}, None),
        ({}, 40001, {"a": 40000}, "has 40000 MB left"),
        ({"used_mb": 60000, "processes": [process(1, 60000, "a")]}, 40000, {"a": 40000}, "has 20000 MB left"),
        ({"processes": [process(1, 9000, kind="graphics")], "used_mb": 9000}, 75000, {}, "has 71000 MB left"),
        ({"memory_mb": None, "used_mb": None}, 10**9, {}, None),
        ({"processes": [process(1, None)]}, None, {}, "is taken by process 1 (python); wait"),
        ({"processes": [process(1, kind="graphics")], "used_mb": 1000}, None, {}, None),  # a screen keeps nobody away
        ({"processes": [process(1, attempt="x")]}, None, {}, "process 1 (python, 1000 MB) of an attempt that did not"),
        ({"processes": [process(1, ours=True)]}, None, {}, "of an attempt that did not"),
        ({"processes": [process(1, ours=True)]}, 100, {"a": 100}, None),  # it hid, but can be that one's
        ({"used_mb": 900}, None, {}, "has 900 MB in use that no process here and no lease explains"),
    ],
)
def test_what_keeps_an_attempt_away(
    fields: JsonObject, memory_mb: int | None, others: dict[str, int | None], words: str | None
):
    text = check.refusal(card(**fields), memory_mb, others)
    assert text is None if words is None else text is not None and text.startswith("GPU 0 (GPU-a)") and words in text


def test_a_number_from_outside_of_the_container_that_came_with_our_attempt_is_not_foreign():
    row = card(processes=[process(77)], used_mb=1000)
    assert [one["pid"] for one in check.foreign(row)] == [77]
    assert check.foreign(row, frozenset({77})) == []
    assert check.refusal(row, 1000, {"a": 1000}, frozenset({77})) is None


@pytest.mark.parametrize(
    ("fields", "alone", "words"),
    [
        ({"used_mb": 664}, True, None),
        ({"used_mb": 665}, True, "665 MB of its memory are in use, but only 600 were before"),
        ({"used_mb": 9000}, False, None),
        ({"used_mb": None}, True, None),
        ({"used_mb": 600, "processes": [process(1, attempt="a")]}, False, "process 1 (python, 1000 MB) is still on it"),
        ({"used_mb": 9600, "processes": [process(1, 9000)]}, True, None),  # a stranger came meanwhile
        ({"used_mb": 9600, "processes": [process(1, None)]}, True, None),
        ({"used_mb": 9600, "processes": [process(1, 8000)]}, True, "1600 MB of its memory"),
    ],
)
def test_what_an_attempt_left_behind(fields: JsonObject, alone: bool, words: str | None):
    text = check.left_behind(card(**fields), "a", 600, alone, NOBODY)
    assert text is None if words is None else words in (text or "")
    assert check.left_behind(card(used_mb=9000), "a", None, True, NOBODY) is None  # nothing is known to compare with


def test_a_part_that_mig_made_has_no_place_in_the_order():
    rows = [card(index=1), card(index=3000, uuid="MIG-x", mig=True)]
    assert check.variables(rows[:1], "index")["CUDA_VISIBLE_DEVICES"] == "1"
    assert check.variables(rows, "index")["CUDA_VISIBLE_DEVICES"] == "GPU-a,MIG-x"


def test_memory_shows_by_half_of_the_lease_or_when_it_grows_no_more():
    showing = check.StartupMemory(8000)
    assert not showing.feed(None, 0.0)
    assert not showing.feed(63, 1.0)
    assert not showing.feed(500, 2.0)
    assert not showing.feed(1500, 4.9)
    assert not showing.feed(1550, 7.8)  # a little more is the same
    assert showing.feed(1550, 7.9)
    assert check.StartupMemory(8000).feed(4000, 0.0)
    assert not check.StartupMemory(None).feed(70000, 5.0)
    row = card(used_mb=5000, processes=[process(1, 700, "a"), process(2, 300, "a"), process(3, 9, "b")])
    assert check.used_by(row, "a", 100) == 1000
    assert check.used_by(row, "z", 100) == 4900  # not told whose it is: what the card's use grew by
    assert check.used_by(card(used_mb=None), "z", 100) is None
