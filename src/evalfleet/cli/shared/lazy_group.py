"""A group of commands over a static table: a command's module is imported when it runs, and `--help` imports none."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.formatting import HelpFormatter


class _Loaded(MutableMapping[str, click.Command]):
    """The commands by name, each loaded when somebody asks for it."""

    def __init__(self, package: str, names: tuple[str, ...]) -> None:
        self._package = package
        self._names = names
        self._added: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name in self._added:
            return self._added[name]
        if name not in self._names:
            raise KeyError(name)
        from importlib import import_module

        command: click.Command = import_module(f"{self._package}.{name.replace('-', '_')}").command
        return command

    def __contains__(self, name: object) -> bool:
        return name in self._names or name in self._added

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._added[name] = command

    def __delitem__(self, name: str) -> None:
        del self._added[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._names
        yield from (name for name in self._added if name not in self._names)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class LazySubgroup(click.Group):
    """Each module `PACKAGE.NAME` exposes a click command as `command`."""

    def __init__(self, name: str, *, package: str, table: dict[str, str], help: str) -> None:
        """
        Args:
            table: a line of help for each command, in the order in which they are shown.
        """
        super().__init__(name, commands=_Loaded(package, tuple(table)), help=help)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, list(self.commands), n=1)
            advice = f"Did you mean {near[0]!r}?" if near else f"See '{ctx.command_path} --help' for the commands."
            ctx.fail(f"There is no command {f'{self.name} {name}'!r}. {advice}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._table.items()))
