"""A study in a real store, played without processes: what it proposes, what is said of it, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from evalfleet.core.gpus.cards import Card
from evalfleet.engine.trials import TrialFeed, submit_study
from evalfleet.hosts.base import HostInfo
from evalfleet.model import Blame, Device, Failure, Kind, Outcome, Requests, Run, TaskState, Verdict
from evalfleet.report.html.page import page
from evalfleet.report.live import live_state
from evalfleet.report.studies.study import as_flags, study_facts, study_rows
from evalfleet.report.terminal.lines import cells
from evalfleet.report.terminal.study import study_screen
from evalfleet.store.attempts.records import Claim, Claimed, Finish, Progress
from evalfleet.store.open import open_store
from evalfleet.store.store import Store
from evalfleet.tune.study import study_of

HOST = HostInfo(
    name="local",
    memory_mb=None,
    gpus=2,
    price_usd_per_hour=0.0,
    devices=tuple(Card(host="local", index=index, uuid=f"GPU-{index}", memory_mb=80_000) for index in range(2)),
)


class Play:
    """One study and its engine's part."""

    def __init__(self, home: Path, **fields: Any) -> None:
        self.time = 1_760_000_000.0
        self.store: Store = open_store(home, lambda: self.time)
        table = {
            "study": {"name": "s", "objective": {"maximize": "speed"}, "constraints": ["ms <= 90"], **fields},
            "parameters": {
                "tp": [1, 2],
                "batch": {"type": "integer", "low": 1, "high": 500, "log": True},
                "draft": {"type": "continuous", "low": 0.1, "high": 0.9, "when": "tp == 2"},
                "forbid": ["tp == 2 and batch > 400"],
            },
            "trial": {"command": ["true"], "gpus": 1, "gpu_memory_mb": 8000, "env_style": "uuid", "memory_mb": 5},
        }
        submitted = submit_study(self.store, study_of(table), folder="/x", budget_usd=None, gpus=(0, 1))
        self.run: Run = self.store.runs.begin(self.store.runs.take(submitted.id, "me")) or submitted
        self.studying = TrialFeed(self.store, self.run)

    def claimed(self, number: int) -> Claimed:
        devices = (Device(index=1, uuid="GPU-1"),)
        found = self.store.attempts.claim(
            self.run,
            Claim(
                task_number=number,
                worker="local-1",
                host="local",
                token="t",
                lease_s=60,
                requests=Requests(gpus=1),
                devices=devices,
            ),
        )
        assert found is not None
        return found

    def end(self, number: int, speed: float | None, evidence: str = "no") -> None:
        """From its claim to its end in ten seconds, ready after four."""
        claimed = self.claimed(number)
        started, self.time = self.time, self.time + 10
        facts: dict[str, Any] = {"outcome": Outcome.OK}
        if speed is not None:
            facts["verdict"] = Verdict(score=1.0, success=True, metrics={"speed": speed, "ms": speed / 10})
        else:
            failure = Failure(
                kind=Kind.OUT_OF_MEMORY, blame=Blame.TASK, retryable=False, consumes=True, evidence=evidence
            )
            facts = {"outcome": Outcome.TASK_ERROR, "failure": failure, "next_state": TaskState.FAILED, "reason": "no"}
        finish = Finish(
            attempt=claimed.attempt,
            started_at=started,
            ready_at=started + 4,
            ended_at=self.time,
            duration_s=10.0,
            cost_usd=0.0,
            reported_usd=0.0,
            last_event=9,
            end={},
            judge_version=1,
            **facts,
        )
        done = self.store.attempts.finish(self.run, finish)
        assert done is not None
        self.store.attempts.collect(self.run, done.attempt, [])

    def screen(self, width: int, height: int) -> list[str]:
        facts, live = study_facts(self.store, self.run), live_state(self.store, self.run)
        lines = study_screen(facts, live, width, height, notice="a notice", hint="Ctrl-C")
        assert len(lines) <= height
        assert all(cells(line) <= width for line in lines)
        return ["".join(span.text for span in line) for line in lines]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[..., Play]]:
    made: list[Play] = []

    def make(**fields: Any) -> Play:
        made.append(Play(tmp_path / str(len(made)), **fields))
        return made[-1]

    yield make
    for one in made:
        one.store.close()


def test_facts_say_all_that_is_known(play: Callable[..., Play]):
    one = play(trials=12, max_parallel_experiments=12, baseline={"tp": 1, "batch": 8})
    one.studying.propose(13, [HOST])
    for number in range(1, 13):
        one.end(number, None if number == 3 else 100.0 * number)
    one.claimed(13)
    facts = study_facts(one.store, one.run)
    assert [(one.name, one.type, one.values, one.low, one.high, one.log, one.when) for one in facts.parameters] == [
        ("tp", "choice", [1, 2], None, None, False, None),
        ("batch", "integer", None, 1, 500, True, None),
        ("draft", "continuous", None, 0.1, 0.9, False, "tp == 2"),
    ]
    assert facts.best is not None
    assert to_builtins(facts.counts) == {"open": 1, "measured": 11, "failed": 1, "void": 0}
    assert facts.best.trial == "trial_0009"  # the fastest that keeps ms <= 90
    assert facts.flags == as_flags(facts.best.parameters)
    assert [row.best for row in facts.history] == [100, 200, 400, 500, 600, 700, 800, 900, 900, 900, 900]
    assert [row.number for row in facts.history] == [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert facts.confirmed is None
    assert facts.rungs is None
    assert {row.name for row in facts.importance or ()} == {"tp", "batch", "draft"}
    second, third, last = (facts.trials[place] for place in (1, 2, 12))
    assert (second.task, second.worker, second.gpus) == (2, "local-1", [1])
    assert to_builtins(second.phases) == {"deploying_s": 4.0, "benchmarking_s": 6.0}
    assert (second.ended_at or 0.0) - (second.started_at or 0.0) == 10.0
    assert to_builtins(third.failure) == {"kind": "out_of_memory", "evidence": "no"}
    assert (last.phase, last.ended_at, last.failure) == ("waiting", None, None)
    (row,) = study_rows(one.store)
    whole = to_builtins(facts)
    assert to_builtins(row) == {name: value for name, value in whole.items() if name not in ("trials", "history")}


def test_a_trial_asks_for_its_gpus_and_too_many_at_a_time_is_said(play: Callable[..., Play]):
    one = play(trials=50, max_parallel_experiments=30)
    one.studying.propose(30, [HOST])
    spec = one.store.tasks.at(one.run.id, 1).spec
    assert spec.requests == Requests(gpus=1, gpu_memory_mb=8000, memory_mb=5)
    assert spec.gpu_env == "uuid"
    assert one.run.policy.gpus == (0, 1)
    crowded = study_facts(one.store, one.run).crowded
    assert crowded is not None
    assert crowded.startswith("30 parallel trials were requested, but 2 GPUs carry at most 20")
    again = TrialFeed(one.store, one.run)
    again.propose(40, [HOST])
    told = [event for event in one.store.events.of_run(one.run.id) if event.type == "run.crowded"]
    assert len(told) == 1  # once, whoever drives it


def test_only_open_trials_are_read_again(play: Callable[..., Play], monkeypatch: pytest.MonkeyPatch):
    one = play(trials=30, max_parallel_experiments=2, confirm=False)
    read: list[int] = []
    whole: list[str] = []
    task_at, tasks = one.store.tasks.at, one.store.tasks.all
    monkeypatch.setattr(one.store.tasks, "at", lambda run, number: (read.append(number), task_at(run, number))[1])
    monkeypatch.setattr(one.store.tasks, "all", lambda run: (whole.append(run), tasks(run))[1])
    number = 0
    while one.studying.propose(1, [HOST]) is not None and number < 30:
        number += 1
        one.end(number, float(number))
        read.clear()
    assert number == 30
    assert len(whole) == 1
    assert len(read) <= 2
    one.studying.forget()  # somebody gave trials new attempts
    one.studying.propose(1, [HOST])


def test_trouble_is_told_once_and_its_repair_goes_on(play: Callable[..., Play]):
    one = play(trials=30, max_parallel_experiments=5)
    one.studying.propose(5, [HOST])
    for number in range(1, 6):
        one.end(number, None, evidence="CUDA out of memory")
    assert one.studying.propose(5, [HOST]) is None
    assert one.studying.trouble is not None
    assert "ask for more memory or GPUs in [trial]" in one.studying.trouble
    assert f"`evalfleet study resume {one.run.id}`" in one.studying.trouble
    again = TrialFeed(one.store, one.run)  # whoever drives it after the repair
    assert again.propose(5, [HOST]) is not None
    assert again.trouble is None


def test_the_view_fits_every_terminal(play: Callable[..., Play]):
    one = play(trials=12, max_parallel_experiments=30, baseline={"tp": 1, "batch": 8})
    sizes = [(width, height) for width in (20, 60, 100, 200) for height in (3, 8, 24, 60)]
    for width, height in sizes:
        one.screen(width, height)  # before anything is there
    one.studying.propose(13, [HOST])
    for number in range(1, 6):
        one.end(number, None if number == 3 else 100.0 * number)
    started = one.claimed(6)
    one.store.attempts.progress(
        one.run, Progress(attempt=started.attempt, last_event=1, state="running", started_at=one.time - 5)
    )
    for width, height in sizes:
        shown = "\n".join(one.screen(width, height))
        if width >= 100 and height >= 24:
            assert "Best         speed=500  trial_0005" in shown
            assert "4/12 trials  33%" in shown
            assert "● trial_0006  benchmarking     5.0s  GPU 1" in shown
            assert "waiting" in shown
            assert "out_of_memory" in shown
            assert "a notice" in shown


def test_the_page_of_a_study_shows_what_it_found_and_no_score(play: Callable[..., Play]):
    one = play(trials=12, max_parallel_experiments=12, baseline={"tp": 1, "batch": 8})
    assert "nothing is measured yet" in page(one.store, one.run)
    one.studying.propose(13, [HOST])
    for number in range(1, 13):
        one.end(number, None if number == 3 else 100.0 * number, evidence="<script>no")
    shown = page(one.store, one.run)
    facts = study_facts(one.store, one.run)
    assert "<h3>Best configuration</h3><b>speed=900</b><p>trial_0009</p>" in shown
    assert "keeps ms &lt;= 90" in shown
    assert "<h3>Baseline</h3>" in shown
    assert "1 to 500 (logarithmic)" in shown
    assert "0.1 to 0.9, when tp == 2" in shown
    assert all(f"<td>{row.key}</td>" in shown for row in facts.trials)
    assert "breaks ms &lt;= 90" in shown
    assert shown.count("<circle class=") == 11  # one per measurement
    assert not any(word in shown for word in ("Valid score", "Strict score", "By domain"))
    assert "<script>no" not in shown


def test_the_page_of_a_study_without_a_best_names_the_nearest_and_no_best(play: Callable[..., Play]):
    one = play(trials=3, max_parallel_experiments=3)
    one.studying.propose(3, [HOST])
    for number in range(1, 4):
        one.end(number, 1000.0 * number)
    shown = page(one.store, one.run)
    assert "<h3>Nearest configuration</h3><b>speed=1000</b>" in shown
    assert "no configuration keeps all limits" in shown
    assert "Best configuration" not in shown
