"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from evalfleet.cli.shared.completion import complete_key, complete_pool, complete_run

if TYPE_CHECKING:
    from msgspec import Struct

    from evalfleet.config import Settings
    from evalfleet.operations.sight import Runs

Command = Callable[..., int]
F = TypeVar("F", bound=Callable[..., Any])


def gathered(into: str, kind: type[Struct], *options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Options that belong together: the command gets their values as one `kind`, in its parameter `into`."""

    def give(function: Command) -> Command:
        @wraps(function)
        def gathering(**given: Any) -> int:
            fields = {name: given.pop(name) for name in kind.__struct_fields__}
            return function(**given, **{into: kind(**fields)})

        for option in reversed(options):
            option(gathering)
        return gathering

    return give


def _home_of_group(ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Take `--home` from before the command's name where it does not stand after it."""
    if value is not None:
        return value
    inherited: Any = ctx.find_root().params.get("home")
    return inherited


home_option = click.option(
    "--home",
    metavar="DIR",
    callback=_home_of_group,
    help="Folder with the database and the runs' files.  [default: $EVALFLEET_HOME, else ~/.evalfleet]",
)
"""Gives the command `home: str | None`; hand it to `config.load`."""

force_option = click.option("--force", is_flag=True, help="Do not wait for running work on the machines; it is lost.")
"""Gives the command `force: bool`."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
"""Gives the command `as_json: bool`."""


adopt_option = click.option(
    "--adopt", is_flag=True, help="Use this copy of a home as the original, which must be gone for good."
)
"""Gives the command `adopt: bool`; see `adopting.take_place`."""


def _seconds(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    from evalfleet import duration

    try:
        return None if value is None else duration.parse(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


def duration_option(*names: str, help: str) -> Callable[[F], F]:
    """An option that takes a duration such as 10m, and gives seconds."""
    return click.option(*names, callback=_seconds, metavar="DURATION", help=help)


def _finite(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 <= value < float("inf"):
        raise click.BadParameter("must be a number of dollars, 0 or more")
    return value


budget_option = click.option(
    "--budget",
    "budget_usd",
    type=float,
    callback=_finite,
    metavar="USD",
    help="Start no more work once this much is spent in total.",
)
"""Gives the command `budget_usd: float | None`."""

priority_option = click.option(
    "--priority",
    type=click.IntRange(-100, 100),
    help="Among your own runs: higher goes first.  [default: 0]",
)
"""Gives the command `priority: int | None`."""

project_option = click.option("--project", metavar="NAME", help="Project of the run.  [default: the settings' project]")
"""Gives the command `project: str | None`."""


def _tags(_ctx: click.Context, _param: click.Parameter, words: tuple[str, ...]) -> dict[str, str]:
    if not words:
        return {}
    from evalfleet.operations.runs.ownership import tags_of

    return tags_of(words)


def tag_option(help: str) -> Callable[[F], F]:
    """An option that may be repeated, and gives the command `tags: dict[str, str]`."""
    return click.option(
        "--tag", "tags", multiple=True, callback=_tags, metavar="KEY=VALUE", help=f"{help}; repeatable."
    )


server_option = click.option(
    "--server", metavar="HOST", help="Ask this server instead of a home here; `evalfleet login` signs in."
)
"""Gives the command `server: str | None`; hand it to `runs_of`."""


def runs_of(settings: Settings, server: str | None) -> Runs:
    """The runs that a command is about: those of the home, or of a server. Raises NotFound."""
    if server is None:
        from evalfleet.operations.sight import HomeRuns

        return HomeRuns(settings)
    from evalfleet.remote.http import ServerApi
    from evalfleet.remote.runs import RemoteRuns
    from evalfleet.remote.servers import named

    return RemoteRuns(ServerApi(named(server)))


run_argument = click.argument("run", required=False, default="latest", metavar="[RUN]", shell_complete=complete_run)
"""Gives the command `run: str`: an id, a unique prefix of one, or `latest`, which is the default."""

run_required = click.argument("run", metavar="RUN", shell_complete=complete_run)
"""The same where further arguments follow, so that leaving it out would be ambiguous."""

keys_argument = click.argument("keys", nargs=-1, required=True, metavar="KEY…", shell_complete=complete_key)
"""Gives the command `keys: tuple[str, ...]`, those of tasks."""

key_argument = click.argument("key", metavar="KEY", shell_complete=complete_key)
"""Gives the command `key: str`, that of a task."""

pool_argument = click.argument("name", required=False, shell_complete=complete_pool)
"""Gives the command `name: str | None`, that of a pool; it may be left out where there is one pool."""

wheels_option = click.option(
    "--wheels",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    metavar="DIR",
    help="Pool hosts: install packages from these wheels, without an index.",
)
"""Gives the command `wheels: Path | None`."""
