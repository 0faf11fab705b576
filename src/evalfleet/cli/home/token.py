"""`evalfleet token`."""

from __future__ import annotations

from contextlib import closing

import click
from msgspec import convert
from msgspec.structs import asdict

from evalfleet import config
from evalfleet.answers.home import NewToken, RevokedToken, TokenList, TokenRow
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option
from evalfleet.errors import InputError
from evalfleet.model import Role
from evalfleet.report import text
from evalfleet.report.reader import opened
from evalfleet.store.open import open_store


@click.group("token")
def command() -> None:
    """Manage access tokens for the dashboard."""


@command.command("new")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([str(role) for role in Role]),
    help="The most that it allows.  [default: the user's role; reader without --user]",
)
@click.option("--user", metavar="USER", help="Whose it is; `evalfleet user add` makes users.")
@click.option(
    "--days", type=click.FloatRange(min=0, min_open=True), help="Days until the token expires.  [default: no expiry]"
)
@json_option
@home_option
def new(name: str, role: str | None, user: str | None, days: float | None, as_json: bool, home: str | None) -> None:
    """Create a token and print it once; only its digest is stored. A member can run programs on this machine."""
    from evalfleet.web.security import tokens

    if not name or text.printable(name) != name or len(name) > 100:
        raise InputError(f"{name!r} cannot name a token; use up to 100 printable characters")
    if name == tokens.START_NAME:
        raise InputError(f"{name!r} is the name of the tokens that `evalfleet serve` makes; choose another")
    with closing(open_store(config.load(home).home)) as store:
        most = store.users.get(user).role if user is not None else Role.READER
        life_s = None if days is None else days * 86_400
        made = tokens.make(store, name, Role(role) if role else most, life_s, user)
        store.audit.add(config.login_name(), "token.new", made.token.id, detail={"user": user})
    if as_json:
        row = convert(made.token, TokenRow, from_attributes=True)
        print_document(NewToken(**asdict(row), token=made.text))
    else:
        click.echo(made.text)
        click.echo(f"token {made.token.id} ({name}): {made.token.role}; it is shown only now", err=True)


@command.command("list")
@json_option
@home_option
def list_(as_json: bool, home: str | None) -> None:
    """List the tokens, without their secrets."""
    with opened(config.load(home).home) as store:
        rows = convert(store.tokens.all() if store is not None else [], list[TokenRow], from_attributes=True)
        now = store.now() if store is not None else 0.0
    if as_json:
        print_document(TokenList(tokens=rows))
        return
    if not rows:
        click.echo("no tokens yet; `evalfleet token new NAME` creates one")
    for row in rows:
        left = "no expiry" if row.expires_at is None else f"expires in {text.age(max(0.0, row.expires_at - now))}"
        click.echo(
            f"{row.id}  {row.role:<8}  {text.printable(row.name):<24}  {text.printable(row.user_name or ''):<16}  {left}"
        )


@command.command("revoke")
@click.argument("token", metavar="ID|NAME")
@json_option
@home_option
def revoke(token: str, as_json: bool, home: str | None) -> None:
    """Revoke a token. It stops working within a few seconds, also in open pages."""
    with closing(open_store(config.load(home).home)) as store:
        gone = store.tokens.revoke(token)
        store.audit.add(config.login_name(), "token.revoke", gone.id)
    if as_json:
        print_document(RevokedToken(revoked=gone.id))
    else:
        click.echo(f"token {gone.id} ({gone.name}) is revoked")
