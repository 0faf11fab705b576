"""`evalfleet backup` and `restore`."""

from __future__ import annotations

import click

from evalfleet import config
from evalfleet.cli.shared.document import print_answer
from evalfleet.cli.shared.options import home_option, json_option


@click.command("backup")
@click.argument("to", metavar="DIR|FILE.zip")
@json_option
@home_option
def backup(to: str, as_json: bool, home: str | None) -> None:
    """Back the home up, also while runs go on, and check what was written.

    A folder gets what it lacks since the backup before; a name that ends in .zip is one new file. It holds keys of the home: keep it safe.
    """
    from evalfleet.operations.housekeeping.backup import backup
    from evalfleet.report.text import count, size

    done = backup(config.load(home).home, to)
    text = f"backed {done.home} up to {done.to}: {count(done.rows, 'row')}, {count(done.files, 'file')}, {size(done.bytes)}"
    print_answer(as_json, done, f"{text}; {count(done.copied, 'file')} of these are new ({size(done.copied_bytes)})")


@click.command("restore")
@click.argument("source", metavar="DIR|FILE.zip")
@click.option("--adopt", is_flag=True, help="Take the place of the original, which must be gone for good.")
@click.option("--replace", is_flag=True, help="Set a home aside that is there and that nothing uses.")
@click.option("--store", metavar="URL", help="An empty PostgreSQL database that remembers the runs from then on.")
@json_option
@home_option
def restore(source: str, adopt: bool, replace: bool, store: str | None, as_json: bool, home: str | None) -> None:
    """Make a home of a backup, at --home. Every file is checked first; a home that is there is never written into.

    Without --adopt it is a copy to look into, which acts on nothing.
    """
    from evalfleet.operations.housekeeping.restore import restore
    from evalfleet.report.text import count

    done = restore(source, config.load(home).home, adopt=adopt, replace=replace, store=store)
    text = f"restored {count(done.files, 'file')} and {count(done.rows, 'row')} to {done.home}; every file was checked"
    text += "" if done.kept is None else f". The home that was there is now {done.kept}"
    text += "" if done.adopted else ". It is a copy to look into; --adopt of `evalfleet resume` or `doctor` lets it act"
    print_answer(as_json, done, text)
