"""The options of a pool whose machines are rented, and what they make of a pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from evalfleet.cli.shared.options import budget_option

F = TypeVar("F", bound=Callable[..., Any])

# Parameter of the command -> its option, for messages.
RENTED = {
    "workers": "--workers",
    "size": "--size",
    "regions": "--regions",
    "spot": "--spot",
    "image": "--image",
    "max_hours": "--max-hours",
    "budget_usd": "--budget",
    "least": "--min",
    "most": "--max",
    "idle": "--idle",
    "idle_action": "--idle-action",
    "prefix": "--name-prefix",
    "slots": "--slots",
    "disk_gb": "--disk-gb",
    "setup": "--setup",
    "benchmark": "--benchmark",
    "deadline": "--deadline",
}


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


def rented_options(function: F) -> F:
    """Give a command the options of `RENTED`."""
    for option in reversed(
        (
            click.option("-w", "--workers", type=click.IntRange(1, 1000), help="azure-vm: how many machines."),
            click.option(
                "--size", metavar="SIZES", help="azure-vm: of the machines; others after a comma, as second choice."
            ),
            click.option("--regions", metavar="REGIONS", help="azure-vm: where, in order of preference, with commas."),
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
                help="azure-vm: stop by themselves so long after us.  [default: 4]",
            ),
            budget_option,
            click.option(
                "--min", "least", type=click.IntRange(0, 1000), help="azure-vm: follow the queue, from so many …"
            ),
            click.option("--max", "most", type=click.IntRange(1, 1000), help="azure-vm: … to so many machines."),
            duration_option("--idle", help="azure-vm: idle so long, it goes.  [default: 10m]"),
            click.option(
                "--idle-action", type=click.Choice(["stop", "delete"]), help="azure-vm: how.  [default: stop]"
            ),
            click.option("--name-prefix", "prefix", help="azure-vm: of the machines' names.  [default: evalfleet]"),
            click.option(
                "--setup", type=click.Path(path_type=Path), help="azure-vm: a shell script that makes one ready."
            ),
            click.option("--benchmark", metavar="NAME", help="azure-vm: make them ready for it."),
            click.option(
                "--deadline",
                multiple=True,
                metavar="CHECK=DURATION",
                help="azure-vm: another deadline for one of the readiness checks.",
            ),
        )
    ):
        function = option(function)
    return function


def wanted_pool(written: Mapping[str, Any], rented: Mapping[str, Any], hosts_file: Path | None) -> dict[str, Any]:
    """The settings of a pool: what was given on the command line, else what evalfleet.toml says, else the defaults.

    Raises InputError, NotFound (a size that nobody knows) and click.UsageError.
    """
    from evalfleet.pools import options

    if hosts_file is not None:
        raise click.UsageError("--hosts is for ssh; azure-vm makes its machines.")
    given: dict[str, Any] = {**rented, "setup": options.script(rented["setup"]) if rented.get("setup") else None}
    parts = [str(one).partition("=") for one in given.pop("deadline")]
    deadlines = {check: text for check, _, text in parts}
    return options.wanted_pool(written, given, deadlines)
