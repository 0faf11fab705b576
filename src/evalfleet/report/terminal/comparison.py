"""A comparison of two runs as a screen of text."""

from __future__ import annotations

from evalfleet.answers.comparison import Comparison, Side, SuccessChange
from evalfleet.report import text
from evalfleet.report.compare import chance, points
from evalfleet.report.terminal.lines import STATE_STYLES, Column, Line, Span, Style, apart, line, table, wrap

_MOST_FLIPS = 20
_MOST_LEFT_OUT = 10
_MOST_DOMAINS = 30
_STYLES = {"b_better": Style.GOOD, "a_better": Style.BAD}


def contrast(found: Comparison, width: int) -> list[Line]:
    """Return the whole screen."""
    blocks = [
        _heading(found, width),
        _conclusion(found, width),
        _sides(found, width),
        _domains(found, width),
        _flips(found, width),
        _left_out(found, width),
    ]
    return apart(blocks)


def _heading(found: Comparison, width: int) -> list[Line]:
    sides = [("A", found.a), ("B", found.b)]
    columns = [Column(""), Column("run"), Column("name", most=40), Column("tasks", right=True), Column("state")]
    rows = [
        [
            Span(name, Style.STRONG),
            Span(side.run, Style.STRONG),
            Span(text.printable(side.name), Style.NAME),
            Span(f"{side.tasks:,}"),
            Span(side.state, STATE_STYLES[side.state]),
        ]
        for name, side in sides
    ]
    return table(columns, rows, width)


def _conclusion(found: Comparison, width: int) -> list[Line]:
    tasks = found.tasks
    said = f"{tasks.paired:,} of {text.count(tasks.common, 'common task')} count in both runs"
    if 0 < tasks.distinct < tasks.paired:
        said += f"; they are episodes of {text.count(tasks.distinct, 'task')}, which is what is counted"
    only = [f"{count:,} only in {name}" for name, count in (("A", tasks.only_a), ("B", tasks.only_b)) if count]
    paragraphs = [
        line(Span(found.sentence, _STYLES.get(found.conclusion, Style.STRONG))),
        line(f"{said}{'; ' if only else ''}{', '.join(only)}{' (not compared)' if only else ''}."),
        *([line(f"Success alone: {_success(found.success)}.")] if found.success and not _is_plain(found) else []),
        *(line(Span(note, Style.WARN)) for note in found.notes),
    ]
    return [one for long in paragraphs for one in wrap(long, width)]


def _is_plain(found: Comparison) -> bool:
    """Whether scores and successes show the same change, so that one test is enough."""
    difference, success = found.difference, found.success
    return not (difference and success) or (difference.higher, difference.lower) == (
        success.gained,
        success.lost,
    )


def _success(success: SuccessChange) -> str:
    return f"{text.count(success.gained, 'task')} gained, {success.lost:,} lost, {chance(success.p_value)}"


def _sides(found: Comparison, width: int) -> list[Line]:
    a, b = found.a, found.b
    common = f"over the {text.count(found.tasks.common, 'common task')}"
    paired = f"over the {found.tasks.paired:,} that count in both"
    rows = [
        _share("Score", a.paired_score, b.paired_score, paired),
        _share("Valid score", a.scores.valid, b.scores.valid, common),
        _share("Strict score", a.scores.strict, b.scores.strict, common),
        _row("Successes", f"{a.successes:,}", f"{b.successes:,}", f"{b.successes - a.successes:+,}", paired),
        _time("Mean task", a.avg_task_duration_s, b.avg_task_duration_s, paired),
        _time("Time", a.duration_s, b.duration_s, "of the whole run"),
        *_money(a, b),
    ]
    heads = [Column(""), Column("A", right=True), Column("B", right=True), Column("B - A", right=True), Column("")]
    return table(heads, rows, width, indent=2)


def _row(name: str, a: str, b: str, change: str, meaning: str) -> list[Span]:
    return [Span(name), Span(a, Style.STRONG), Span(b, Style.STRONG), Span(change), Span(meaning, Style.FAINT)]


def _share(name: str, a: float | None, b: float | None, meaning: str) -> list[Span]:
    return _row(name, text.percent(a), text.percent(b), _signed(a, b), meaning)


def _signed(a: float | None, b: float | None) -> str:
    if a is None or b is None:
        return text.NONE
    change = points(b - a)
    return change if change.startswith("-") or change == "0.0" else f"+{change}"


def _time(name: str, a: float | None, b: float | None, meaning: str) -> list[Span]:
    change = text.NONE
    if a is not None and b is not None:
        change = f"{'+' if b >= a else '-'}{text.span(abs(b - a))}"
    return _row(name, text.span(a), text.span(b), change, meaning)


def _money(a: Side, b: Side) -> list[list[Span]]:
    rows: list[list[Span]] = []
    for name, usd_a, usd_b in (
        ("Cost", a.cost.total_usd, b.cost.total_usd),
        ("Cost per task", a.cost.cost_per_task_usd or 0.0, b.cost.cost_per_task_usd or 0.0),
    ):
        if usd_a or usd_b:
            change = f"{'+' if usd_b >= usd_a else '-'}{text.money(abs(usd_b - usd_a))}"
            rows.append(_row(name, text.money(usd_a), text.money(usd_b), change, "of the whole run"))
    return rows


def _domains(found: Comparison, width: int) -> list[Line]:
    if len(found.by_domain) < 2:
        return []
    heads = [
        Column("domain", most=32),
        Column("tasks", right=True),
        Column("A", right=True),
        Column("B", right=True),
        Column("B - A", right=True),
        Column("gained", right=True),
        Column("lost", right=True),
    ]
    domains = list(found.by_domain.items())
    rows = [
        [
            Span(text.printable(name)),
            Span(f"{one.tasks:,}"),
            Span(text.percent(one.score_a)),
            Span(text.percent(one.score_b)),
            Span(_signed(one.score_a, one.score_b), Style.STRONG),
            Span(f"{one.gained:,}"),
            Span(f"{one.lost:,}"),
        ]
        for name, one in domains[:_MOST_DOMAINS]
    ]
    note = "  Differences per domain are not tested: with several domains some differ by chance alone."
    more = _more(len(domains) - _MOST_DOMAINS, "domain")
    return [*table(heads, rows, width, indent=2), *more, *wrap(line(Span(note, Style.FAINT)), width, indent=2)]


def _flips(found: Comparison, width: int) -> list[Line]:
    lines: list[Line] = []
    for change, style in (("gained", Style.GOOD), ("lost", Style.BAD)):
        flips = [flip for flip in found.flips if flip.change == change]
        for flip in flips[:_MOST_FLIPS]:
            scores = f"{flip.score_a:g} → {flip.score_b:g}"
            key = text.clip_middle(text.printable(flip.key), max(8, width - 16 - text.width(scores)))
            lines.append(line("  ", Span(f"{change:<8}", style), f"  {key}  ", Span(scores, Style.FAINT)))
        lines += _more(len(flips) - _MOST_FLIPS, f"{change} task")
    return lines


def _left_out(found: Comparison, width: int) -> list[Line]:
    lines = [
        part
        for one in found.left_out[:_MOST_LEFT_OUT]
        for part in wrap(
            line("  ", Span("left out", Style.WARN), text.printable(f"  {one.key}: {one.reason}")), width, indent=12
        )
    ]
    return lines + _more(len(found.left_out) - _MOST_LEFT_OUT, "task that is left out", "tasks that are left out")


def _more(count: int, noun: str, plural: str | None = None) -> list[Line]:
    if count <= 0:
        return []
    return [line(Span(f"  and {text.count(count, noun, plural).replace(' ', ' more ', 1)} in `--json`", Style.FAINT))]
