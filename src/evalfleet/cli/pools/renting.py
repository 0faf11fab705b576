"""The options of a pool whose machines are rented, and what they make of a pool."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from evalfleet.cli.options import budget_option

F = TypeVar("F", bound=Callable[..., Any])
_PREFIX = re.compile(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?")

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
            click.option("--regions", metavar="REGIONS", help="azure-vm: where, in the order of wish, with commas."),
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
            click.option("--name-prefix", "prefix", help="azure-vm: of the machines' names.  [default: waa-eval]"),
            click.option(
                "--setup", type=click.Path(path_type=Path), help="azure-vm: a shell script that makes one ready."
            ),
            click.option("--benchmark", metavar="NAME", help="azure-vm: make them ready for it."),
            click.option(
                "--deadline",
                multiple=True,
                metavar="RUNG=DURATION",
                help="azure-vm: of a rung of the readiness ladder.",
            ),
        )
    ):
        function = option(function)
    return function


def wanted_pool(written: Mapping[str, Any], rented: Mapping[str, Any], hosts_file: Path | None) -> dict[str, Any]:
    """The settings of a pool: what was given on the command line, else what evalfleet.toml says, else the defaults.

    Raises InputError, NotFound (a size that nobody knows) and click.UsageError.
    """
    import msgspec

    from evalfleet.azure import sizes
    from evalfleet.azure.pool import AzurePool
    from evalfleet.errors import InputError

    if hosts_file is not None:
        raise click.UsageError("--hosts is for ssh; azure-vm makes its machines.")
    given = {**written, **{name: value for name, value in rented.items() if value not in (None, ())}}
    given.pop("backend", None)
    values: dict[str, Any] = {
        name: given[name]
        for name in (
            "spot",
            "image",
            "disk_gb",
            "slots",
            "max_hours",
            "budget_usd",
            "least",
            "most",
            "prefix",
            "benchmark",
        )
        if name in given
    }
    if "size" in given:
        values["sizes"] = tuple(sizes.find(one).name for one in _listed(given["size"]))
    if "regions" in given:
        values["regions"] = tuple(_listed(given["regions"]))
    if "idle" in given:
        values["idle_s"] = given["idle"]
    if "idle_action" in given:
        values["idle"] = given["idle_action"]
    if "setup" in given:
        values["setup"] = _script(Path(given["setup"]))
    values["deadlines"] = _deadlines(
        {**written.get("deadline", {}), **dict(one.partition("=")[::2] for one in rented["deadline"])}
    )
    values["scales"] = "least" in given or "most" in given
    values["kvm"] = given.get("benchmark") == "waa"
    values["workers"] = given.get("workers") or given.get("most") or 1
    if values.get("least", 0) > (values.get("most") or values["workers"]):
        raise InputError(f"--min {values['least']} is more than --max {values.get('most') or values['workers']}")
    if not _PREFIX.fullmatch(values.get("prefix", "waa-eval")):
        raise InputError(f"{values['prefix']!r} cannot begin a machine's name; use small letters, digits and '-'")
    return msgspec.to_builtins(AzurePool(**values))


def _listed(text: str | list[str]) -> list[str]:
    parts = text.split(",") if isinstance(text, str) else text
    return [part.strip() for part in parts if part.strip()]


def _script(path: Path) -> str:
    from evalfleet.errors import InputError

    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read: {cause}") from None


def _deadlines(given: Mapping[str, str]) -> dict[str, float]:
    from evalfleet import duration
    from evalfleet.errors import InputError
    from evalfleet.schema import suggestion

    found: dict[str, float] = {}
    for rung, text in given.items():
        if rung not in RUNGS:
            raise InputError(f'--deadline: there is no rung "{rung}"{suggestion(rung, RUNGS)}')
        try:
            found[rung] = duration.parse(text)
        except ValueError as error:
            raise InputError(f"--deadline {rung}: {error}") from None
    return found


RUNGS = ("ssh", "host_key", "disk", "kvm", "runner", "setup", "benchmark")
