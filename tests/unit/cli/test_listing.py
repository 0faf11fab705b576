"""Files that name tasks, and options that go before what a run says."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from evalfleet.benchmarks.base import TaskInfo
from evalfleet.cli.runs.shared.run_overrides import Overrides
from evalfleet.cli.runs.shared.tasks_file import keys_in
from evalfleet.errors import InputError
from evalfleet.taskfile import from_mappings


class Shop:
    """As much of a benchmark as is asked here."""

    name = "shop"

    def catalogue(self) -> list[TaskInfo]:
        names = ("click-a", "click-b", "vlc/123-WOS", "456-WOS")
        return [TaskInfo(name=name, domain="d", oracle=False) for name in names]


SHOP: Any = Shop()


def keys(folder: Path, content: str | bytes) -> tuple[str, ...]:
    path = folder / "tasks"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return keys_in(str(path), SHOP)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("# mine\nclick-b\n\n  click-a_7  # twice\r\nclick-b\n", ("click-b", "click-a_7")),
        ("\ufeffclick-a", ("click-a",)),
        ('["click-a", "click-b_1"]', ("click-a", "click-b_1")),
        ('{"vlc": ["123-WOS"], "chrome": ["456-WOS"], "empty": []}', ("vlc/123-WOS", "456-WOS")),
    ],
)
def test_what_a_file_may_hold(tmp_path: Path, content: str, found: tuple[str, ...]):
    assert keys(tmp_path, content) == found


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("click-a\nclik-b\n", ', line 2: shop has no task "clik-b"; did you mean "click-b"?'),
        ("qqqqqqq", ', line 1: shop has no task "qqqqqqq"; `evalfleet benchmarks shop` lists the tasks.'),
        ('{"vlc": ["124-WOS"]}', ', "vlc": shop has no task "124-WOS"; did you mean'),
        ("", ": names no task; write one name per line"),
        ("# nothing\n", ": names no task"),
        ("{}", ": names no task"),
        ('{"vlc": [', ", line 1: not valid JSON; write one name per line"),
        ('{"vlc": "123"}', ', "vlc": expected a list of names in quotes'),
        ("[1]", ": expected a list of names in quotes"),
        ("[" * 100_000, "not valid JSON"),
        (b"click-\xff", ": not UTF-8 (byte at offset 6)"),
        (b"\x1b[31m", 'no task "\\u001b[31m"'),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, content: str | bytes, said: str):
    with pytest.raises(InputError) as caught:
        keys(tmp_path, content)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"--tasks-file {tmp_path}/tasks")
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder(tmp_path: Path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        keys_in(str(tmp_path / "none"), SHOP)
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        keys_in(str(tmp_path), SHOP)


def test_standard_input(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(["click-a"]).encode())))
    assert keys_in("-", SHOP) == ("click-a",)


def test_options_go_before_what_the_run_says():
    given = from_mappings([{"key": "a", "command": ["true"]}], {"timeout": "5m", "attempts": 2}, folder="/", name="n")
    policy = Overrides(timeout_s=9.0, accept=0.0).applied(given).policy
    assert (policy.timeout_s, policy.attempts, policy.accept) == (9.0, 2, 0.0)
    assert Overrides().applied(given) is given
    assert Overrides(attempts=7).applied(given).policy.attempts == 7
