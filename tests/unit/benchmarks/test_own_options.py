"""Options that only one benchmark knows, and the words that they had before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from evalfleet import config
from evalfleet.benchmarks import registry, submission
from evalfleet.benchmarks.base import BenchmarkOptions, Selection
from evalfleet.benchmarks.miniwob.benchmark import Miniwob
from evalfleet.errors import InputError
from evalfleet.operations.runs.submit import benchmark_submission


class Picky(Miniwob):
    """Takes the options that waa takes."""

    own_options: Mapping[str, str] = {"list": "which tasks", "checkout": "where they are"}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Selection]:
    found: list[Selection] = []

    def keep(benchmark: Any, selection: Selection, *args: Any, **more: Any) -> Sequence[Any]:
        found.append(selection)
        return ()

    monkeypatch.setattr(submission, "submission", keep)
    return found


def submit(tmp_path: Path, **options: Any) -> list[str]:
    said: list[str] = []
    chosen = BenchmarkOptions(agent="random", **options)
    settings = config.load(str(tmp_path))
    benchmark_submission("miniwob", chosen, settings, folder=str(tmp_path), remote=False, say=said.append)
    return said


def test_a_benchmark_gets_its_own_options(tmp_path: Path, seen: list[Selection], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "find", lambda name, settings: Picky(config.load(str(tmp_path))))
    assert submit(tmp_path, options={"list": "small.json"}) == []
    assert seen[-1].options == {"list": "small.json"}
    with pytest.raises(InputError, match="option size: is not known; miniwob takes: list, checkout"):
        submit(tmp_path, options={"size": "3"})


def test_the_former_words_are_read_with_a_warning(
    tmp_path: Path, seen: list[Selection], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(registry, "find", lambda name, settings: Picky(config.load(str(tmp_path))))
    said = submit(tmp_path, json_name="a.json", waa_root="/x", options={"list": "b.json"})
    assert seen[-1].options == {"list": "b.json", "checkout": "/x"}
    assert [line.partition(" goes")[0] for line in said] == ["--json-name", "--waa-root"]
    assert "write --option checkout=/x" in said[1]


def test_a_benchmark_without_options_refuses_all(tmp_path: Path):
    with pytest.raises(InputError, match="option list: is not known; miniwob takes no options of its own"):
        submit(tmp_path, options={"list": "x"})
