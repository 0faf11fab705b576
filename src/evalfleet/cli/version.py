"""`evalfleet version`."""

from __future__ import annotations

import click

from evalfleet.cli.options import home_option, json_option


@click.command("version")
@json_option
@home_option
def command(as_json: bool, home: str | None) -> None:
    """Show the versions of evalfleet, Python and SQLite."""
    import json
    import platform
    import sqlite3

    import evalfleet

    versions = {
        "version": evalfleet.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "platform": platform.platform(),
    }
    if as_json:
        click.echo(json.dumps(versions))
    else:
        click.echo("evalfleet {version} (Python {python}, SQLite {sqlite}, {platform})".format(**versions))
