"""Two runs side by side: the one object behind `compare` and `compare --json`.

Its keys are a public contract, described in docs/howto/compare-runs.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random

from evalfleet.answers import comparison as answers
from evalfleet.answers.summary import Summary, TaskCounts
from evalfleet.answers.task_result import TaskResult
from evalfleet.core.statistics import comparison as core
from evalfleet.core.statistics import scores as stats
from evalfleet.errors import InputError
from evalfleet.model import JsonObject, Run
from evalfleet.report import same_tasks, text
from evalfleet.report.summary import summarise
from evalfleet.store.reader import StoreReader

_SEED = 0  # the same two runs give the same interval, today and tomorrow
_COUNTS = ("done", "failed")
_UNFINISHED = ("queued", "running")
_ALLOWED = "`--allow-different`"
_MOST_NAMES = 4
_RULES = ("timeout_s", "timeout_is_verdict", "exit_is_verdict", "result_required")  # of a policy: what makes a score


def compare(store: StoreReader, run_a: Run, run_b: Run, *, allow_different: bool = False) -> answers.Comparison:
    """Compare B with A, as both stand at one moment, over the tasks that both have, by key.

    A task is paired if it is the same work in both runs, and counts in the valid score of both: it is done, or failed by
    its own fault, which is 0.

    Args:
        allow_different: pair tasks of one key also where they are not the same work, and studies.

    Raises:
        InputError: it is the same run twice, the runs have no task in common, no common task is the same work in both, or one of
            them is a study.
    """
    if run_a.id == run_b.id:
        raise InputError(f"both names mean the run {run_a.id}; give two different runs, `evalfleet status` lists them")
    if not allow_different:
        _refuse_studies(run_a, run_b)
    with store.snapshot():
        payloads_a, payloads_b = store.tasks.payloads(run_a.id), store.tasks.payloads(run_b.id)
        summary_a, summary_b = summarise(store, run_a), summarise(store, run_b)
        episodes_a = _episodes(store, run_a)
    tasks_a, tasks_b = _by_key(summary_a), _by_key(summary_b)
    common = sorted(tasks_a.keys() & tasks_b.keys())
    if not common:
        raise InputError(f"the runs {run_a.id} and {run_b.id} have no task in common: no key is in both")
    unlike = same_tasks.unlike(common, payloads_a, payloads_b)
    refused = {} if allow_different else _refused(run_a, run_b, unlike, len(common))
    paired = [key for key in common if key not in refused and _counts(tasks_a[key]) and _counts(tasks_b[key])]
    others = sorted(set(common).difference(paired))
    pairs = [_pair(tasks_a[key], tasks_b[key], episodes_a.get(key)) for key in paired]
    found = core.compare(pairs, Random(_SEED)) if pairs else None
    return answers.Comparison(
        a=_side(summary_a, tasks_a, common, paired, found and found.mean_a),
        b=_side(summary_b, tasks_b, common, paired, found and found.mean_b),
        tasks=answers.PairCounts(
            common=len(common),
            paired=len(paired),
            distinct=found.tasks if found else 0,
            left_out=len(others),
            different=sum(not one.same_work for one in unlike),
            only_a=len(tasks_a) - len(common),
            only_b=len(tasks_b) - len(common),
        ),
        conclusion=str(found.conclusion if found else core.Conclusion.NONE),
        sentence=sentence(found, len(common)),
        notes=[*_notes(summary_a, summary_b), *_rules(run_a, run_b), *_warnings(unlike, len(common), refused)],
        unlike=unlike,
        difference=found and _difference(found),
        success=found and answers.SuccessChange(gained=found.gained, lost=found.lost, p_value=found.p_success),
        least_detectable=found and _least(found.least),
        by_domain=_by_domain(pairs),
        flips=[_flip(pair, tasks_a, tasks_b) for pair in pairs if pair.flip],
        left_out=[_left_out(tasks_a[key], tasks_b[key], refused.get(key)) for key in others],
        only_a=sorted(tasks_a.keys() - tasks_b.keys()),
        only_b=sorted(tasks_b.keys() - tasks_a.keys()),
    )


def _refused(run_a: Run, run_b: Run, unlike: list[answers.UnlikeTask], common: int) -> dict[str, answers.UnlikeTask]:
    """The tasks of one key that are not the same work, by key. Raises InputError, where that is all of them."""
    found = {one.key: one for one in unlike if not one.same_work}
    if len(found) == common:
        raise InputError(
            f"the runs {run_a.id} and {run_b.id} have {text.count(common, 'common key')} and no common task: "
            f"{_differs(unlike[0])}; {_ALLOWED} compares them all the same"
        )
    return found


def sentence(found: core.Comparison | None, common: int) -> str:
    """The conclusion in one sentence. `found` is None where none of the `common` tasks is paired."""
    if found is None:
        none = "the only common task does not count" if common == 1 else f"none of the {common:,} common tasks counts"
        return f"Nothing to compare: {none} in both runs."
    low, high = found.ci95.low, found.ci95.high
    if found.conclusion is core.Conclusion.WORSE:
        low, high = -high, -low
    facts = f"95% CI {points(low)} to {points(high)}; {_changes(found)}"
    size = points(abs(found.difference))
    if found.conclusion is core.Conclusion.BETTER:
        return f"B is better by {size} points ({facts})."
    if found.conclusion is core.Conclusion.WORSE:
        return f"B is worse by {size} points ({facts})."
    if found.higher + found.lower == 0:
        seen = f"both score {text.percent(found.mean_a)}, and no task differs"
    elif found.difference:
        seen = f"B scores {size} points {'higher' if found.difference > 0 else 'lower'} ({facts})"
    else:
        seen = f"both score {text.percent(found.mean_a)} ({facts})"
    return f"Not distinguishable: {seen}; {_limit(found)}."


def points(share: float) -> str:
    """A difference of scores in points, hundredths of the whole scale: "4.2"."""
    value = round(share * 100, 7) or 0.0
    return f"{value:.1g}" if 0 < abs(value) < 0.05 else f"{value:.1f}"


def chance(p: float) -> str:
    """ "p = 0.035"."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _changes(found: core.Comparison) -> str:
    if (found.higher, found.lower) == (found.gained, found.lost):
        return f"{text.count(found.gained, 'task')} gained, {found.lost:,} lost, {chance(found.p_score)}"
    return f"{text.count(found.higher, 'task')} higher, {found.lower:,} lower, {chance(found.p_score)}"


def _limit(found: core.Comparison) -> str:
    episodes = f" ({found.pairs:,} episodes)" if found.pairs > found.tasks else ""
    tasks = f"with {text.count(found.tasks, 'task')}{episodes} that {'counts' if found.tasks == 1 else 'count'} in both"
    if found.least.difference is None:
        return f"{tasks} no difference can be told from chance"
    size = found.least.difference * 100
    about = math.ceil(size) if size > 1 else f"{size:.1g}"
    said = f"{tasks} a difference below about {about} points cannot be told from chance"
    return f"{said} (if {found.least.discordance * 100:.0f}% of them would differ)" if found.least.assumed else said


def _by_key(summary: Summary) -> dict[str, TaskResult]:
    return {result.key: result for result in summary.results or ()}


def _counts(result: TaskResult) -> bool:
    return result.state in _COUNTS


def _episodes(store: StoreReader, run: Run) -> dict[str, JsonObject]:
    return {row["key"]: row for row in store.tasks.episodes(run.id)}


def _refuse_studies(run_a: Run, run_b: Run) -> None:
    studies = [run for run in (run_a, run_b) if run.policy.study is not None]
    if studies:
        what = "both are studies" if len(studies) == 2 else f"{studies[0].id} is a study"
        best = " and ".join(f"`evalfleet study best {run.id}`" for run in studies)
        raise InputError(
            f"{what}, and trials of one number have other parameters: there is nothing to pair. Compare the best configurations: "
            f"{best}; {_ALLOWED} pairs the trials by their numbers all the same"
        )


def _differs(one: answers.UnlikeTask) -> str:
    """ "not the same work: question differs (A: ..., B: ...)", of the first things that differ."""
    shown = [
        f"{text.printable(name)} differs (A: {text.printable(str(a))}, B: {text.printable(str(b))})"
        for name, (a, b) in list(one.differs.items())[:_MOST_NAMES]
    ]
    more = len(one.differs) - len(shown)
    return f"{text.printable(one.key)} is not the same work: {', '.join(shown)}{f' and {more} more' if more else ''}"


def _warnings(
    unlike: Sequence[answers.UnlikeTask], common: int, refused: Mapping[str, answers.UnlikeTask]
) -> list[str]:
    """How many tasks are not the same work, and what became of them; one per name where they are compared all the same."""
    warnings: list[str] = []
    if refused:
        are = "is" if len(refused) == 1 else "are"
        warnings.append(
            f"{len(refused):,} of {text.count(common, 'common task')} {are} not the same work in both runs and left out, such as "
            f"{text.printable(next(iter(refused)))}; {_ALLOWED} compares them, too."
        )
    compared = [one for one in unlike if one.key not in refused]
    for name in dict.fromkeys(name for one in compared for name in one.differs):
        found = [one for one in compared if name in one.differs]
        a, b = (text.printable(str(value)) for value in found[0].differs[name])
        warnings.append(
            f"Not the same work: {text.printable(name)} differs in {len(found):,} of {text.count(common, 'common task')}, as in "
            f"{text.printable(found[0].key)} (A: {a}, B: {b}); that alone may move the score."
        )
        if len(warnings) > _MOST_NAMES:
            break
    return warnings


def _pair(a: TaskResult, b: TaskResult, episode: JsonObject | None) -> core.Pair:
    return core.Pair(
        key=a.key,
        domain=a.domain,
        score_a=a.score or 0.0,
        score_b=b.score or 0.0,
        success_a=bool(a.success),
        success_b=bool(b.success),
        task=None if episode is None else f"{episode['benchmark'] or ''} {episode['task']}",
    )


def _side(
    summary: Summary, tasks: Mapping[str, TaskResult], keys: Sequence[str], counted: Sequence[str], score: float | None
) -> answers.Side:
    common, paired = [tasks[key] for key in keys], [tasks[key] for key in counted]
    verdicts = [result.score or 0.0 for result in common if result.state == "done"]
    scores = stats.scores(
        total=len(common),
        verdicts=len(verdicts),
        score_sum=math.fsum(verdicts),
        failed=sum(result.state == "failed" for result in common),
    )
    return answers.Side.copy_of(
        summary,
        tasks=summary.tasks.total,
        unfinished=_unfinished(summary.tasks),
        scores=answers.SideScores.copy_of(scores),
        paired_score=score,
        successes=sum(bool(result.success) for result in paired),
        avg_task_duration_s=_mean([r.duration_s for r in paired if r.duration_s is not None]),
        cost=answers.SideCost.copy_of(summary.cost),
    )


def _difference(found: core.Comparison) -> answers.Difference:
    ci95 = (found.ci95.low, found.ci95.high)
    return answers.Difference.copy_of(found, score=found.difference, ci95=ci95, p_value=found.p_score)


def _least(least: core.LeastDetectable) -> answers.LeastDetectable:
    return answers.LeastDetectable.copy_of(least, level=core.LEVEL, power=core.POWER)


def _notes(*summaries: Summary) -> list[str]:
    """What keeps the comparison from being final."""
    notes: list[str] = []
    for name, summary in zip("AB", summaries, strict=True):
        left = _unfinished(summary.tasks)
        if left:
            are = "is" if left == 1 else "are"
            notes.append(
                f"Run {name} is {summary.state}, and {left:,} of its {text.count(summary.tasks.total, 'task')} "
                f"{are} not finished; this may still change."
            )
        elif summary.state == "cancelled":
            notes.append(f"Run {name} was cancelled.")
    return notes


def _rules(run_a: Run, run_b: Run) -> list[str]:
    """What the runs did not treat alike."""
    return [
        f"Not judged alike: {name} differs (A: {a}, B: {b}); that alone may move the score."
        for name, a, b in ((name, getattr(run_a.policy, name), getattr(run_b.policy, name)) for name in _RULES)
        if a != b
    ]


def _by_domain(pairs: Sequence[core.Pair]) -> dict[str, answers.DomainDifference]:
    domains: dict[str, list[core.Pair]] = {}
    for pair in pairs:
        domains.setdefault(pair.domain, []).append(pair)
    return {
        domain: answers.DomainDifference(
            tasks=len(found),
            score_a=_mean([pair.score_a for pair in found]),
            score_b=_mean([pair.score_b for pair in found]),
            difference=_mean([pair.difference for pair in found]),
            gained=sum(pair.flip > 0 for pair in found),
            lost=sum(pair.flip < 0 for pair in found),
        )
        for domain, found in sorted(domains.items())
    }


def _flip(pair: core.Pair, tasks_a: Mapping[str, TaskResult], tasks_b: Mapping[str, TaskResult]) -> answers.Flip:
    return answers.Flip.copy_of(
        pair,
        number_a=tasks_a[pair.key].number,
        number_b=tasks_b[pair.key].number,
        change="gained" if pair.flip > 0 else "lost",
    )


def _left_out(a: TaskResult, b: TaskResult, different: answers.UnlikeTask | None) -> answers.LeftOut:
    reasons = [_differs(different)] if different is not None else []
    reasons += [_reason(result, name) for name, result in (("A", a), ("B", b)) if not _counts(result)]
    return answers.LeftOut(key=a.key, state_a=a.state, state_b=b.state, reason="; ".join(reasons))


def _reason(result: TaskResult, name: str) -> str:
    state = result.state
    said = f"not finished in {name} ({state})" if state in _UNFINISHED else f"{state} in {name}"
    return f"{said}: {result.reason}" if result.reason else said


def _unfinished(tasks: TaskCounts) -> int:
    return tasks.queued + tasks.running


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
