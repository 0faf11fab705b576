"""`evalfleet user`."""

from __future__ import annotations

from contextlib import closing

import click

from evalfleet import config
from evalfleet.answers.team import UserList, UserRow
from evalfleet.cli.shared.document import print_answer, print_document
from evalfleet.cli.shared.options import home_option, json_option
from evalfleet.model import Role
from evalfleet.report import text

_role = click.Choice([str(role) for role in Role])


@click.group("user")
def command() -> None:
    """Manage the users of a server.

    reader: looks. member: submits, and acts on own runs. operator: acts on all runs and pools. admin: also manages users and
    reads the audit log. `evalfleet token new NAME --user USER` gives a user a token.
    """


@command.command("add")
@click.argument("name")
@click.option("--role", type=_role, default="member", show_default=True)
@json_option
@home_option
def add(name: str, role: str, as_json: bool, home: str | None) -> None:
    """Add a user."""
    from evalfleet.operations.users import add_user
    from evalfleet.store.open import open_store

    with closing(open_store(config.load(home).home)) as store:
        user = add_user(store, name, role)
    print_answer(
        as_json, user, f"user {user.name}: {user.role}; `evalfleet token new laptop --user {user.name}` makes a token"
    )


@command.command("list")
@json_option
@home_option
def list_(as_json: bool, home: str | None) -> None:
    """List the users."""
    from evalfleet.operations.users import list_users
    from evalfleet.report.reader import opened

    with opened(config.load(home).home) as store:
        users = list_users(store) if store is not None else []
    if as_json:
        print_document(UserList(users=users))
        return
    if not users:
        click.echo("no users yet; `evalfleet user add NAME` makes one")
    for user in users:
        click.echo(_line(user))


def _line(user: UserRow) -> str:
    more = "  disabled" if user.disabled else ""
    return f"{text.printable(user.name):<24}  {user.role:<8}  {user.origin:<7}{more}".rstrip()


@command.command("set")
@click.argument("name")
@click.option("--role", type=_role, help="The role from now on.")
@click.option("--disable/--enable", "disabled", default=None, help="Refuse all tokens and sign-ins, or not.")
@json_option
@home_option
def set_(name: str, role: str | None, disabled: bool | None, as_json: bool, home: str | None) -> None:
    """Change a user's role, or disable a user. It holds within a few seconds, also in open pages."""
    from evalfleet.operations.users import set_user
    from evalfleet.store.open import open_store

    with closing(open_store(config.load(home).home)) as store:
        user = set_user(store, name, role=role, disabled=disabled)
    print_answer(as_json, user, f"user {user.name}: {user.role}{', disabled' if user.disabled else ''}")


@command.command("remove")
@click.argument("name")
@json_option
@home_option
def remove(name: str, as_json: bool, home: str | None) -> None:
    """Remove a user with all tokens. The user's runs stay."""
    from evalfleet.operations.users import remove_user
    from evalfleet.store.open import open_store

    with closing(open_store(config.load(home).home)) as store:
        user = remove_user(store, name)
    print_answer(as_json, user, f"user {user.name} is removed, with all tokens; the runs stay")
