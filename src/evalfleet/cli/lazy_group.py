"""A click group over a static table. A command's module is imported when the command runs; `--help` imports none of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import click
from click.formatting import HelpFormatter

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class _Commands(Mapping[str, click.Command]):
    """The commands by name, each imported when it is asked for."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules

    def __getitem__(self, name: str) -> click.Command:
        from importlib import import_module

        found = vars(import_module(self._modules[name])).values()
        return next(one for one in found if isinstance(one, click.Command) and one.name == name)

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class LazyGroup(click.Group):
    """
    Args:
        sections: headings, and below each one a line of help per command, in the order in which they are shown.
        modules: the module that holds each command.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        sections: Mapping[str, Mapping[str, str]],
        modules: Mapping[str, str],
        **attributes: Any,
    ) -> None:
        super().__init__(name, commands=cast("Any", _Commands(modules)), **attributes)
        self._sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            from difflib import get_close_matches

            from evalfleet.cli.former_verbs import hint

            group = " ".join(ctx.command_path.split()[1:])
            near = get_close_matches(name, list(self.commands), n=1)
            advice = f"Did you mean {near[0]!r}?" if near else f"See '{ctx.command_path} --help' for the commands."
            advice = hint(group, args) or advice
            full = f"{group} {name}".strip()
            ctx.fail(f"There is no command {full!r}. {advice}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer commands from the table: the Tab key waits for no import."""
        from click.shell_completion import CompletionItem

        told = {name: text for section in self._sections.values() for name, text in section.items()}
        found = [CompletionItem(name, help=text) for name, text in told.items() if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: HelpFormatter) -> None:
        widest = max(map(len, self.commands))
        for heading, section in self._sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(widest), text) for name, text in section.items()])


def subgroup(
    name: str, package: str, table: Mapping[str, str], *, help: str, held: Mapping[str, str] | None = None
) -> LazyGroup:
    """A group whose commands lie in one package.

    Args:
        held: the modules of commands that share one with others; every other command has a module of its own name.
    """
    modules = {command: f"{package}.{(held or {}).get(command, command)}" for command in table}
    return LazyGroup(name, sections={"Commands": table}, modules=modules, help=help)
