"""The live view of a study as lines that fit a terminal: how far it is, the best so far, and what its trials do. Pure."""

from __future__ import annotations

from evalfleet.answers.studies import StudyFacts, Trial
from evalfleet.report import text
from evalfleet.report.live import LiveState
from evalfleet.report.studies.found import found_lines, pairs
from evalfleet.report.terminal.lines import Line, Span, Style, fit, line, wrap
from evalfleet.report.terminal.live import failure_lines, notices, title

_SEARCH = ("search", "promoted")
_STAGES = {"confirm": "measuring the winner alone", "repeat": "measuring the contenders again", "baseline": "baseline"}
_MOST_FAILURES = 4


def study_screen(
    facts: StudyFacts,
    live: LiveState,
    width: int,
    height: int,
    *,
    drift_s: float = 0.0,
    notice: str = "",
    hint: str = "",
) -> list[Line]:
    """Return at most `height` lines of at most `width` cells. The arguments are those of `screen`."""
    head = [
        title(live, width, drift_s),
        _bar(facts, width),
        _counts(facts),
        *(part for one in found_lines(facts) for part in wrap(one, width, indent=15)),
        *_rungs(facts),
        *notices(live, notice, width),
    ]
    if facts.crowded:
        head += wrap(line(Span(text.printable(facts.crowded), Style.WARN)), width)
    foot = [[], line(Span(hint, Style.FAINT))] if hint else []
    room = height - len(head) - len(foot) - 1
    # Waiting trials give way to a few failures; what the trials leave is for more of them.
    reserved = min(len(live.failures), 2) + 2 if live.failures and room >= 10 else 0
    trials = _trials(facts, room - reserved, live.now + drift_s)
    failures = min(len(live.failures), _MOST_FAILURES, room - len(trials) - 2)
    shown = failure_lines(live.failures[:failures], live, width) if failures > 0 else []
    return [fit(one, width) for one in [*head, *([[], *trials] if trials else []), *shown, *foot]][:height]


def _bar(facts: StudyFacts, width: int) -> Line:
    """Of the search alone: how much comes after it is known when it is over."""
    rows = [row for row in facts.trials if row.role in _SEARCH]
    wanted = facts.wanted if facts.rungs is None else sum(one.wanted for one in facts.rungs)
    total = max(wanted, len(rows), 1)
    ended = sum(row.progress != "open" for row in rows)
    after = f"  {ended}/{total} trials  {int(ended / total * 100)}%"
    left = room = max(10, width - text.width(after))
    bar: Line = []
    for progress, style in (
        ("measured", Style.GOOD),
        ("failed", Style.BAD),
        ("void", Style.WARN),
        ("open", Style.NAME),
    ):
        count = sum(row.progress == progress for row in rows)
        if count:
            size = min(left, max(1, round(room * count / total)))
            bar.append(Span(("╍" if progress == "open" else "━") * size, style))
            left -= size
    return [*bar, Span("─" * left, Style.FAINT), Span(after)]


def _counts(facts: StudyFacts) -> Line:
    counts = facts.counts
    parts = line(Span(f"{counts.measured} measured", Style.GOOD))
    for word, number, style in (
        ("failed", counts.failed, Style.BAD),
        ("held or cancelled", counts.void, Style.WARN),
        ("open", counts.open, Style.NAME),
    ):
        if number:
            parts.append(Span(f"  {number} {word}", style))
    stages = [_STAGES[row.role] for row in facts.trials if row.progress == "open" and row.role in _STAGES]
    parts.append(Span(f"  by {facts.strategy}", Style.FAINT))
    if stages:
        parts.append(Span(f"  {stages[-1]}", Style.STRONG))
    return parts


def _rungs(facts: StudyFacts) -> list[Line]:
    return [
        line(
            Span(f"rung {one.rung} ", Style.FAINT),
            f"{one.budget:g} {text.printable(facts.resource or '')}  {one.measured + one.failed}/{one.wanted}",
            Span(f"  {one.leads} leads" if one.leads else "", Style.FAINT),
        )
        for one in facts.rungs or ()
    ]


def _trials(facts: StudyFacts, room: int, now: float) -> list[Line]:
    """The open trials, those that run first."""
    rows = [row for row in facts.trials if row.progress == "open"]
    rows.sort(key=lambda row: (row.phase == "waiting", row.number))
    kept = rows if len(rows) <= room else rows[: max(room - 1, 0)]
    lines = [_trial(row, now) for row in kept]
    if len(kept) < len(rows) and room > 0:
        lines.append(line(Span(f"and {len(rows) - len(kept)} more open trials", Style.FAINT)))
    return lines


def _trial(row: Trial, now: float) -> Line:
    waits = row.phase == "waiting"
    gpus = f"GPU {','.join(map(str, row.gpus))}" if row.gpus else ""
    age = "" if waits or row.started_at is None else text.span(max(0.0, now - row.started_at))
    return line(
        Span("○ " if waits else "◌ " if row.phase == "deploying" else "● ", Style.FAINT if waits else Style.NAME),
        row.key,
        Span(f"  {row.phase:<12}  {age:>7}  {gpus:<8}  ", Style.FAINT),
        pairs(row.parameters),
    )
