"""`evalfleet judge`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from evalfleet.cli.shared.document import document
from evalfleet.cli.shared.options import home_option, json_option, run_argument

if TYPE_CHECKING:
    from evalfleet.model import Run
    from evalfleet.operations.rejudge import Change
    from evalfleet.report.terminal.lines import Line, Span

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
    from evalfleet import config
    from evalfleet.operations.rejudge import judge_run

    settings = config.load(home)
    judged = judge_run(settings, run, dry_run=dry_run)
    found, changes, tasks = judged.run, judged.changes, judged.tasks
    if as_json:
        click.echo(document(_answer(found, changes, tasks, dry_run=dry_run)))
        return

    from evalfleet.report.terminal import lines

    lines.write(_shown(found, changes, tasks, dry_run=dry_run), colour=settings.colour)


def _answer(run: Run, changes: list[Change], tasks: dict[str, int], *, dry_run: bool) -> dict[str, Any]:
    from evalfleet.core.failures.kinds import JUDGE_VERSION
    from evalfleet.model import Failure

    return {
        "run": run.id,
        "judge_version": JUDGE_VERSION,
        "dry_run": dry_run,
        "changes": [
            {
                "key": change.key,
                "attempt": change.attempt.number,
                "from": _judgement(change.attempt.failure, change.attempt.outcome),
                "to": _judgement(change.judged, change.outcome),
                "task": _moved(change),
                "applied": not dry_run and isinstance(change.judged, Failure),
            }
            for change in changes
        ],
        "tasks": {"total": sum(tasks.values()), **tasks},
    }


def _judgement(judged: Any, outcome: str | None) -> dict[str, Any]:
    from evalfleet.model import Verdict

    if isinstance(judged, Verdict):
        return {"outcome": outcome, "score": judged.score, "success": judged.success}
    return {"outcome": outcome, "kind": judged.kind, "blame": judged.blame, "evidence": judged.evidence}


def _moved(change: Change) -> dict[str, str] | None:
    move = change.move
    return {"from": str(move[0]), "to": str(move[1])} if move else None


def _shown(run: Run, changes: list[Change], tasks: dict[str, int], *, dry_run: bool) -> list[Line]:
    from evalfleet.core.failures.kinds import JUDGE_VERSION
    from evalfleet.model import Verdict
    from evalfleet.report import text
    from evalfleet.report.terminal.lines import Column, columns, line, table

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
    from evalfleet.report import text
    from evalfleet.report.terminal.lines import Span, Style

    moved = _moved(change)
    return [
        Span(text.printable(change.key), Style.STRONG),
        Span(str(change.attempt.number)),
        Span(_words(change.attempt.failure, change.attempt.outcome)),
        Span(_words(change.judged, change.outcome)),
        Span(f"{moved['from']} → {moved['to']}" if moved else _NONE, Style.WARN if moved else Style.FAINT),
    ]


def _words(judged: Any, outcome: str | None) -> str:
    from evalfleet.model import Verdict

    if isinstance(judged, Verdict):
        from evalfleet.report.text import verdict

        return verdict(judged.score, success=judged.success)
    return f"{judged.kind}, {judged.blame} ({outcome})"
