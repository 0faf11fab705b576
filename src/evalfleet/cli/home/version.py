"""`evalfleet version`."""

from __future__ import annotations

import click

from evalfleet.answers.home import Versions
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option


@click.command("version")
@json_option
@home_option
def command(as_json: bool, home: str | None) -> None:
    """Show the versions of evalfleet, Python and SQLite."""
    import platform
    import sqlite3

    import evalfleet

    found = Versions(
        version=evalfleet.__version__,
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        platform=platform.platform(),
        checkout=_checkout(),
    )
    if as_json:
        print_document(found)
        return
    click.echo(f"evalfleet {found.version} (Python {found.python}, SQLite {found.sqlite}, {found.platform})")
    if found.checkout:
        click.echo(f"runs from a checkout at {found.checkout}")


def _checkout() -> str | None:
    """The commit of the source tree that this runs from, which is newer than what was installed; None if it is installed."""
    import subprocess
    from pathlib import Path

    root = Path(__file__).resolve().parents[4]
    if not (root / ".git").exists():
        return None
    try:
        words = ["git", "describe", "--always", "--dirty=, changed", "--exclude=*"]
        done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
