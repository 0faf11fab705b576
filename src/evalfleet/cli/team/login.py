"""`evalfleet login`."""

from __future__ import annotations

from typing import TextIO

import click

from evalfleet.cli.shared.document import print_answer
from evalfleet.cli.shared.options import home_option, json_option


@click.command("login")
@click.argument("url", metavar="https://HOST")
@click.option(
    "--token-file",
    type=click.File("r"),
    metavar="FILE",
    help="File with the token; '-' is standard input.  [default: ask]",
)
@json_option
@home_option
def command(url: str, token_file: TextIO | None, as_json: bool, home: str | None) -> None:
    """Sign in to a server, for commands with --server.

    The token is asked for, or read from a file; `evalfleet token new` makes one at the server. It is kept in a file that
    only you can read.
    """
    del home
    from evalfleet.answers.server import Me
    from evalfleet.errors import InputError
    from evalfleet.remote.http import ServerApi, checked_url
    from evalfleet.remote.servers import KnownServer, file, keep

    address = checked_url(url)
    given: str = click.prompt("Token", hide_input=True, err=True) if token_file is None else token_file.read()
    token = given.strip()
    if not token or not token.isprintable() or " " in token:
        raise InputError("that is not a token; it is one word, such as ef_…")
    server = KnownServer(url=address, token=token)
    me = ServerApi(server).get("me", Me)
    keep(server)
    print_answer(as_json, me, f"signed in to {address} as {me.user or me.name}, {me.role}; the token is in {file()}")
