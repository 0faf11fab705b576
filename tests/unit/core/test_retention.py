from __future__ import annotations

from evalfleet.core.retention import Part, Rules, Size, StoredRun, choose

DAY = 86_400.0
NOW = 100 * DAY


def run(name: str, days: float, *, artifacts: int = 100, logs: int = 10, pinned: bool = False) -> StoredRun:
    sizes = {Part.ARTIFACTS: Size(1, artifacts), Part.LOGS: Size(1, logs), Part.RUN: Size(1, 1)}
    kept = {part: size for part, size in sizes.items() if size.bytes}
    return StoredRun(id=name, ended_at=NOW - days * DAY, pinned=pinned, sizes=kept)


RUNS = [run("old", 90), run("kept", 80, pinned=True), run("middle", 40), run("new", 1)]
USED = 4 * 111 + 500  # and a run that goes on


def chosen(**rules: float | None) -> list[str]:
    given: dict[str, float] = {name: value for name, value in rules.items() if value is not None}
    return [f"{one.run} {one.part}" for one in choose(RUNS, Rules().overridden(**given), NOW, USED)]


def test_nothing_goes_without_a_rule():
    assert chosen() == []
    assert not Rules().is_set


def test_age_counts_from_the_end_of_each_run_and_spares_what_is_pinned():
    assert chosen(artifacts_s=30 * DAY) == ["old artifacts", "middle artifacts"]
    assert chosen(artifacts_s=30 * DAY, logs_s=60 * DAY) == ["old artifacts", "old logs", "middle artifacts"]


def test_a_whole_run_goes_with_all_its_files_and_only_by_its_own_rule():
    [whole, rest] = choose(RUNS, Rules(runs_s=60 * DAY, artifacts_s=30 * DAY), NOW, USED)
    assert (whole.run, whole.part, whole.size) == ("old", Part.RUN, Size(3, 111))
    assert (rest.run, rest.part) == ("middle", Part.ARTIFACTS)


def test_the_newest_keep_their_files_and_pinned_ones_count_among_them():
    assert chosen(count=3) == ["old artifacts", "old logs"]
    assert chosen(count=2) == ["old artifacts", "old logs"]
    assert chosen(count=0) == [
        "old artifacts",
        "old logs",
        "middle artifacts",
        "middle logs",
        "new artifacts",
        "new logs",
    ]


def test_for_the_size_artifacts_of_all_go_before_logs_of_any():
    assert chosen(size=USED) == []
    assert chosen(size=USED - 1) == ["old artifacts"]
    assert chosen(size=USED - 101) == ["old artifacts", "middle artifacts"]
    assert chosen(size=USED - 301) == ["old artifacts", "middle artifacts", "new artifacts", "old logs"]
    assert chosen(size=0)[-1] == "new logs"  # whole runs never go for the size


def test_what_goes_by_age_counts_for_the_size():
    assert chosen(artifacts_s=60 * DAY, size=USED - 100) == ["old artifacts"]


def test_nothing_goes_of_which_nothing_is_left():
    assert choose([run("bare", 90, artifacts=0, logs=0)], Rules(artifacts_s=DAY, logs_s=DAY, size=0), NOW, 1) == []
