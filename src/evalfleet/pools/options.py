"""From what a person asked for to the settings of a pool of rented machines; whoever asked, a command or the API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from evalfleet import duration
from evalfleet.azure import sizes
from evalfleet.azure.pool import PREFIX, AzurePool
from evalfleet.benchmarks.registry import needs_kvm
from evalfleet.errors import InputError
from evalfleet.model import JsonObject
from evalfleet.validation import suggestion

CHECKS = ("ssh", "host_key", "disk", "kvm", "runner", "setup", "benchmark")
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
_PREFIX = re.compile(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?")
_REGION = re.compile(r"[a-z][a-z0-9]{1,39}")
_PLAIN = ("spot", "image", "disk_gb", "slots", "max_hours", "budget_usd", "least", "most", "prefix", "benchmark")


def require_name(name: str) -> None:
    """Raises InputError for what cannot name a pool."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot name a pool; use small letters, digits, '-', '_' and '.', at most 64 of them"
        )


def wanted_pool(
    written: Mapping[str, Any], given: Mapping[str, Any], deadlines: Mapping[str, str] | None = None
) -> JsonObject:
    """The settings of a pool: what was given, else what evalfleet.toml says, else the defaults.

    Args:
        written: the table of the pool in evalfleet.toml; its `setup` is the path of a script.
        given: by the same names; None where nothing was. Its `setup` is the script.
        deadlines: of checks, as durations.

    Raises InputError, and NotFound for a size that nobody knows.
    """
    found = {**written, **{name: value for name, value in given.items() if value is not None}}
    values: dict[str, Any] = {name: found[name] for name in _PLAIN if name in found}
    if "size" in found:
        values["sizes"] = tuple(sizes.find(one).name for one in _listed(found["size"]))
    if "regions" in found:
        values["regions"] = tuple(_region(one) for one in _listed(found["regions"]))
    if "idle" in found:
        values["idle_s"] = found["idle"]
    if "idle_action" in found:
        values["idle"] = found["idle_action"]
    if "setup" in found:
        values["setup"] = given["setup"] if given.get("setup") is not None else script(Path(written["setup"]))
    values["deadlines"] = _deadlines({**written.get("deadline", {}), **(deadlines or {})})
    values["scales"] = "least" in found or "most" in found
    values["kvm"] = needs_kvm(found.get("benchmark"))
    values["workers"] = found.get("workers") or found.get("most") or 1
    require_limits(values.get("least", 0), values.get("most") or values["workers"])
    if not _PREFIX.fullmatch(values.get("prefix", PREFIX)):
        raise InputError(f"{values['prefix']!r} cannot begin a machine's name; use small letters, digits and '-'")
    for name in ("sizes", "regions"):
        if values.get(name) == ():
            raise InputError(f"{name}: none is named; leave it out to take the default")
    # As the store gives them back, so that two orders can be compared.
    return msgspec.json.decode(msgspec.json.encode(AzurePool(**values)))


def require_limits(least: int, most: int) -> None:
    if least > most:
        raise InputError(f"min {least} is more than max {most}; a pool cannot keep more machines than it may have")


def script(path: Path) -> str:
    """What a script says. Raises InputError."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read: {cause}") from None


def _region(name: str) -> str:
    if not _REGION.fullmatch(name):
        raise InputError(f'regions: "{name[:40]}" is no region; write it as Azure does, such as eastus')
    return name


def _listed(text: str | list[str]) -> list[str]:
    parts = text.split(",") if isinstance(text, str) else text
    return [part.strip() for part in parts if part.strip()]


def _deadlines(given: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for check, text in given.items():
        if check not in CHECKS:
            raise InputError(f'deadline: there is no check "{check}"{suggestion(check, CHECKS)}')
        try:
            found[check] = duration.parse(text)
        except ValueError as error:
            raise InputError(f"deadline {check}: {error}") from None
    return found
