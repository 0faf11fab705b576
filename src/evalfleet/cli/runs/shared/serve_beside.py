"""The dashboard of `run --serve`. It is a separate process, so that many readers do not slow the run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import click

from evalfleet.config import Settings, environment
from evalfleet.errors import Refused

_LEAVE_S = 10.0


@contextmanager
def page_beside(settings: Settings) -> Generator[None]:
    """Serve the dashboard until the block or this process ends, for any reason. Prints its address."""
    argv = [sys.executable, "-m", "evalfleet", "serve", "--no-drive", "--while-stdin", "--json", "--port", "0"]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,  # ends with us, and so does the server
        stdout=subprocess.PIPE,
        env={**environment(), "EVALFLEET_HOME": str(settings.home)},
        start_new_session=True,  # Ctrl-C is for the run
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        if not said:
            raise Refused("the dashboard did not start; `evalfleet serve` says why, or leave out --serve")
        click.echo(f"page: {json.loads(said)['address']}", err=True)
        yield
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(_LEAVE_S)
