"""What every benchmark must do. A benchmark's tests subclass `BenchmarkContract` and give the fixture `benchmark`::

    class TestMine(BenchmarkContract):
        sample = "click-button"

        @pytest.fixture
        def benchmark(self) -> Benchmark:
            return Mine(Settings(home=Path()))

Tests of episodes are skipped if the benchmark's requirements are missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evalfleet.agents import registry as agents
from evalfleet.agents.base import Observation, TaskPrompt
from evalfleet.benchmarks.attempt import Recorder, play
from evalfleet.benchmarks.base import Benchmark, Selection
from evalfleet.errors import InputError
from evalfleet.model import Verdict
from evalfleet.taskfile import Submission, from_mappings

_PLANTED = "planted-secret-value"


class BenchmarkContract:
    """The promises of `benchmarks.base`, one test each."""

    agent: ClassVar[str] = "random"  # acts in the tests of selection and of episodes
    sample: ClassVar[str | None] = None  # the task that is opened; else the first
    has_episodes: ClassVar[bool] = True  # False: its attempts are run by its own program
    more: ClassVar[Mapping[str, Any]] = {}  # what a selection needs besides

    def selection(self, **wanted: Any) -> Selection:
        given: dict[str, Any] = {"agent": self.agent, **self.more, **wanted}
        return Selection(**given)

    def submission(self, benchmark: Benchmark, **wanted: Any) -> Submission:
        chosen = self.selection(**wanted)
        tasks, run = benchmark.tasks(chosen), benchmark.settings(chosen)
        return from_mappings(tasks, run, folder=os.sep, name=benchmark.name, shown=benchmark.name)

    @pytest.fixture
    def catalogue_there(self, benchmark: Benchmark) -> None:
        if not benchmark.catalogue():
            pytest.skip("; ".join(need.found for need in benchmark.requirements() if not need.present))

    @pytest.fixture
    def one(self, benchmark: Benchmark, catalogue_there: None) -> Selection:
        """One episode of the sample."""
        return self.selection(task=(self.sample or benchmark.catalogue()[0].name,), seed=7)

    # Where a run is submitted

    def test_it_has_a_name_and_a_title(self, benchmark: Benchmark) -> None:
        assert benchmark.name.replace("-", "").replace("_", "").isalnum(), "it is typed after `run`"
        assert benchmark.title

    def test_what_is_missing_comes_with_its_remedy(self, benchmark: Benchmark) -> None:
        for need in benchmark.requirements():
            assert need.what
            assert need.found, "where it is, or why it is not there"
            assert need.install, f"the command that brings {need.what}"

    @pytest.mark.usefixtures("catalogue_there")
    def test_names_are_unique_and_stable(self, benchmark: Benchmark) -> None:
        first, again = benchmark.catalogue(), benchmark.catalogue()
        assert list(first) == list(again)
        assert len({task.name for task in first}) == len(first)
        assert all(task.name and task.domain for task in first)

    @pytest.mark.usefixtures("catalogue_there")
    def test_the_same_selection_is_the_same_tasks(self, benchmark: Benchmark) -> None:
        count = min(3, len(benchmark.catalogue()))
        wanted = self.selection(tasks=count, seed=7)
        tasks = benchmark.tasks(wanted)
        assert [dict(task) for task in tasks] == [dict(task) for task in benchmark.tasks(wanted)]
        assert len(tasks) == count

    @pytest.mark.usefixtures("catalogue_there")
    def test_its_tasks_and_settings_are_good_input(self, benchmark: Benchmark) -> None:
        submission = self.submission(benchmark)
        assert len(submission.tasks) == len(benchmark.catalogue())
        assert submission.policy.result_required, "without a result there is no verdict"
        for task in submission.tasks:
            assert json.loads(json.dumps(task.payload, allow_nan=False)) == task.payload

    def test_each_repeat_is_a_task_of_its_own(self, benchmark: Benchmark, one: Selection) -> None:
        assert len(self.submission(benchmark, task=one.task, repeat=3).tasks) == 3

    def test_secrets_are_names_and_nothing_else(
        self, benchmark: Benchmark, one: Selection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        secrets = self.submission(benchmark, task=one.task).secrets
        for name in secrets:
            monkeypatch.setenv(name, _PLANTED)
        tasks, run = benchmark.tasks(one), benchmark.settings(one)
        assert _PLANTED not in json.dumps([[dict(task) for task in tasks], dict(run)])

    @pytest.mark.usefixtures("catalogue_there")
    @pytest.mark.parametrize("wrong", [{"task": ("no such task",)}, {"domain": "no such domain"}], ids=str)
    def test_what_is_not_there_is_refused(self, benchmark: Benchmark, wrong: dict[str, Any]) -> None:
        with pytest.raises(InputError) as caught:
            benchmark.tasks(self.selection(**wrong))
        assert "no such" in str(caught.value), "the message names what was asked for"

    # On the worker

    @pytest.fixture
    def payload(self, benchmark: Benchmark, one: Selection) -> Mapping[str, Any]:
        if not self.has_episodes:
            pytest.skip("its attempts are run by its own program")
        missing = [need.found for need in benchmark.requirements() if not need.present]
        if missing:
            pytest.skip("; ".join(missing))
        return json.loads(json.dumps(benchmark.tasks(one)[0]["payload"]))

    def looks_the_same(self, one: Observation, other: Observation) -> bool:
        """Whether two first observations show the same episode. Pixels may differ where a cursor blinks."""
        return (one.goal, one.width, one.height, one.elements) == (
            other.goal,
            other.width,
            other.height,
            other.elements,
        )

    def test_the_same_seed_is_the_same_episode(
        self, benchmark: Benchmark, payload: Mapping[str, Any], tmp_path: Path
    ) -> None:
        seen: list[Observation] = []
        for name in ("one", "other"):
            folder = tmp_path / name
            folder.mkdir()
            with benchmark.episode(payload, folder) as episode:
                seen.append(episode.observe(1))
                assert episode.goal == seen[-1].goal
        assert self.looks_the_same(*seen)
        assert seen[0].screenshot.startswith(b"\x89PNG\r\n")

    def test_an_episode_gives_a_verdict_and_leaves_nothing(
        self, benchmark: Benchmark, payload: Mapping[str, Any], tmp_path: Path
    ) -> None:
        world, kept = tmp_path / "world", tmp_path / "kept"
        world.mkdir()
        kept.mkdir()
        before = _descendants()
        verdict = self._played(benchmark, payload, world, kept)
        assert 0.0 <= verdict.score <= 1.0
        json.dumps(verdict.metrics, allow_nan=False)
        assert _descendants() - before == set(), "a process of the episode outlives it"
        assert list(world.iterdir()) == [], "a file of the episode outlives it"

    def test_an_episode_that_breaks_leaves_nothing(
        self, benchmark: Benchmark, payload: Mapping[str, Any], tmp_path: Path
    ) -> None:
        before = _descendants()
        with pytest.raises(ZeroDivisionError), benchmark.episode(payload, tmp_path):
            raise ZeroDivisionError
        assert _descendants() - before == set()

    def _played(self, benchmark: Benchmark, payload: Mapping[str, Any], world: Path, kept: Path) -> Verdict:
        with benchmark.episode(payload, world) as episode:
            first = episode.verdict()
            assert first is None or 0.0 <= first.score <= 1.0
            prompt = TaskPrompt(benchmark=benchmark.name, task=payload["task"], goal=episode.goal, seed=payload["seed"])
            agent = agents.load(self.agent)(prompt)
            verdict, _ = play(episode, agent, Recorder(kept / "events.jsonl", kept), max_steps=2)
            return verdict


def _descendants() -> set[int]:
    """Return this process's children and theirs that live; a zombie counts as dead."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    found: set[int] = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}
