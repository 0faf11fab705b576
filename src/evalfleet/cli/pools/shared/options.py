"""The options of a new pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from evalfleet.cli.shared.options import F, budget_option, duration_option

worker_option = click.option("--worker", metavar="W", help="Only this machine.")
"""Gives the command `worker: str | None`."""


def _pairs(_context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str] | None:
    return {name: value for name, _, value in (text.partition("=") for text in texts)} or None


def _listed(_context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]) -> list[str] | None:
    return list(names) or None


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--hosts", type=click.Path(), help="ssh: a hosts file, such as hosts.toml."),
    click.option(
        "--trust-first-use", is_flag=True, default=None, help="ssh: accept and print the key of an unknown host."
    ),
    click.option("--address", help="ray: address of the cluster: ray://HOST:10001, HOST:6379 or auto."),
    click.option("--partition", metavar="NAMES", help="slurm: partitions, comma-separated, most preferred first."),
    click.option(
        "--nodes", type=click.IntRange(1, 1000), help="slurm: number of jobs, each on one node; as --workers."
    ),
    duration_option(
        "--time", help="slurm: time limit of a job; another one is submitted before it ends.  [default: 4h]"
    ),
    click.option(
        "-w", "--workers", type=click.IntRange(1, 1000), help="cloud: number of machines; ray: most actors at a time."
    ),
    click.option("--size", metavar="SIZES", help="cloud: machine sizes, comma-separated, most preferred first."),
    click.option("--regions", metavar="REGIONS", help="cloud: regions, comma-separated, most preferred first."),
    click.option(
        "--spot", is_flag=True, default=None, help="cloud: spot machines: cheaper, but can be evicted at any time."
    ),
    click.option("--image", metavar="NAME|ID", help="cloud: golden image.  [default: Ubuntu]"),
    click.option("--disk-gb", type=click.IntRange(30, 4095), help="cloud: disk size.  [default: 128]"),
    click.option("--slots", type=click.IntRange(1, 64), help="cloud, ray: tasks at a time per machine.  [default: 1]"),
    click.option(
        "--max-hours",
        type=click.FloatRange(0.5, 720),
        help="cloud, ray: machines stop after this many hours without a controller.  [default: 4]",
    ),
    budget_option,
    click.option(
        "--min", type=click.IntRange(0, 1000), help="cloud, ray: scale with the queue: minimum number of machines."
    ),
    click.option(
        "--max", type=click.IntRange(1, 1000), help="cloud, ray: scale with the queue: maximum number of machines."
    ),
    duration_option("--idle", help="cloud, ray: remove a machine after this much idle time.  [default: 10m; ray: 2m]"),
    click.option(
        "--idle-action",
        type=click.Choice(["stop", "delete"]),
        help="cloud: how to remove idle machines.  [default: stop]",
    ),
    click.option("--name-prefix", help="cloud: prefix of machine names.  [default: evalfleet]"),
    click.option("--setup", type=click.Path(), help="cloud: shell script that prepares a machine."),
    click.option("--benchmark", metavar="NAME", help="cloud: prepare machines for this benchmark."),
    click.option(
        "--deadline",
        callback=_pairs,
        multiple=True,
        metavar="CHECK=DURATION",
        help="cloud: time limit of a readiness check; repeatable.",
    ),
    click.option(
        "--tier",
        "tiers",
        callback=_listed,
        multiple=True,
        metavar="POOL",
        help="tiers: a pool; repeat in order of use.",
    ),
    click.option(
        "--prefer",
        type=click.Choice(["order", "cheapest"]),
        help="tiers: which healthy tier comes first.  [default: order]",
    ),
    duration_option("--start-timeout", help="tiers: a host must serve within this time.  [default: 10m]"),
    duration_option("--cool-down", help="tiers: try a failed tier again after this time.  [default: 5m]"),
    click.option(
        "--option",
        "options",
        callback=_pairs,
        multiple=True,
        metavar="NAME=VALUE",
        help="Option of the backend, such as cpus and gpus of ray and slurm, account and qos of slurm; or of a plug-in's. Repeatable.",
    ),
)


def pool_options(function: F) -> F:
    """Give a command the options of `config.pools.PoolOptions`, by their words."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
