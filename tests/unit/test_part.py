"""A part of a task file: the words of benchmarks, for one's own tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.errors import InputError, TaskFileError
from evalfleet.model import TaskSpec
from evalfleet.taskfile import Submission, from_mappings, load
from evalfleet.taskfile.part import Part, part_of


def submission(*keys: str, **task: Any) -> Submission:
    rows = [{"key": key, "command": ["true"], **task} for key in keys]
    return from_mappings(rows, folder="/", name="x")


def keys(found: Submission) -> list[str]:
    names = [spec.key for spec in found.tasks]
    assert len(found.tasks) == len(names)
    assert [spec.key for spec in found.tasks] == names, "it can be read again"
    return names


FILE = submission("files_1", "files_2", "files_3", "mail_1", "mail_2", "web_1")


def test_nothing_chosen_is_everything_and_the_same_object():
    assert part_of(FILE, Part()) is FILE


@pytest.mark.parametrize(
    ("part", "found"),
    [
        (Part(task=("mail_2", "files_1")), ["files_1", "mail_2"]),
        (Part(task=("files_*", "mail_1")), ["files_1", "files_2", "files_3", "mail_1"]),
        (Part(task=("*_1",)), ["files_1", "mail_1", "web_1"]),
        (Part(domain="mail"), ["mail_1", "mail_2"]),
        (Part(domain="*[ei]*", task=("*_2",)), ["files_2", "mail_2"]),
        (Part(tasks=3), ["files_1", "files_3", "mail_2"]),
        (Part(tasks=1, domain="mail"), ["mail_1"]),
        (Part(task=("web_1",), repeat=3, seed=7), ["web_1_7", "web_1_8", "web_1_9"]),
    ],
)
def test_the_tasks_that_fit_in_the_order_of_the_file(part: Part, found: list[str]):
    assert keys(part_of(FILE, part)) == found


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (Part(task=("file_1",)), r'there is no task "file_1"; did you mean "files_1"\?'),
        (Part(task=("x*",)), 'no key of a task matches "x*"'),
        (Part(domain="mial"), r'no domain matches "mial"; did you mean "mail"\?'),
        (Part(domain="web", task=("mail_1",)), 'none of the named tasks is in a domain that matches "web"'),
        (Part(tasks=7), "only 6 tasks fit"),
        (Part(env={"EVALFLEET_X": "1"}), "reserved"),
        (Part(env={"A": "1"}, secrets=("A",)), "also in env"),
        (Part(secrets=("sk-abc",)), "not the name of an environment variable"),
    ],
)
def test_what_cannot_be_is_refused_with_words(part: Part, said: str):
    with pytest.raises(InputError, match=said.replace("*", r"\*")):
        part_of(FILE, part)


def test_repetitions_know_their_task_and_seed_and_keep_their_domain():
    found = list(part_of(FILE, Part(task=("mail_1",), repeat=2)).tasks)
    assert [(one.key, one.repeats, one.seed, one.domain) for one in found] == [
        ("mail_1_0", "mail_1", 0, "mail"),
        ("mail_1_1", "mail_1", 1, "mail"),
    ]
    (alone,) = part_of(FILE, Part(task=("mail_1",), seed=5)).tasks
    assert (alone.key, alone.repeats, alone.seed) == ("mail_1", None, 5)


def test_variables_go_before_the_files_and_secrets_are_asked_for():
    own = submission("a", env={"MODEL": "old", "B": "2"}, secrets=["KEY"])
    found = part_of(own, Part(env={"MODEL": "new"}, secrets=("TOKEN",)))
    (spec,) = found.tasks
    assert spec.env == {"MODEL": "new", "B": "2"}
    assert spec.secrets == ("KEY", "TOKEN")
    assert found.secrets == ("KEY", "TOKEN")
    with pytest.raises(InputError, match='"KEY" is a secret of task "a", and would be stored'):
        part_of(own, Part(env={"KEY": "value"}))


def test_secrets_of_tasks_that_are_left_out_are_not_needed():
    rows: list[dict[str, Any]] = [
        {"key": "a", "command": ["true"]},
        {"key": "b", "command": ["true"], "secrets": ["KEY"]},
    ]
    assert part_of(from_mappings(rows, folder="/", name="x"), Part(task=("a",))).secrets == ()


def test_a_file_that_changes_meanwhile_is_noticed_in_a_part_of_it_too(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"key": "a", "command": ["true"]}\n{"key": "b", "command": ["true"]}\n')
    found = part_of(load(path), Part(task=("a",)))
    with path.open("a") as file:
        file.write('{"key": "c", "command": ["true"]}\n')
    with pytest.raises(TaskFileError, match="changed while it was read"):
        list(found.tasks)


@given(
    st.lists(st.from_regex(r"[ab_0-2]{1,4}", fullmatch=True), min_size=1, max_size=12, unique=True), st.integers(2, 4)
)
def test_keys_of_repetitions_never_meet(names: list[str], repeat: int):
    found: list[TaskSpec] = list(part_of(submission(*names), Part(repeat=repeat)).tasks)
    assert len({one.key for one in found}) == len(names) * repeat
