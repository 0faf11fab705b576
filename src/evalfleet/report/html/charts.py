"""Parts of the HTML report that draw: inline SVG, sized by the page. Every text from outside is escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from evalfleet import duration
from evalfleet.answers.base import Range
from evalfleet.answers.summary import DomainSummary
from evalfleet.report import text
from evalfleet.report.timeline import SCALE, Bar, Timeline

LOOKS = {
    "pass": "passed",
    "wrong": "not passed",
    "own": "failed, the task's own",
    "infra": "failed, infrastructure",
    "off": "cancelled",
    "live": "running",
}
_LANE = 10.0
_SCALE = '<div class="scale"><span>0</span><span>50</span><span>100%</span></div>'
_MANY_LANES = 60


def interval_bar(score: float | None, bounds: Range | None, *, scale: bool = True) -> str:
    """A line from 0 to 100 % with the interval as a band and the score as a mark; with `scale` its ends are named."""
    marks = ""
    if bounds is not None:
        marks += f'<rect class="band" x="{bounds[0] * 100:.2f}%" y="5" width="{(bounds[1] - bounds[0]) * 100:.2f}%" height="6" rx="3"/>'
    if score is not None:
        marks += f'<circle class="mark" cx="{score * 100:.2f}%" cy="8" r="5.5"/>'
    return (
        '<svg class="interval" width="100%" height="16" role="img" aria-label="95% CI">'
        f'<rect class="track" x="0" y="7" width="100%" height="2" rx="1"/>{marks}</svg>'
        f"{_SCALE if scale else ''}"
    )


def stacked(parts: Sequence[tuple[str, float]], total: float, label: str) -> str:
    """A bar of parts (look, size) that together are at most `total`."""
    drawn, x = "", 0.0
    for look, size in parts:
        if size and total:
            share = size / total * 100
            drawn += f'<rect class="{look}" x="{x:.3f}%" y="0" width="{max(0.0, share - 0.15):.3f}%" height="14"/>'
            x += share
    return (
        f'<svg class="stack" width="100%" height="14" role="img" aria-label="{escape(label)}"><title>{escape(label)}</title>'
        f'<rect class="track" width="100%" height="14"/>{drawn}</svg>'
    )


def domains(by_domain: dict[str, DomainSummary], successes: dict[str, int]) -> str:
    """One row per domain: name, bar of what became of its tasks, valid score."""
    rows: list[str] = []
    for domain, facts in by_domain.items():
        passed = successes.get(domain, 0)
        parts = [
            ("pass", passed),
            ("wrong", facts.done - passed),
            ("own", facts.failed),
            ("infra", facts.held),
            ("off", facts.cancelled),
        ]
        counts = {"passed": passed, "not passed": facts.done - passed, "failed": facts.failed, "held": facts.held}
        counts |= {"queued": facts.queued, "running": facts.running}
        label = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        name = text.printable(domain) or "(none)"
        rows.append(
            f'<div class="name" title="{escape(name)}">{escape(name)}</div><div>{stacked(parts, facts.total, label)}</div>'
            f'<div class="num">{text.percent(facts.score_valid)}</div><div class="num faint">{facts.total:,}</div>'
        )
    head = '<div></div><div></div><div class="num faint">valid</div><div class="num faint">tasks</div>'
    return f'<div class="domains">{head}{"".join(rows)}</div>'


def legend(looks: tuple[str, ...] = tuple(LOOKS), words: dict[str, str] | None = None) -> str:
    words = {**LOOKS, **(words or {})}
    items = "".join(f'<li><i class="{look}"></i>{escape(words[look])}</li>' for look in looks)
    return f'<ul class="legend">{items}</ul>'


def lanes(timeline: Timeline, keys: dict[int, str]) -> str:
    """One lane per worker; names beside them and times below are text of the page, so that they never shrink."""
    count = len(timeline.lanes)
    height = 14 if count <= 24 else 11 if count <= _MANY_LANES else 6
    drawn = "".join(
        f'<rect class="cut" x="{cut.x:.1f}" y="0" width="{cut.width:.1f}" height="{count * _LANE:.0f}">'
        f"<title>nothing ran for {text.span(cut.seconds)}</title></rect>"
        for cut in timeline.cuts
    )
    for row, lane in enumerate(timeline.lanes):
        bars = "".join(_bar(bar, keys) for bar in lane.bars)
        drawn += f'<g transform="translate(0 {row * _LANE + 1:.0f})">{bars}</g>'
    names = "".join(f"<span>{escape(text.printable(lane.worker))}</span>" for lane in timeline.lanes)
    ticks = "".join(
        f'<span{" class=end" if x > 0.97 * SCALE else ""} style="left:{x / SCALE * 100:.2f}%">{duration.show(seconds)}</span>'
        for x, seconds in timeline.ticks
    )
    return (
        f'<div class="lanes{" many" if count > _MANY_LANES else ""}" style="--lane:{height}px">'
        f'<div class="names">{names}</div><div><svg width="100%" height="{count * height}" role="img" '
        f'aria-label="Attempts of {count} workers over time" viewBox="0 0 {SCALE:.0f} {count * _LANE:.0f}" '
        f'preserveAspectRatio="none">{drawn}</svg><div class="ticks">{ticks}</div></div></div>'
    )


def _bar(bar: Bar, keys: dict[int, str]) -> str:
    return (
        f'<rect class="{bar.look}" x="{bar.x:.1f}" width="{max(bar.width - 0.4, 0.5):.1f}" height="{_LANE - 2:.0f}">'
        f"<title>{escape(_title(bar.attempts, keys))}</title></rect>"
    )


def _title(attempts: tuple[dict[str, Any], ...], keys: dict[int, str]) -> str:
    first = attempts[0]
    if len(attempts) > 1:
        return f"{len(attempts)} attempts, from {text.printable(keys[first['task_number']])[:60]}"
    said = f"{text.printable(keys[first['task_number']])[:80]}, attempt {first['number']}: {first['outcome'] or first['state']}"
    if first["kind"]:
        said += f" ({first['kind']})"
    return f"{said}, {text.span(first['duration_s'])}" if first["duration_s"] is not None else said
