"""Two runs side by side: which tasks are paired, what is left out and why, and the words for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest
from msgspec import to_builtins
from tests.support.report_builders import RunBuilder

from evalfleet.answers.comparison import Comparison
from evalfleet.core.statistics import comparison as core
from evalfleet.errors import InputError
from evalfleet.model import Blame, JsonObject, Kind, TaskState
from evalfleet.report.compare import compare, points, sentence
from evalfleet.report.same_tasks import differences
from evalfleet.report.terminal import lines
from evalfleet.report.terminal.comparison import contrast

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "compare-runs.md").read_text("utf-8")


class Two:
    """Runs in one home; each task is given as a score, as the state that it ends in, or as None (not started)."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.builders: list[RunBuilder] = []

    def run(
        self,
        tasks: Mapping[str, float | str | None],
        name: str = "",
        cost_usd: float = 0.1,
        payload: JsonObject | None = None,
    ) -> RunBuilder:
        builder = RunBuilder(self.home, tasks, name=name or f"run {len(self.builders)}", payload=payload).begin()
        self.builders.append(builder)
        for key, end in tasks.items():
            if isinstance(end, str):
                blame = Blame.TASK if end == "failed" else Blame.POOL
                builder.attempt(key, kind=Kind.PREEMPTED, blame=blame, evidence="evicted", then=TaskState(end))
            elif end is not None:
                builder.attempt(key, end, cost_usd=cost_usd)
        if None not in tasks.values():
            builder.complete()
        return builder

    def compared(self, a: Mapping[str, float | str | None], b: Mapping[str, float | str | None]) -> Comparison:
        first, second = self.run(a), self.run(b)
        return compare(first.store, first.run, second.run)

    def close(self) -> None:
        for builder in self.builders:
            builder.close()


@pytest.fixture
def two(home: Path) -> Iterator[Two]:
    made = Two(home)
    yield made
    made.close()


def shown(found: Comparison, width: int = 100) -> str:
    return lines.paint(contrast(found, width), colour=False)


def test_only_tasks_that_count_in_both_are_paired(two: Two):
    found = two.compared(
        {"p_1": 1.0, "p_2": 0.0, "q_1": "failed", "q_2": "held", "q_3": 1.0, "only_1": 1.0},
        {"p_1": 0.0, "p_2": 1.0, "q_1": 1.0, "q_2": 1.0, "q_3": None, "new_1": 0.0, "new_2": 0.0},
    )
    assert to_builtins(found.tasks) == {
        "common": 5,
        "paired": 3,
        "distinct": 3,
        "left_out": 2,
        "different": 0,
        "only_a": 1,
        "only_b": 2,
    }
    assert (found.only_a, found.only_b) == (["only_1"], ["new_1", "new_2"])
    assert {one.key: one.reason for one in found.left_out} == {
        "q_2": "held in A: preempted: evicted",
        "q_3": "not finished in B (queued)",
    }
    assert {one.key: (one.change, one.score_a, one.score_b) for one in found.flips} == {
        "p_1": ("lost", 1.0, 0.0),
        "p_2": ("gained", 0.0, 1.0),
        "q_1": ("gained", 0.0, 1.0),
    }
    assert [(one.key, one.number_a, one.number_b) for one in found.flips] == [
        ("p_1", 1, 1),
        ("p_2", 2, 2),
        ("q_1", 3, 3),
    ]
    # A: 1 + 0 + 0 + 1 over the four that count; B: 0 + 1 + 1 + 1 over four; strict over all five.
    assert to_builtins(found.a.scores) == {"valid": 0.5, "strict": 0.4, "coverage": 0.8}
    assert to_builtins(found.b.scores) == {"valid": 0.75, "strict": 0.6, "coverage": 0.8}
    assert (found.a.paired_score, found.b.paired_score) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert to_builtins(found.by_domain["p"]) == {
        "tasks": 2, "score_a": 0.5, "score_b": 0.5, "difference": 0.0, "gained": 1, "lost": 1,
    }  # fmt: skip
    assert found.notes == ["Run B is running, and 1 of its 7 tasks is not finished; this may still change."]


def test_the_other_way_round(two: Two):
    a, b = two.run({"x_1": 1.0, "x_2": 0.25, "x_3": 0.0}), two.run({"x_3": 1.0, "x_2": 0.5, "x_1": 1.0})
    there, back = compare(a.store, a.run, b.run), compare(a.store, b.run, a.run)
    assert there.difference is not None
    assert back.difference is not None
    assert there.difference.score == -back.difference.score > 0
    assert there.difference.ci95 == pytest.approx([-end for end in reversed(back.difference.ci95)])
    assert (there.a, there.b) == (back.b, back.a)
    assert compare(a.store, a.run, b.run) == there, "the draws are seeded"


def test_a_better_run_is_called_so(two: Two):
    keys = [f"d_{i}" for i in range(40)]
    found = two.compared(
        {key: float(i < 8) for i, key in enumerate(keys)}, {key: float(i < 20) for i, key in enumerate(keys)}
    )
    assert found.conclusion == "b_better"
    assert re.fullmatch(
        r"B is better by 30\.0 points \(95% CI 1\d\.\d to 4\d\.\d; 12 tasks gained, 0 lost, p < 0\.001\)\.",
        found.sentence,
    )
    screen = shown(found)
    assert screen.count("gained    d_") == 12
    assert "$4.00" in screen


def test_fractional_scores_have_both_tests(two: Two):
    found = two.compared({"d_1": 0.2, "d_2": 0.5, "d_3": 0.5}, {"d_1": 0.4, "d_2": 0.1, "d_3": 1.0})
    assert "2 tasks higher, 1 lower" in found.sentence
    assert "Success alone: 1 task gained, 0 lost, p = 1." in shown(found)


def test_repeats_are_compared_by_task(two: Two):
    keys = [f"t{task}_{seed}" for task in range(4) for seed in range(5)]
    a = two.run(dict.fromkeys(keys, 0.0), payload={})
    b = two.run({key: float(key.startswith(("t0", "t1"))) for key in keys}, payload={})
    found = compare(a.store, a.run, b.run)
    assert (found.tasks.paired, found.tasks.distinct) == (20, 4)
    assert found.conclusion == "not_distinguishable", "10 episodes gained would be p = 0.002; they are 2 tasks"
    assert found.difference is not None
    assert (found.difference.score, found.difference.higher, found.difference.p_value) == (
        0.5,
        2,
        0.5,
    )
    assert to_builtins(found.success) == {"gained": 2, "lost": 0, "p_value": 0.5}
    assert len(found.flips) == 10
    assert "with 4 tasks (20 episodes) that count in both" in found.sentence
    assert "they are episodes of 4 tasks" in " ".join(shown(found).split())


def test_a_task_weighs_the_same_however_many_of_its_episodes_count(two: Two):
    a = two.run({"t_0": 0.0, "t_1": 0.0, "t_2": 0.0, "u_0": 0.0, "u_1": "held", "u_2": "held"}, payload={})
    b = two.run({"t_0": 0.0, "t_1": 0.0, "t_2": 0.0, "u_0": 1.0, "u_1": 1.0, "u_2": 1.0}, payload={})
    found = compare(a.store, a.run, b.run)
    assert (found.a.paired_score, found.b.paired_score) == (0.0, 0.5)
    assert found.difference is not None
    assert found.difference.score == 0.5


def test_tasks_that_are_not_the_same_work_are_told(two: Two):
    a = two.run({"t_0": 1.0, "t_1": 1.0}, payload={"max_steps": 30, "agent": "x"})
    b = two.run({"t_0": 1.0, "t_1": 1.0}, payload={"max_steps": 10, "agent": "y", "seed": 5})
    with pytest.raises(
        InputError, match=r"2 common keys and no common task: t_0 is not the same work: seed differs \(A: 0"
    ):
        compare(a.store, a.run, b.run)
    found = compare(a.store, a.run, b.run, allow_different=True)
    assert to_builtins(found.unlike[0]) == {
        "key": "t_0",
        "differs": {"seed": (0, 5), "max_steps": (30, 10)},
        "same_work": False,
    }
    assert found.tasks.different == 2
    assert found.notes == [
        f"Not the same work: {what} differs in 2 of 2 common tasks, as in t_0 (A: {a_}, B: {b_}); that alone may move the score."
        for what, a_, b_ in (("seed", 0, 5), ("max_steps", 30, 10))
    ]
    same = two.run({"t_0": 1.0, "t_1": 1.0}, payload={"max_steps": 30, "agent": "z"})
    assert compare(a.store, a.run, same.run).notes == []
    shorter = two.run({"t_0": 1.0, "t_1": 1.0}, payload={"max_steps": 5, "agent": "z"})
    limited = compare(a.store, a.run, shorter.run)  # a limit is told, and refuses nothing
    assert (limited.tasks.paired, limited.tasks.different, len(limited.notes)) == (2, 0, 1)


def test_nothing_that_counts_in_both(two: Two):
    found = two.compared({"d_1": "held", "d_2": 1.0}, {"d_1": 1.0, "d_2": None})
    assert found.conclusion == "nothing_counts"
    assert found.sentence == "Nothing to compare: none of the 2 common tasks counts in both runs."
    assert (found.difference, found.success, found.least_detectable) == (None, None, None)
    assert "left out  d_1: held in A" in shown(found)


def test_bad_input(two: Two):
    a, b = two.run({"d_1": 1.0}), two.run({"e_1": 1.0})
    with pytest.raises(InputError, match="have no task in common"):
        compare(a.store, a.run, b.run)
    with pytest.raises(InputError, match=f"both names mean the run {a.run.id}"):
        compare(a.store, a.run, a.run)


def test_hostile_text_is_harmless_on_the_screen(two: Two):
    evil = "\x1b[31m\n\u202e_1"
    found = two.compared({evil: 1.0, "d_1": "held", "o_1": 1.0}, {evil: 0.0, "d_1": 1.0, "o_1": 1.0})
    for width in (60, 100, 200):
        screen = shown(found, width)
        assert "\x1b" not in screen
        assert "\u202e" not in screen
        assert "\\e[31m\\n\\u202e_1  1 → 0" in screen
    assert max(map(len, shown(found, 60).splitlines())) <= 75


def test_long_lists_are_cut_on_the_screen_only(two: Two):
    tasks = {f"d{i}_1": 1.0 for i in range(45)} | {f"h_{i}": "held" for i in range(12)}
    found = two.compared(tasks, dict.fromkeys(tasks, 0.0))
    assert (len(found.flips), len(found.left_out), len(found.by_domain)) == (45, 12, 45)
    screen = shown(found)
    for words in ("and 25 more lost tasks in", "and 2 more tasks that are left out in", "and 15 more domains in"):
        assert words in screen


def statistics(count: int, gained: int, lost: int) -> core.Comparison:
    ends = [(False, True)] * gained + [(True, False)] * lost + [(True, True)] * (count - gained - lost)
    return core.compare(
        [core.Pair(key="k", domain="d", score_a=float(a), score_b=float(b), success_a=a, success_b=b) for a, b in ends],
        Random(0),
    )


@pytest.mark.parametrize(
    ("count", "gained", "lost", "said"),
    [
        (154, 3, 12, r"B is worse by 5\.8 points \(95% CI 1\.3 to 1\d\.\d; 3 tasks gained, 12 lost, p = 0\.035\)\."),
        (4, 1, 0, r"Not distinguishable: B scores 25\.0 points higher .* with 4 tasks .* no difference can be told .*"),
        (10, 1, 1, r"Not distinguishable: both score 90\.0% \(95% .*; 1 task gained, 1 lost, p = 1\); with 10 tasks .*"),
        (
            154, 0, 0,
            r"Not distinguishable: both score 100\.0%, and no task differs; .* a difference below about 11 points .* \(if 20% .*",
        ),
    ],
)  # fmt: skip
def test_sentences(count: int, gained: int, lost: int, said: str):
    assert re.fullmatch(said, sentence(statistics(count, gained, lost), count))


def test_the_page_has_the_real_words_and_figures():
    (told,) = re.findall(r"^Not distinguishable:.*?\.$", PAGE, re.MULTILINE | re.DOTALL)
    assert told.replace("\n", " ") == sentence(statistics(154, 7, 5), 154)
    table = re.findall(r"^\| (\d+) \| (\d+) points \| (\d+) points \|$", PAGE, re.MULTILINE)
    assert len(table) == 3
    for pairs, *sizes in table:
        for size, discordance in zip(sizes, (0.1, 0.2), strict=True):
            least = core.least_detectable(int(pairs), discordance)
            assert least is not None
            assert int(size) - 1 < least * 100 <= int(size)


def test_the_page_has_every_key(two: Two):
    found = two.compared({"d_1": 1.0, "d_2": "held"}, {"d_1": 0.0, "d_2": 1.0})
    told = set(re.findall(r"`([a-z_0-9]+)`", PAGE.partition("## For programs")[2]))
    nested = [found.a, found.a.scores, found.a.cost, found.difference, found.success]
    nested += [
        found.least_detectable,
        found.by_domain["d"],
        found.flips[0],
        found.left_out[0],
        found.tasks,
    ]
    assert {key for part in (found, *nested) if part for key in part.__struct_fields__} <= told
    a, b = two.run({"t_0": 1.0}, payload={"max_steps": 1}), two.run({"t_0": 1.0}, payload={"max_steps": 2})
    assert set(compare(a.store, a.run, b.run).unlike[0].__struct_fields__) <= told
    assert {str(one) for one in core.Conclusion} <= told


def test_points():
    assert [points(share) for share in (0.042, -0.5, 0.0, -0.0, 1e-17, 0.0004, -0.00004)] == [
        "4.2", "-50.0", "0.0", "0.0", "0.0", "0.04", "-0.004",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "differs"),
    [
        (None, {"q": 1}, {}),  # of one run nothing is known
        ({"q": 1, "r": [1, 2]}, {"r": [1, 2], "q": 1}, {}),
        ({"q": 1}, {"q": 2, "hint": True}, {"q": [1, 2], "hint": [None, True]}),
        ("one", "two", {"payload": ["one", "two"]}),
        ([1], {"a": 1}, {"payload": ["[1]", '{"a": 1}']}),
        (
            {"trial": 1, "parameters": {"tp": 1}},
            {"trial": 1, "parameters": {"tp": 2}},
            {"parameters": ['{"tp": 1}', '{"tp": 2}']},
        ),
        ({"benchmark": "m", "task": "t", "agent": "x"}, {"benchmark": "m", "task": "t", "agent": "y"}, {}),
        ({"benchmark": "m", "task": "t", "imported": "1"}, {"benchmark": "m", "task": "u"}, {"task": ["t", "u"]}),
        ({"benchmark": "m", "definition": {"check": "x" * 99}}, {"benchmark": "m", "definition": {"check": "y"}}, None),
        ({"page": 1, "imported": "1"}, {"page": 2, "imported": "2"}, {}),
    ],
)
def test_what_makes_two_payloads_the_same_work(a: object, b: object, differs: dict[str, list[object]] | None):
    found = {name: list(values) for name, values in differences(a, b).items()}
    assert (
        found == differs
        if differs is not None
        else (set(found) == {"definition"} and len(found["definition"][0]) == 61)
    )
