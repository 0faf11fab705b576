"""`evalfleet logout`."""

from __future__ import annotations

import click

from evalfleet.answers.team import SignedOut
from evalfleet.cli.shared.document import print_answer
from evalfleet.cli.shared.options import home_option, json_option


@click.command("logout")
@click.argument("server", metavar="HOST")
@json_option
@home_option
def command(server: str, as_json: bool, home: str | None) -> None:
    """Forget a server and its token. `evalfleet token revoke` at the server makes the token worthless."""
    del home
    from evalfleet.remote.servers import forget

    gone = forget(server)
    print_answer(as_json, SignedOut(url=gone.url), f"signed out of {gone.url}; its token is deleted here")
