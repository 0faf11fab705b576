"""`evalfleet import`."""
# ruff: noqa: N999 - the command's name, which no statement needs to import

from __future__ import annotations

import click

from evalfleet.cli.shared.options import home_option, json_option


@click.command("import")
@click.argument("folder", metavar="DIR")
@click.option("--format", "format", type=click.Choice(["waa"]), required=True, help="Whose results they are.")
@click.option("--name", help="What to call the run.  [default: the format's and the model's name]")
@json_option
@home_option
def command(folder: str, format: str, name: str | None, as_json: bool, home: str | None) -> None:
    """Make a completed run of the results that another program left in a folder, to report and compare.

    waa is the result folder of Windows Agent Arena. A task with a result.txt has that verdict; one without is held,
    with its exception as evidence. Nothing is run. The same results are imported once.
    """
    import os

    from evalfleet import config
    from evalfleet.benchmarks.waa.tree import read_tree
    from evalfleet.operations.import_results import import_tasks
    from evalfleet.report import text
    from evalfleet.store.database.sqlite import open_store

    settings = config.load(home)
    tree = read_tree(folder)
    store = open_store(settings.home)
    try:
        done = import_tasks(
            store,
            settings.home,
            tree.tasks,
            name=name or f"{format}-{tree.model}",
            source=os.path.abspath(folder),
        )
        verdicts = sum(task.score is not None for task in tree.tasks)
        missing = len(tree.tasks) - verdicts
    finally:
        store.close()
    if as_json:
        import json

        row = {"run": done.run.id, "name": done.run.name, "new": done.new, "tasks": len(tree.tasks)}
        click.echo(json.dumps({**row, "verdicts": verdicts, "no_verdict": missing}))
        return
    shown = text.printable(done.run.name)
    if not done.new:
        click.echo(f"These results are in the home already, as run {done.run.id} ({shown}). Nothing was imported.")
        return
    held = f", {text.count(missing, 'task')} without one held" if missing else ""
    click.echo(f"Imported {text.count(verdicts, 'verdict')} as run {done.run.id} ({shown}){held}")
    click.echo(f"`evalfleet report {done.run.id}` shows it")
