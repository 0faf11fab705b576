"""`evalfleet tasks`."""

from __future__ import annotations

from typing import Any

import click

from evalfleet import config
from evalfleet.answers.runs import TaskList
from evalfleet.answers.task_result import TaskResult
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option, run_argument, runs_of, server_option
from evalfleet.model import TaskState
from evalfleet.operations.runs.tasks import SORTS, task_filter
from evalfleet.report import text
from evalfleet.report.terminal import lines
from evalfleet.report.terminal.lines import UNCUT, Column, Line, Span, Style, line, table, wrap
from evalfleet.report.text import verdict

_STATES = [str(state) for state in TaskState]
_SORTS = [word for sort in SORTS for word in (sort, f"-{sort}")]
_LEAST_KEY = 12
_MOST_DOMAIN = 16


@click.command("tasks")
@run_argument
@click.option("--failed", is_flag=True, help="Only tasks that ended without a verdict: failed and held.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(_STATES), help="Only tasks in this state; repeatable."
)
@click.option("--domain", metavar="PATTERN", help="Only matching domains, such as 'click*'.")
@click.option(
    "--sort",
    type=click.Choice(_SORTS),
    default="number",
    metavar="WORD",
    help=f"Sort by {', '.join(SORTS)}; a leading - reverses the order.  [default: number]",
)
@server_option
@json_option
@home_option
def command(
    run: str,
    failed: bool,
    states: tuple[str, ...],
    domain: str | None,
    sort: str,
    server: str | None,
    as_json: bool,
    home: str | None,
) -> None:
    """List the tasks of a run: verdict or state, attempts, duration, and why a task failed or is held.

    `evalfleet logs RUN KEY` prints what a task wrote. With --json `tasks`, each as one of `results` in `evalfleet report --json`.
    """
    settings = config.load(home)
    wanted = task_filter(states=states, failed=failed, domain=domain, sort=sort)
    run_id, tasks = runs_of(settings, server).tasks(run, wanted)
    if as_json:
        print_document(TaskList(run=run_id, tasks=tasks))
    elif tasks:
        lines.write(_table(tasks, lines.columns()), colour=settings.colour)
    else:
        click.echo(f"no task of run {run_id} matches")


def _table(tasks: list[TaskResult], width: int) -> list[Line]:
    """A row per task. On a terminal the reason is on lines of its own below the row; elsewhere it is the last column."""
    reasons = [text.printable(task.reason or "") for task in tasks]
    rows = [_row(task) for task in tasks]
    if width >= UNCUT:
        heads = [*_columns(None, None), Column("reason")]
        return table(heads, [[*row, Span(reason)] for row, reason in zip(rows, reasons, strict=True)], width)
    heads = _columns(None, _MOST_DOMAIN)
    widest = [max(len(head.title), *(text.width(row[i].text) for row in rows)) for i, head in enumerate(heads)]
    widths = [min(widest[i], head.most or width) for i, head in enumerate(heads)]
    key = max(_LEAST_KEY, width - sum(widths[1:]) - 2 * (len(heads) - 1))
    rows = [[Span(text.clip_middle(row[0].text, key), row[0].style), *row[1:]] for row in rows]
    head, *body = table(_columns(key, _MOST_DOMAIN), rows, width)
    shown = [head]
    for row, reason in zip(body, reasons, strict=True):
        shown.append(row)
        if reason:
            shown += wrap(line(Span(f"    {reason}", Style.FAINT)), width, indent=4)
    return shown


def _columns(key: int | None, domain: int | None) -> list[Any]:
    return [
        Column("task", most=key),
        Column("result"),
        Column("domain", most=domain),
        Column("attempts", right=True),
        Column("time", right=True),
    ]


def _row(task: TaskResult) -> list[Span]:
    words, style = _result(task)
    return [
        Span(text.printable(task.key), Style.STRONG),
        Span(words, style),
        Span(text.printable(task.domain)),
        Span(f"{task.attempts:,}"),
        Span(text.span(task.duration_s)),
    ]


def _result(task: TaskResult) -> tuple[str, Any]:
    """The verdict where there is one, else the state."""
    if task.score is None:
        styles = {TaskState.FAILED: Style.BAD, TaskState.HELD: Style.WARN, TaskState.RUNNING: Style.NAME}
        return str(task.state), styles.get(task.state, Style.FAINT)
    return verdict(task.score, success=bool(task.success)), Style.GOOD if task.success else Style.PLAIN
