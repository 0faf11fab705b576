"""The parts of the HTML report that only a study has: what it found, its parameters, its history and every trial.

Every text from outside is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from evalfleet.answers.studies import Configuration, StudyFacts, StudyParameter, Trial
from evalfleet.report import text
from evalfleet.report.studies.found import NO_BEST, measured, nothing, pairs, reached

_WIDTH, _HEIGHT, _EDGE = 1000.0, 200.0, 12.0


def cards(facts: StudyFacts) -> str:
    """The best configuration and whether it keeps the limits; the baseline beside it."""
    best, nearest, baseline = facts.best, facts.nearest, facts.baseline
    title = "Nearest configuration" if nearest and not best else "Best configuration"
    shown = _configuration(title, facts, best or nearest, _said(facts))
    leader = best or nearest
    if baseline is not None and leader is not None and not leader.is_baseline:
        limits = f"breaks {'; '.join(baseline.broken)}" if baseline.broken else _kept(facts)
        shown += _configuration("Baseline", facts, baseline, [limits])
    return f'<section class="cards"><div class="scores">{shown}</div></section>'


def _configuration(title: str, facts: StudyFacts, one: Configuration | None, said: Iterable[str]) -> str:
    notes = "".join(f"<p>{_safe(note)}</p>" for note in said if note)
    if one is None:
        return f'<div class="card"><h3>{title}</h3><b>{nothing(facts)}</b>{notes}</div>'
    return (
        f'<div class="card"><h3>{title}</h3><b>{escape(reached(facts, one))}</b><p>{escape(measured(one))}</p>'
        f'<p class="evidence">{escape(pairs(one.parameters)) or "no parameters"}</p>{notes}</div>'
    )


def _said(facts: StudyFacts) -> list[str]:
    if facts.best is None:
        nearest = facts.nearest
        return [] if nearest is None else [f"{NO_BEST}; this one is nearest, and breaks {'; '.join(nearest.broken)}"]
    alone = facts.confirmed.text if facts.confirmed else ""
    return [_kept(facts), facts.verdict or "", alone, f"Flags: {facts.flags}" if facts.flags else ""]


def _kept(facts: StudyFacts) -> str:
    return f"keeps {'; '.join(facts.constraints)}" if facts.constraints else ""


def parameters(facts: StudyFacts) -> str:
    """What was searched, what the best has of it, and how much each matters."""
    shares = {one.name: one.share for one in facts.importance or ()}
    leader = facts.best or facts.nearest
    best = {} if leader is None else leader.parameters
    rows = "".join(
        f"<tr><td>{_safe(one.name)}</td><td>{_safe(_range(one))}</td><td>{_safe(_value(best.get(one.name)))}</td>"
        f'<td class="num">{text.percent(shares.get(one.name))}</td></tr>'
        for one in facts.parameters
    )
    goals = ", ".join(f"{way} {name}" for goal in facts.objective for way, name in goal.items())
    limits = f"; limits: {'; '.join(facts.constraints)}" if facts.constraints else ""
    return (
        f"<p>{_safe(goals)}{_safe(limits)}; {facts.searched:,} of {facts.wanted:,} trials by {_safe(facts.strategy)}.</p>"
        f'<div class="wide"><table><thead><tr><th>Parameter</th><th>Searched</th><th>{"Best" if facts.best else "Nearest"}</th>'
        f'<th class="num">Importance</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _range(one: StudyParameter) -> str:
    said = ", ".join(map(str, one.values or ())) if one.type == "choice" else f"{one.low:g} to {one.high:g}"
    said += " (logarithmic)" if one.log else ""
    return f"{said}, when {one.when}" if one.when else said


def history(facts: StudyFacts) -> str:
    """Each measurement as a point in the order of their ends, and the best until then that keeps all limits as a line."""
    points = facts.history
    if len(points) < 2:
        return ""
    values = [point.value for point in points]
    low, high = min(values), max(values)

    def place(index: int, value: float) -> tuple[float, float]:
        x = _EDGE + index * (_WIDTH - 2 * _EDGE) / (len(points) - 1)
        share = 0.5 if high == low else (value - low) / (high - low)
        return x, _EDGE + (1 - share) * (_HEIGHT - 2 * _EDGE)

    dots = "".join(
        f'<circle class="{"kept" if point.feasible else "broken"}" cx="{x:.1f}" cy="{y:.1f}" r="5">'
        f"<title>trial {point.number}: {point.value:.6g}{'' if point.feasible else ', breaks a limit'}</title></circle>"
        for point, (x, y) in ((one, place(index, one.value)) for index, one in enumerate(points))
    )
    leads = [place(index, one.best) for index, one in enumerate(points) if one.best is not None]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in leads)
    metric = next(iter(facts.objective[0].values()))
    return (
        f'<svg class="history" width="100%" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" '
        f'aria-label="{_safe(metric)} of {len(points)} trials in the order of their ends">'
        f'<polyline points="{line}"/>{dots}</svg>'
        f'<p class="faint">{_safe(metric)} of each trial, from {low:.6g} to {high:.6g}; the line is the best so far that keeps all limits, '
        "hollow points break one.</p>"
    )


def trials(facts: StudyFacts) -> str:
    """Every trial with its parameters and what it measured, or why it did not."""
    names = list(dict.fromkeys(name for row in facts.trials for name in row.parameters))
    metrics = list(dict.fromkeys(name for row in facts.trials for name in row.metrics))
    heads = "".join(f"<th>{_safe(name)}</th>" for name in ("Trial", "Role", *names))
    heads += "".join(f'<th class="num">{_safe(name)}</th>' for name in (*metrics, "Time")) + "<th></th>"
    rows = "".join(_trial(row, names, metrics) for row in facts.trials)
    return f'<div class="wide"><table class="trials"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _trial(row: Trial, names: list[str], metrics: list[str]) -> str:
    cells = [row.key, row.role, *(_value(row.parameters.get(name)) for name in names)]
    numbers = [_value(row.metrics.get(name)) for name in metrics]
    told = "breaks " + "; ".join(row.broken) if row.broken else row.reason or ""
    if row.progress != "measured":
        told = f"{row.progress}: {told}" if told else row.progress
    return (
        f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in cells)}"
        f"{''.join(f'<td class=num>{_safe(number)}</td>' for number in (*numbers, text.span(row.duration_s)))}"
        f'<td class="reason">{_safe(told)}</td></tr>'
    )


def _value(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _safe(value: object) -> str:
    return escape(text.printable(str(value)))
