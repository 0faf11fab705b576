"""`evalfleet retry`."""

from __future__ import annotations

import click

from evalfleet.cli.options import home_option, json_option, run_argument


@click.command("retry")
@run_argument
@click.option(
    "--only", multiple=True, metavar="STATE|KEY", help="failed, held, cancelled, or a task's key; repeatable."
)
@click.option("-w", "--workers", type=click.IntRange(min=1), help="Tasks at a time, from now on.")
@click.option("-v", "--verbose", is_flag=True, help="Where lines are printed: claims and progress too.")
@json_option
@home_option
def command(
    run: str, only: tuple[str, ...], workers: int | None, verbose: bool, as_json: bool, home: str | None
) -> int:
    """Give tasks without a verdict a fresh allowance of attempts, and drive the run.

    Without --only: all failed and held tasks. Earlier attempts are kept. Where another controller drives the run, it is
    asked to do it. Exit codes as `evalfleet run`.
    """
    from evalfleet import config
    from evalfleet.cli.driving import Show, drive_and_report
    from evalfleet.cli.steering import opened_for_writing, say
    from evalfleet.engine.asking import ask_or_do
    from evalfleet.engine.controller import reopen
    from evalfleet.model import Verb
    from evalfleet.report.summary import exit_code, summarise
    from evalfleet.report.text import count as counted

    settings = config.load(home)
    with opened_for_writing(settings, run) as (store, found):
        last = store.last_event(found.id)
        owned, answer = ask_or_do(store, found, Verb.RETRY, {"only": list(only)})
        tasks = answer["tasks"]
        if owned is None or not tasks:
            say(as_json, {"run": found.id, **answer}, f"{counted(len(tasks), 'task')} to retry in run {found.id}")
            if owned is not None:
                store.leave(owned)
            return 0 if owned is None else exit_code(summarise(store, found, results=False))
        if not as_json:
            click.echo(f"retrying {counted(len(tasks), 'task')} of run {found.id}")
        show = Show(as_json=as_json, verbose=verbose, after=last.number if last else 0)
        return drive_and_report(settings, store, reopen(store, owned, workers=workers), show)
