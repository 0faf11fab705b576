"""Copies of a home: taking the original's place."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from evalfleet.errors import NotFound
from evalfleet.store.home.place import is_there
from evalfleet.store.open import open_store


def take_place(home: Path) -> None:
    """Let a copy of a home replace the original, and say so. Does nothing to a home that is not a copy.

    Raises:
        CopiedHome: the original is in use.
        NotFound: there is no home.
    """
    if not is_there(home):
        raise NotFound(f"there is no home in {home}")
    with closing(open_store(home, copies=True)) as store:
        adopted = store.home.adopt(home)
    if adopted is None:
        click.echo("evalfleet: this home is not a copy; there is nothing to adopt", err=True)
        return
    was, now = adopted
    click.echo(
        f"evalfleet: this home ({now.id[:12]}) takes the place of {was.facts.path} ({was.id[:12]}): its runs, pools and machines are "
        "this home's from now on; do not use the original again",
        err=True,
    )
