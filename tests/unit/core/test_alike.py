"""Failures that share one message."""

from __future__ import annotations

import pytest

from evalfleet.core.failures.groups import Line, groups, message_of, most_of


def line(key: str, evidence: str, attempts: int = 1, ended_at: float = 0.0, kind: str = "bad_exit") -> Line:
    return Line(kind=kind, blame="task", evidence=evidence, key=key, attempts=attempts, ended_at=ended_at)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("exit status 1: search-01: HTTP Error 500", "exit status 1: search-02: HTTP Error 500"),
        ("no answer after 3.2 s at 12:01:07", "no answer after 11.9 s at 23:59:01"),
        ("Error: {'request_id': 'req_011CSHoEeqs5C35K2UUqR7Fy'}", "Error: {'request_id': 'req_09ZZkPq1mm7sd81Xa0Ty'}"),
        ("No such file: '/home/ann/a.txt'", "No such file: '/srv/work/b.txt'"),
        ("run 550e8400-e29b-41d4-a716-446655440000 died", "run 9a3c0ff1-aaaa-4bcd-9eef-0123456789ab died"),
        ("object at 0x7f31e7923d90", "object at 0x55aa"),
    ],
)
def test_what_differs_between_tasks_is_taken_out(one: str, other: str):
    assert message_of(one, "search-01") == message_of(other, "search-02")


def test_other_words_are_another_message():
    assert message_of("no module torch", "a") != message_of("no module numpy", "a")
    assert message_of("ConnectionError: reset", "a") != message_of("ConnectionError: refused", "a")


def test_groups_count_attempts_and_tasks_once():
    found = groups(
        [
            line("a", "a: HTTP Error 500", 2, ended_at=3.0),
            line("a", "a: HTTP Error 503", 1, ended_at=9.0),
            line("b", "b: HTTP Error 500", 1, ended_at=5.0),
            line("b", "wrong", 1),
            line("c", "c: HTTP Error 500", kind="timeout"),
        ]
    )
    assert [(group.kind, group.attempts, group.tasks) for group in found] == [
        ("bad_exit", 4, 2), ("bad_exit", 1, 1), ("timeout", 1, 1)
    ]  # fmt: skip
    assert (found[0].key, found[0].evidence, found[0].message) == ("a", "a: HTTP Error 503", "<task>: HTTP Error #")


def test_one_message_stands_out_where_it_is_most_of_several_tasks_and_says_something():
    many = [line(f"t{number}", f"t{number}: HTTP Error 500") for number in range(3)]
    assert most_of(groups([*many, line("x", "else"), line("y", "other")])) is not None
    assert most_of(groups([*many, line("x", "else", 3)])) is None  # half is not most
    assert most_of(groups(many[:2])) is None
    assert most_of(groups([line(f"t{number}", "exit status 1") for number in range(9)])) is None
    assert most_of([]) is None
