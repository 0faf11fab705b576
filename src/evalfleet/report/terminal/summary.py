"""A summary as a screen of text for a person who sees evalfleet for the first time."""

from __future__ import annotations

from evalfleet.answers.summary import Cost, Summary
from evalfleet.model import PauseCause
from evalfleet.report import text
from evalfleet.report.failure_groups import sentence
from evalfleet.report.removed import removed_words
from evalfleet.report.repeats import shown
from evalfleet.report.studies.found import found_lines
from evalfleet.report.summary import covered
from evalfleet.report.terminal.lines import STATE_STYLES, Column, Line, Span, Style, apart, line, table, wrap
from evalfleet.report.terminal.plan import comparison_lines

_MOST_KINDS = 12
_MOST_HELD = 5
_MOST_GROUPS = 5
_CENT = 0.005


def overview(summary: Summary, width: int, *, driven: bool = True, options: str = "") -> list[Line]:
    """Return the whole screen.

    `driven`: whether a controller is at work on a run that is not over. `options`: what a command needs to find this
    home again, such as `--home DIR`.
    """
    blocks = [
        [one for long in _heading(summary, driven) for one in wrap(long, width)],
        _results(summary, width),
        _failures(summary, width),
        [one for long in _held(summary) for one in wrap(long, width, indent=8)],
        [one for long in _money(summary) for one in wrap(long, width, indent=7)],
        [one for said in removed_words(summary.removed) for one in wrap(line(Span(said, Style.FAINT)), width)],
        [] if summary.plan is None else [line(said) for said in comparison_lines(summary.plan)],
        [one for long in _next(summary, driven, options) for one in wrap(long, width, indent=6)],
    ]
    return apart(blocks)


def _heading(summary: Summary, driven: bool) -> list[Line]:
    state, tasks = summary.state, summary.tasks
    head = line(
        "Run " if summary.study is None else "Study ",
        Span(summary.run, Style.STRONG),
        *([Span(f" {text.printable(summary.name)}", Style.NAME)] if summary.name else []),
        " is " if state in ("paused", "queued", "running") else " ",
        Span(state, STATE_STYLES[state]),
    )
    if state == "running" and not driven:
        head.append(Span(", not driven by a controller,", Style.WARN))
    if summary.imported:
        head.append(Span(", imported"))  # how long its attempts took elsewhere is not known
    elif summary.duration_s is not None:
        head.append(Span(f" {'for' if state == 'running' else 'after'} {text.span(summary.duration_s)}"))
    if summary.study is not None:
        parts = [f"{tasks.done:,} of {text.count(tasks.total, 'trial')} measured"]
    else:
        parts = [f"{tasks.done:,} of {text.count(tasks.total, 'task')} got a verdict{_verdicts(summary)}"]
    parts += [f"{count:,} {name}" for name, count in text.rest_of(tasks)]
    head.append(Span(": " + ", ".join(parts)))
    lines = [head]
    if summary.reason is not None:
        lines.append(line(Span(f"Why: {text.printable(summary.reason.message)}", Style.WARN)))
    return lines


def _verdicts(summary: Summary) -> str:
    verdicts, passed = summary.scores.verdicts, summary.scores.passed
    if not verdicts:
        return ""
    return " (all passed)" if passed == verdicts else f" ({passed:,} passed, {verdicts - passed:,} not passed)"


def _results(summary: Summary, width: int) -> list[Line]:
    """The scores; of a study what it found."""
    if summary.study is not None:
        return [one for long in found_lines(summary.study) for one in wrap(long, width, indent=15)]
    return [one for long in _scores(summary) for one in wrap(long, width, indent=24)]


def _scores(summary: Summary) -> list[Line]:
    scores, tasks = summary.scores, summary.tasks
    counted = scores.verdicts + tasks.failed
    rows = [
        ("Valid score", scores.valid, scores.ci95.valid, f"mean of the {counted:,} that count"),
        (
            "Strict score",
            scores.strict,
            scores.ci95.strict,
            f"mean of all {tasks.total:,}; no verdict is 0",
        ),
    ]
    lines: list[Line] = []
    for name, score, bounds, meaning in rows:
        sure = f"95% CI {text.interval(bounds)}" if bounds else "nothing counts yet"
        shown = line(f"  {name:<13}", Span(f"{text.percent(score):>6}", Style.STRONG), f"   {sure:<20}")
        lines.append(shown if bounds is None else [*shown, Span(f"  {meaning}", Style.FAINT)])
    reached = "reached" if summary.accepted else "not reached"
    wanted = f"{counted:,} of {tasks.total:,} tasks count; wanted {summary.accept * 100:g}%: "
    style = Style.GOOD if summary.accepted else Style.WARN
    coverage = Span(f"{text.percent(scores.coverage):>6}", Style.STRONG)
    lines.append(line(f"  {'Coverage':<13}", coverage, f"   {wanted}", Span(reached, style)))
    covers = covered(summary)
    if covers is not None:
        lines.append(line(f"  {'Covers':<13}", Span(covers, Style.WARN)))
    return lines + _repeats(summary) + _retry_bias(summary)


def _repeats(summary: Summary) -> list[Line]:
    """Results of several episodes per task."""
    found = summary.repeats
    if found is None or not found.pass_at:
        return []
    last = found.pass_at[-1]
    name = f"Pass@{last.k}"
    sure = f"95% CI {text.interval(last.ci95)}"
    chances = ", ".join(f"pass@{one.k} {text.percent(one.score)}" for one in shown(found.pass_at)[:-1])
    solved = f"{found.always:,} always solved, {found.sometimes:,} at times, {found.never:,} never"
    varied = "" if found.deviation is None else f"; spread ±{found.deviation * 100:.1f}"
    return [
        line(f"  {name:<13}", Span(f"{text.percent(last.score):>6}", Style.STRONG), f"   {sure:<20}  {chances}"),
        line(
            f"  {'Repeats':<13}",
            f"{found.episodes:>6,}   episodes of {text.count(found.tasks, 'task')}: {solved}{varied}",
        ),
    ]


def _retry_bias(summary: Summary) -> list[Line]:
    first, retried = summary.retry_bias.first_attempt, summary.retry_bias.retried
    if not retried.n:
        return []
    said = f"{retried.n:,} retried, their score {text.percent(retried.score)}"
    if first.n:
        said += f"; {first.n:,} at the first attempt, {text.percent(first.score)}"
    return [line(f"  {'Retries':<13}", Span(f"{text.percent(summary.retry_rate):>6}", Style.STRONG), f"   {said}")]


def _failures(summary: Summary, width: int) -> list[Line]:
    kinds = summary.failure_kinds
    if not kinds:
        return []
    columns = [
        Column("failed", right=True),
        Column("kind", most=18),
        Column("blamed on"),
        Column("tasks", right=True),
        Column("latest example"),
    ]
    rows = [
        [
            Span(f"{kind.attempts:,}"),
            Span(kind.kind, Style.BAD if kind.blame == "task" else Style.WARN),
            Span(kind.blame),
            Span(f"{kind.tasks:,}"),
            Span(text.printable(f"{kind.key}: {kind.evidence}")),
        ]
        for kind in kinds[:_MOST_KINDS]
    ]
    lines = table(columns, rows, width, indent=2)
    if len(kinds) > _MOST_KINDS:
        lines.append(
            line(Span(f"  and {len(kinds) - _MOST_KINDS} more kinds in `evalfleet report --json`", Style.FAINT))
        )
    return lines + _shared(summary, width)


def _shared(summary: Summary, width: int) -> list[Line]:
    """Failures of several tasks with one message, and advice if they are the majority."""
    groups = [group for group in summary.failure_groups if group.tasks > 1][:_MOST_GROUPS]
    lines: list[Line] = []
    if groups and len(summary.failure_groups) > len(summary.failure_kinds):
        columns = [Column("failed", right=True), Column("tasks", right=True), Column("with the same message")]
        rows = [
            [
                Span(f"{group.attempts:,}"),
                Span(f"{group.tasks:,}"),
                Span(text.printable(f"{group.kind}: {group.message}")),
            ]
            for group in groups
        ]
        lines += [[], *table(columns, rows, width, indent=2)]
    common = summary.common_failure
    if common is not None:
        said = text.printable(sentence(common))
        lines += [[], *wrap(line("  ", Span(said, Style.WARN), f". {common.advice}"), width, indent=2)]
    return lines


def _held(summary: Summary) -> list[Line]:
    """Why tasks wait for a person."""
    held = summary.held[:_MOST_HELD]
    lines = [
        line("  ", Span("held", Style.WARN), text.printable(f"  {one.key}: {one.reason or 'no reason given'}"))
        for one in held
    ]
    more = summary.tasks.held - len(held)
    if more > 0:
        lines.append(line(Span(f"  and {more:,} more held tasks in `evalfleet report --json`", Style.FAINT)))
    return lines


def _money(summary: Summary) -> list[Line]:
    cost = summary.cost
    if not cost.total_usd and cost.budget_usd is None:
        return []
    said = f"  Cost {text.money(cost.total_usd)}"
    if cost.budget_usd is not None:
        said += f" of {text.money(cost.budget_usd)}"
    if cost.cost_per_task_usd is not None:
        said += f"; {text.money(cost.cost_per_task_usd)} per task"
    left = summary.tasks.queued + summary.tasks.running
    if left and cost.estimated_total_usd is not None:
        said += f", about {text.money(cost.estimated_total_usd)} in the end"
    return [line(said), *_waste(cost)]


def _waste(cost: Cost) -> list[Line]:
    """What bought no verdict, by what became of it."""
    parts = [f"{what} {text.money(usd)}" for what, usd in cost.waste.items()]
    said = (
        [f"{text.money(cost.waste_usd)} on attempts without a verdict that counts ({', '.join(parts)})"]
        if parts
        else []
    )
    if cost.idle_usd >= _CENT:
        said.append(f"{text.money(cost.idle_usd)} besides for workers between attempts")
    return [line(f"  Waste {', '.join(said)}")] if said else []


def _next(summary: Summary, driven: bool, options: str) -> list[Line]:
    command, why = next_command(summary, driven=driven)
    command = f"{command} {options}".rstrip()
    return [line("Next: ", Span(command, Style.STRONG), Span(f"   {why}" if why else "", Style.FAINT))]


def next_command(summary: Summary, *, driven: bool = True) -> tuple[str, str]:
    """The most likely next command, and why."""
    run, tasks = summary.run, summary.tasks
    if summary.state == "paused":
        if summary.reason is not None and summary.reason.cause == PauseCause.BUDGET:
            return f"evalfleet resume {run} --budget USD", "with a larger budget"
        return f"evalfleet resume {run}", "once the cause is gone"
    if summary.state == "queued":
        return f"evalfleet resume {run}", "drives it; no controller does yet"
    if summary.state == "running" and not driven:
        return f"evalfleet resume {run}", "goes on with it; no controller drives it now"
    if summary.state == "running":
        return f"evalfleet watch {run}", ""
    if summary.study is not None:
        if summary.study.best is None:
            return f"evalfleet study show {run}", "shows every trial"
        return f"evalfleet study best {run} --format flags", "prints what to paste"
    if tasks.held and not summary.imported:
        return f"evalfleet retry {run} --only held", f"gives the {text.count(tasks.held, 'held task')} new attempts"
    if tasks.failed:
        return f"evalfleet retry {run} --only failed", "or look at one with `evalfleet logs RUN KEY`"
    return f"evalfleet report {run} --html report.html", "the same with every task, to share"
