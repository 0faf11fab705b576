"""Repeated tasks in the HTML report: pass@k over all tasks, and a row per task."""

from __future__ import annotations

from html import escape

from evalfleet.answers.summary import RepeatedTask, RepeatSummary
from evalfleet.report import text
from evalfleet.report.html import charts
from evalfleet.report.repeats import shown

_MOST_ROWS = 500
_OPEN_ROWS = 15


def repeat_table(found: RepeatSummary | None) -> str:
    """Return the section's body; nothing where no task was repeated."""
    if found is None or not found.pass_at:
        return ""
    passes = shown(found.pass_at)
    rows = "".join(
        f'<div class="name">pass@{one.k}</div><div>{charts.interval_bar(one.score, one.ci95, scale=False)}</div>'
        f'<div class="num">{text.percent(one.score)}</div><div class="num faint">{text.interval(one.ci95)}</div>'
        for one in passes
    )
    spread = "" if found.deviation is None else f" Within a task scores spread by {found.deviation * 100:.1f} points."
    return (
        f"<p>{found.episodes:,} episodes of {text.count(found.tasks, 'task')}: {found.always:,} always solved, "
        f"{found.sometimes:,} at times, {found.never:,} never.{spread} pass@k is the chance that one of k episodes "
        f'succeeds. Intervals take the task as the unit.</p><div class="domains">{rows}</div>'
        f"{_tasks(found.by_task or [], [one.k for one in passes])}"
    )


def _tasks(tasks: list[RepeatedTask], ks: list[int]) -> str:
    """Those that are neither always nor never solved first: there luck decides."""
    ordered = sorted(tasks, key=lambda one: (not 0 < one.successes < one.counted, one.score or 0.0))
    heads = "".join(f'<th class="num wideonly">pass@{k}</th>' for k in ks)
    rows = "".join(_row(one, ks) for one in ordered[:_MOST_ROWS])
    more = len(ordered) - _MOST_ROWS
    rest = f'<p class="faint">and {more:,} more in <code>evalfleet report --json</code></p>' if more > 0 else ""
    return (
        f"<details{' open' if len(ordered) <= _OPEN_ROWS else ''}><summary>By task</summary>"
        '<div class="wide"><table><thead><tr><th>Task</th><th class="num">Episodes</th><th class="num">Mean</th>'
        f'<th class="num">Range</th><th class="num wideonly">Deviation</th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
        f"{rest}</details>"
    )


def _row(one: RepeatedTask, ks: list[int]) -> str:
    counted, episodes = one.counted, one.episodes
    low, high, deviation = one.low, one.high, one.deviation
    cells = [
        f"{counted:,}" if counted == episodes else f"{counted:,} of {episodes:,}",
        text.percent(one.score),
        text.NONE if low is None else f"{low:.3g}{text.DASH}{high:.3g}",
    ]
    wide = [text.NONE if deviation is None else f"{deviation:.2f}"]
    wide += [text.percent(one.pass_at[k - 1]) if k <= counted else text.NONE for k in ks]
    return (
        f"<tr><td>{escape(text.printable(one.task))}</td>"
        + "".join(f'<td class="num">{cell}</td>' for cell in cells)
        + "".join(f'<td class="num wideonly">{cell}</td>' for cell in wide)
        + "</tr>"
    )
