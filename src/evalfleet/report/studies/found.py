"""What a study found, in the place where a run shows its scores. Loads nothing of `tune`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalfleet.answers.studies import Configuration, StudyFound, StudyRow
from evalfleet.report import text
from evalfleet.report.terminal.lines import Line, Span, Style, line

NO_BEST = "no configuration keeps all limits"


def found_short(found: StudyFound) -> str:
    """One line: the best configuration, what it reached, or that there is none."""
    best = found.best
    if best is None:
        return nothing(found) if found.nearest is None else NO_BEST
    return f"best: {reached(found, best)}  {pairs(best.parameters)}"


def nothing(found: StudyFound) -> str:
    """Why there is no best configuration yet, and no nearest one."""
    has_rungs = isinstance(found, StudyRow) and found.rungs is not None
    return "nothing has reached the highest rung yet" if has_rungs else "nothing is measured yet"


def measured(one: Configuration) -> str:
    """The trial, and how often it was measured."""
    times = "" if one.measurements == 1 else f", median of {one.measurements}"
    return f"{text.printable(one.trial)}{times}"


def reached(found: StudyFound, one: Configuration) -> str:
    """The values of the study's goals."""
    names = [name for goal in found.objective for name in goal.values()]
    return pairs({name: one.metrics[name] for name in names})


def found_lines(found: StudyFound) -> list[Line]:
    """Labelled lines, to be wrapped: the best, its parameters, its limits, and how it stands against the baseline."""
    one = found.best or found.nearest
    if one is None:
        return [_labelled("Best", Span(nothing(found)))]
    shown = Span(reached(found, one), Style.STRONG)
    lines: list[Line] = [
        _labelled("Best" if found.best else "Nearest", shown, Span(f"  {measured(one)}")),
        _labelled("Parameters", Span(pairs(one.parameters) or "none")),
    ]
    if found.constraints:
        limits = "; ".join(found.constraints)
        broken = "; ".join(one.broken)
        said = Span(f"kept: {limits}", Style.GOOD) if found.best else Span(f"{NO_BEST}: breaks {broken}", Style.WARN)
        lines.append(_labelled("Limits", said))
    for said in (found.verdict, found.confirmed and found.confirmed.text):
        if said:
            lines.append(_labelled("", Span(text.printable(said), Style.FAINT)))
    return lines


def _labelled(label: str, *spans: Span) -> Line:
    return line(f"  {label:<13}", *spans)


def pairs(values: Mapping[str, Any]) -> str:
    """Names and values on one line."""
    shown = (f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items())
    return text.printable(" ".join(shown))
