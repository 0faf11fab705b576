"""A study in words."""

from __future__ import annotations

from collections.abc import Iterable

import click

from evalfleet.answers.studies import Configuration, Rung, StudyFacts, StudyRow
from evalfleet.report.studies.found import NO_BEST, measured, nothing, pairs
from evalfleet.report.text import count, printable
from evalfleet.tune.study import Study


def echo(lines: Iterable[str]) -> None:
    """Print lines; on a terminal long ones break between words."""
    from evalfleet.report.terminal.lines import columns, wrapped

    width = columns()
    click.echo("\n".join(wrapped(one, width, indent=4) for one in lines))


def plan(study: Study) -> str:
    """How many trials a study makes, and how."""
    if study.halving is None:
        return f"{study.trials} trials by {study.strategy}"
    counts = study.halving.counts(study.trials)
    steps = ", ".join(f"{n} with {b:g}" for n, b in zip(counts, study.halving.budgets, strict=True))
    return f"{sum(counts)} trials by halving ({steps} {printable(study.halving.resource)})"


def summary_lines(facts: StudyRow) -> list[str]:
    """The state of a study, and its best result so far."""
    counts = facts.counts
    head = (
        f"study {facts.run} ({printable(facts.name)}): {facts.state}; "
        f"{facts.searched} of {facts.wanted} trials by {facts.strategy}: {counts.measured} measured, "
        f"{counts.failed} failed, {counts.open} open, {counts.void} held or cancelled"
    )
    lines = [head]
    if facts.reason:
        lines.append(f"  {printable(facts.reason)}")
    if facts.crowded:
        lines.append(f"  {printable(facts.crowded)}")
    if facts.best is not None:
        lines += [_leader("best", facts.best), f"  {facts.verdict}"]
        if facts.confirmed is not None:
            lines.append(f"  {facts.confirmed.text}")
        lines += [_leader("front", one) for one in facts.front or ()]
        lines.append(f"  `evalfleet study best {facts.run} --format flags` prints what to paste")
    elif facts.nearest is not None:
        lines += [NO_BEST, _leader("nearest", facts.nearest), f"  breaks {'; '.join(facts.nearest.broken)}"]
    else:
        lines.append(nothing(facts))
    lines += [_rung(facts.resource, one) for one in facts.rungs or ()]
    return lines


def _rung(resource: str | None, one: Rung) -> str:
    leads = "" if one.leads is None else f"; {one.leads} leads"
    return (
        f"  rung {one.rung} ({one.budget:g} {printable(resource or '')}): {one.measured} of {one.wanted} measured, "
        f"{one.failed} failed, {one.open} open{leads}"
    )


def trial_lines(facts: StudyFacts) -> list[str]:
    lines = [f"{count(len(facts.trials), 'trial')}:"]
    for row in facts.trials:
        said = pairs(row.metrics) if row.progress == "measured" else printable(row.reason or "")
        limits = "" if not row.broken else f"  breaks {'; '.join(row.broken)}"
        lines.append(f"  {row.key}  {row.role:8}  {row.progress:8}  {pairs(row.parameters)}  {said}{limits}")
    return lines


def _leader(word: str, one: Configuration) -> str:
    return f"{word}: {measured(one)}  {pairs(one.parameters)}  ->  {pairs(one.metrics)}"
