"""`evalfleet judge`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from evalfleet import config
from evalfleet.answers.attempts import JudgedAttempt, JudgedRun, Judgement, TaskMove
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option, run_argument
from evalfleet.core.failures.kinds import JUDGE_VERSION
from evalfleet.model import Failure, Verdict
from evalfleet.report import text
from evalfleet.report.terminal import lines
from evalfleet.report.terminal.lines import Column, Span, Style, columns, line, table

if TYPE_CHECKING:
    from evalfleet.model import Outcome
    from evalfleet.operations.runs.rejudge import Change, Rejudged
    from evalfleet.report.terminal.lines import Line

_NONE = "-"


@click.command("judge")
@run_argument
@click.option("--dry-run", is_flag=True, help="Show what would change, without changing it.")
@json_option
@home_option
def command(run: str, dry_run: bool, as_json: bool, home: str | None) -> None:
    """Judge the failed attempts of a finished run again, with today's judge and the patterns of your configuration.

    Nothing is run, and verdicts stay as they are. Tasks move between failed and held where the blame of the attempt that
    decided them moves to or from the task. A run that is being driven is refused (exit code 3).
    """
    from evalfleet.operations.runs.rejudge import judge_run

    settings = config.load(home)
    judged = judge_run(settings, run, dry_run=dry_run)
    if as_json:
        print_document(_answer(judged, dry_run=dry_run))
        return

    lines.write(_shown(judged, dry_run=dry_run), colour=settings.colour)


def _answer(judged: Rejudged, *, dry_run: bool) -> JudgedRun:
    changes = [
        JudgedAttempt(
            key=change.key,
            attempt=change.attempt.number,
            from_=_judgement(change.attempt.failure, change.attempt.outcome),
            to=_judgement(change.judged, change.outcome),
            task=TaskMove(from_=change.move[0], to=change.move[1]) if change.move else None,
            applied=not dry_run and isinstance(change.judged, Failure),
        )
        for change in judged.changes
    ]
    tasks = {"total": sum(judged.tasks.values()), **judged.tasks}
    return JudgedRun(run=judged.run.id, judge_version=JUDGE_VERSION, dry_run=dry_run, changes=changes, tasks=tasks)


def _judgement(judged: Any, outcome: Outcome | None) -> Judgement:
    if isinstance(judged, Verdict):
        return Judgement(outcome=outcome, score=judged.score, success=judged.success)
    return Judgement(outcome=outcome, kind=judged.kind, blame=judged.blame, evidence=judged.evidence)


def _shown(judged: Rejudged, *, dry_run: bool) -> list[Line]:
    run, changes, tasks = judged.run, judged.changes, judged.tasks
    verdicts = sum(isinstance(change.judged, Verdict) for change in changes)
    done = "would change" if dry_run else "changed"
    changed = text.count(len(changes) - verdicts, "judgement")
    shown = [line(f"run {run.id}, judged by version {JUDGE_VERSION}: {changed} {done}")]
    if changes:
        heads = [
            Column("task", most=40),
            Column("attempt", right=True),
            Column("was"),
            Column("is now"),
            Column("task is"),
        ]
        shown += table(heads, [_row(change) for change in changes], columns())
    if verdicts:
        shown.append(
            line(
                f"{text.count(verdicts, 'attempt')} would have a verdict by today's rules and "
                f"{'stays' if verdicts == 1 else 'stay'} as judged; "
                f"`evalfleet retry {run.id}` runs what failed again"
            )
        )
    words = {"done": "with a verdict"}
    counts = (f"{count:,} {words.get(state, state)}" for state, count in tasks.items() if count)
    shown.append(line("tasks: " + ", ".join(counts)))
    return shown


def _row(change: Change) -> list[Span]:
    moved = change.move
    return [
        Span(text.printable(change.key), Style.STRONG),
        Span(str(change.attempt.number)),
        Span(_words(change.attempt.failure, change.attempt.outcome)),
        Span(_words(change.judged, change.outcome)),
        Span(f"{moved[0]} → {moved[1]}" if moved else _NONE, Style.WARN if moved else Style.FAINT),
    ]


def _words(judged: Any, outcome: str | None) -> str:
    if isinstance(judged, Verdict):
        from evalfleet.report.text import verdict

        return verdict(judged.score, success=judged.success)
    return f"{judged.kind}, {judged.blame} ({outcome})"
