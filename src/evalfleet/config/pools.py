"""What may be said of a pool that is created: one shape, with the same words, for `evalfleet.toml`, the command line and HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from evalfleet.errors import InputError
from evalfleet.validation import seconds

Machines = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Least = Annotated[int, msgspec.Meta(ge=0, le=1000)]
Dollars = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Names = str | list[str]  # several are a list, or have commas between them
CLOUD_OPTIONS = (
    *("workers", "size", "regions", "spot", "image", "disk_gb", "slots", "max_hours", "budget_usd", "min", "max"),
    *("idle", "idle_action", "name_prefix", "setup", "benchmark", "deadline"),
)
TIER_OPTIONS = ("tiers", "prefer", "budget_usd", "start_timeout", "cool_down")


class PoolOptions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Each kind of pool takes some of them: see `PoolKind.options`."""

    # Machines that exist
    hosts: str | None = None  # path of a hosts file; over HTTP what it says
    trust_first_use: bool | None = None
    # A cluster that exists
    address: str | None = None
    partition: Names | None = None  # of Slurm
    nodes: Machines | None = None  # the word of Slurm for `workers`
    time: str | float | None = None  # a duration: how long a job of Slurm may take
    # Machines of a cloud; a cluster takes some of them
    workers: Machines | None = None
    size: Names | None = None
    regions: Names | None = None
    spot: bool | None = None
    image: str | None = None
    disk_gb: Annotated[int, msgspec.Meta(ge=30, le=4095)] | None = None
    slots: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    max_hours: Annotated[float, msgspec.Meta(ge=0.5, le=720)] | None = None
    budget_usd: Dollars | None = None
    min: Least | None = None
    max: Machines | None = None
    idle: str | float | None = None  # a duration
    idle_action: Literal["stop", "delete"] | None = None
    name_prefix: str | None = None
    setup: str | None = None  # path of a shell script; over HTTP what it says
    benchmark: str | None = None
    deadline: dict[str, str] | None = None  # readiness check -> duration
    # Other pools
    tiers: Names | None = None
    prefer: Literal["order", "cheapest"] | None = None
    start_timeout: str | float | None = None  # a duration
    cool_down: str | float | None = None  # a duration
    # Of backends that other packages bring
    options: dict[str, Any] | None = None


def given(options: PoolOptions) -> dict[str, Any]:
    """Those that were given, each in the form that a kind of pool takes: names as lists, durations as seconds.

    Raises InputError.
    """
    found = {name: value for name in PoolOptions.__struct_fields__ if (value := getattr(options, name)) is not None}
    for name in ("size", "regions", "partition", "tiers"):
        if name in found:
            found[name] = _names(name, found[name])
    for name in ("idle", "time", "start_timeout", "cool_down"):
        if name in found:
            found[name] = seconds(name, found[name])
    if "deadline" in found:
        found["deadline"] = {check: seconds(f"deadline {check}", text) for check, text in found["deadline"].items()}
    return found


def script(path: Path) -> str:
    """What a script says. Raises InputError."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read: {cause}") from None


def merged(written: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """What was said of a pool now, over what evalfleet.toml says of it, whose `setup` is the path of a script."""
    found = {name: value for name, value in written.items() if name != "backend"}
    if "setup" in found and "setup" not in said:
        found["setup"] = script(Path(found["setup"]))
    both = [{**found.get("deadline", {}), **said["deadline"]}] if "deadline" in said else []
    return {**found, **said, **({"deadline": both[0]} if both else {})}


def _names(option: str, value: Names) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    found = tuple(part.strip() for part in parts if part.strip())
    if not found:
        raise InputError(f"{option}: none is named; leave it out to take the default")
    return found
