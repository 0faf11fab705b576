"""The options of a pool whose machines are rented, and what they make of a pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from evalfleet.cli.shared.options import budget_option

F = TypeVar("F", bound=Callable[..., Any])


def _duration(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    from evalfleet import duration

    if value is None:
        return None
    try:
        return duration.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def duration_option(name: str, *, help: str) -> Callable[[F], F]:
    """An option that takes a duration such as 10m, and gives seconds."""
    return click.option(name, callback=_duration, metavar="DURATION", help=help)


worker_option = click.option("--worker", metavar="W", help="Only this machine.")
"""Gives the command `worker: str | None`."""


def pool_options(function: F) -> F:
    """Give a command the options of `config.pools.PoolOptions`, by their words."""
    for option in reversed(
        (
            click.option("--hosts", type=click.Path(), help="ssh: a hosts file, such as hosts.toml."),
            click.option(
                "--trust-first-use",
                is_flag=True,
                default=None,
                help="ssh: learn the key of an unknown host, and say so.",
            ),
            click.option("-w", "--workers", type=click.IntRange(1, 1000), help="azure-vm: how many machines."),
            click.option(
                "--size", metavar="SIZES", help="azure-vm: of the machines; others after a comma, as second choice."
            ),
            click.option("--regions", metavar="REGIONS", help="azure-vm: in order of preference, with commas."),
            click.option(
                "--spot", is_flag=True, default=None, help="azure-vm: spot: cheaper, and taken away at any moment."
            ),
            click.option("--image", metavar="NAME|ID", help="azure-vm: a golden image.  [default: Ubuntu]"),
            click.option("--disk-gb", type=click.IntRange(30, 4095), help="azure-vm: of the disk.  [default: 128]"),
            click.option(
                "--slots", type=click.IntRange(1, 64), help="azure-vm: tasks at a time on each.  [default: 1]"
            ),
            click.option(
                "--max-hours",
                type=click.FloatRange(0.5, 720),
                help="azure-vm: stop so long after the last controller left.  [default: 4]",
            ),
            budget_option,
            click.option("--min", type=click.IntRange(0, 1000), help="azure-vm: follow the queue, from so many …"),
            click.option("--max", type=click.IntRange(1, 1000), help="azure-vm: … to so many machines."),
            duration_option("--idle", help="azure-vm: idle so long, it goes.  [default: 10m]"),
            click.option(
                "--idle-action", type=click.Choice(["stop", "delete"]), help="azure-vm: how.  [default: stop]"
            ),
            click.option("--name-prefix", help="azure-vm: of the machines' names.  [default: evalfleet]"),
            click.option("--setup", type=click.Path(), help="azure-vm: a shell script that makes one ready."),
            click.option("--benchmark", metavar="NAME", help="azure-vm: make them ready for it."),
            click.option("--deadline", multiple=True, metavar="CHECK=DURATION", help="azure-vm: of a readiness check."),
            click.option(
                "--option", "options", multiple=True, metavar="NAME=VALUE", help="Of the backend of a plug-in."
            ),
        )
    ):
        function = option(function)
    return function


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """What was said on the command line, by the words of `PoolOptions`."""
    said = {name: value for name, value in options.items() if value not in (None, ())}
    for name in ("deadline", "options"):
        if name in said:
            said[name] = {key: text for key, _, text in (str(one).partition("=") for one in said[name])}
    return said
