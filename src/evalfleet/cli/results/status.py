"""`evalfleet status`. Loads no event loop: it is asked often."""

from __future__ import annotations

import click

from evalfleet import config
from evalfleet.answers.runs import RunList, RunRow, RunStatus, Worker
from evalfleet.cli.shared.completion import complete_run
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option, runs_of, server_option, tag_option
from evalfleet.config import Settings
from evalfleet.model import RunFilter, RunState
from evalfleet.report import text
from evalfleet.report.reader import opened_run
from evalfleet.report.terminal import lines
from evalfleet.report.terminal.lines import STATE_STYLES, Column, Line, Span, Style, columns, line, table, wrap

_SHOWN = 20
_STATES = [str(state) for state in RunState]
_FOUND = " " * 10  # under the names
_WIDEST = 200  # of the list of workers, which fills what it gets


@click.command("status")
@click.argument("run", required=False, metavar="[RUN]", shell_complete=complete_run)
@click.option(
    "-n", "limit", type=click.IntRange(min=1), default=_SHOWN, show_default=True, help="Maximum number of runs to list."
)
@click.option(
    "--state", "states", multiple=True, type=click.Choice(_STATES), help="Only runs in this state; repeatable."
)
@click.option("--search", metavar="TEXT", help="Only runs whose id or name contains this text.")
@click.option("--owner", metavar="USER", help="Only runs of this user.")
@click.option("--project", metavar="NAME", help="Only runs of this project.")
@tag_option("Only runs with this tag")
@server_option
@json_option
@home_option
def command(
    run: str | None,
    limit: int,
    states: tuple[str, ...],
    search: str | None,
    owner: str | None,
    project: str | None,
    tags: dict[str, str],
    server: str | None,
    as_json: bool,
    home: str | None,
) -> None:
    """List runs, newest first, or show one run: progress, workers, and what it is waiting for."""
    settings = config.load(home)
    if run is None:
        wanted = RunFilter(states=states, search=search, owner=owner, project=project, tags=tags)
        _list_runs(settings, server, limit, wanted, as_json=as_json)
    elif server is not None:
        _show_summary(settings, server, run, as_json=as_json)
    else:
        _show_run(settings, run, as_json=as_json)


def _list_runs(settings: Settings, server: str | None, limit: int, wanted: RunFilter, *, as_json: bool) -> None:
    found = runs_of(settings, server).list_runs(limit, wanted)
    if as_json:
        print_document(RunList(runs=found.runs))
    elif found.runs:
        lines.write(_table(found.runs, found.now), colour=settings.colour)
    elif wanted != RunFilter():
        click.echo("no run matches")
    elif server is not None:
        click.echo(f"No runs at {text.printable(server)} yet.")
    else:
        click.echo(f"No runs in {text.printable(str(settings.home))} yet. Start one with `evalfleet run TASKS.toml`.")


def _table(runs: list[RunRow], now: float) -> list[Line]:
    from evalfleet.report.studies.found import found_short

    teams = any(run.project or run.tags for run in runs) or len({run.owner for run in runs}) > 1
    heads = [
        Column("run"),
        Column("name", most=24),
        *([Column("owner", most=16), Column("project", most=16), Column("tags", most=24)] if teams else []),
        Column("state"),
        Column("tasks", right=True),
        Column("passed", right=True),
        Column("failed", right=True),
        Column("held", right=True),
        Column("valid", right=True),
        Column("cost", right=True),
        Column("age", right=True),
    ]
    rows: list[list[Span]] = []
    for run in runs:
        tasks, state = run.tasks, run.state
        settled = tasks.total - tasks.queued - tasks.running
        abandoned = state == "running" and not run.driven
        rows.append(
            [
                Span(run.run, Style.STRONG),
                Span(text.printable(run.name)),
                *(_whose(run) if teams else ()),
                Span("not driven", Style.WARN) if abandoned else Span(state, STATE_STYLES[state]),
                Span(f"{settled:,}/{tasks.total:,}"),
                _passed(run),
                Span(f"{tasks.failed:,}", Style.BAD if tasks.failed else Style.FAINT),
                Span(f"{tasks.held:,}", Style.WARN if tasks.held else Style.FAINT),
                Span(text.percent(run.scores.valid)),
                Span(text.money(run.cost_usd) if run.cost_usd else text.NONE),
                Span(text.age(now - run.created_at)),
            ]
        )
    head, *body = table(heads, rows, columns())
    shown = [head]
    for run, row in zip(runs, body, strict=True):
        shown.append(row)
        if run.study is not None:  # it has no score; what it found does not fit into a column
            shown += wrap(line(Span(f"{_FOUND}{found_short(run.study)}", Style.FAINT)), columns(), indent=len(_FOUND))
    return shown


def _whose(run: RunRow) -> list[Span]:
    tags = " ".join(f"{key}={value}" for key, value in run.tags.items())
    return [Span(text.printable(word) or text.NONE) for word in (run.owner, run.project, tags)]


def _passed(run: RunRow) -> Span:
    passed = run.scores.passed
    if run.study is not None:  # a trial is measured, not passed
        return Span(text.NONE, Style.FAINT)
    return Span(f"{passed:,}", Style.GOOD if passed else Style.FAINT)


def _show_summary(settings: Settings, server: str, name: str, *, as_json: bool) -> None:
    from evalfleet.report.terminal.summary import overview

    summary, driven = runs_of(settings, server).summary(name, results=False)
    if as_json:
        print_document(summary)
    else:
        lines.write(overview(summary, lines.columns(), driven=driven), colour=settings.colour)


def _show_run(settings: Settings, name: str, *, as_json: bool) -> None:
    from evalfleet.report import live
    from evalfleet.report.summary import summarise
    from evalfleet.report.terminal.summary import overview

    with opened_run(settings.home, name) as (store, run):
        summary = summarise(store, run, results=False)
        over = summary.state.is_over
        workers = () if over else live.workers(store, run)
        waits = live.awaited(store.events.workers(run.id)) if summary.state is RunState.RUNNING else None
        driven = not over and store.runs.driver(run.id) is not None
    if as_json:
        told = [Worker.copy_of(one, state=str(one.state), task=one.key) for one in workers]
        print_document(RunStatus.copy_of(summary, driven=driven, waits=waits, workers=told))
        return
    shown = overview(summary, lines.columns(), driven=driven, options=settings.home_option)
    if waits is not None:
        shown[-1:-1] = [*wrap(line(Span(text.printable(live.waiting(waits)), Style.WARN)), lines.columns()), []]
    busy = tuple(one for one in workers if one.key is not None)
    if busy:
        from evalfleet.report.terminal.live import worker_lines

        shown[-1:-1] = [*worker_lines(busy, min(lines.columns(), _WIDEST)), []]
    lines.write(shown, colour=settings.colour)
