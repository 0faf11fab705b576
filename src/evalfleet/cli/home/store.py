"""`evalfleet store`."""

from __future__ import annotations

import click

from evalfleet import config
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option


@click.group("store")
def command() -> None:
    """Move what a home remembers to another database, or share it with other folders."""


@command.command("join")
@json_option
@home_option
def join(as_json: bool, home: str | None) -> None:
    """Let this folder use the store at [store] url, which is that of a home elsewhere.

    The folder gets collected files, a spool and settings of its own. `evalfleet controller` joins by itself.
    """
    from evalfleet.operations.controllers import join_home

    done = join_home(config.load(home))
    if as_json:
        print_document(done)
    else:
        click.echo(f"{done.folder} joined the home {done.home}")


@command.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@json_option
@home_option
def copy(source: str, target: str, as_json: bool, home: str | None) -> None:
    """Copy all runs between a home and a PostgreSQL server, check the copy, and let the home use it.

    FROM and TO are a folder, an address (postgresql://USER@HOST/DATABASE), or the word 'home'. TO must be empty.
    """
    from evalfleet.operations.store_copy import copy_store

    done = copy_store(source, target, config.load(home).home)
    if as_json:
        print_document(done)
        return
    counts = ", ".join(f"{count:,} of {table}" for table, count in done.rows.items() if count)
    click.echo(
        f"copied {sum(done.rows.values()):,} rows ({counts}) from {done.source} to {done.target}; every row was compared"
    )
    if done.kept is not None:
        click.echo(f"what was used before is kept as {done.kept}")
