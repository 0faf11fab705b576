"""The settings of a pool on a Ray cluster, and the names of its hosts and actors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from evalfleet.errors import InputError
from evalfleet.layout import Home
from evalfleet.model import JsonObject, Pool
from evalfleet.validation import suggestion

FOLDER = "~/.evalfleet/ray/{hostname}"
WORDS = ("cpus", "gpus", "resources", "price")


class RayHostSpec(Struct, frozen=True, kw_only=True):
    """One worker of a pool. Implements `HostRow`."""

    name: str
    slots: int = 1
    price_usd_per_hour: float = 0.0


class RaySettings(Struct, frozen=True, kw_only=True):
    """What the store keeps of such a pool."""

    address: str
    max: int = 1
    min: int = 0
    slots: int = 1
    idle_s: float = 120.0
    max_hours: float = 4.0
    cpus: float = 1.0
    gpus: int = 0
    resources: dict[str, float] = {}
    price: float = 0.0  # $ per hour of an actor

    @property
    def request(self) -> JsonObject:
        """What Ray must have free on a node for one actor, in Ray's words."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "resources": self.resources}

    @property
    def needs(self) -> str:
        """The same for people."""
        found = {"CPU": self.cpus, "GPU": self.gpus, **self.resources}
        return ", ".join(f"{count:g} {name}" for name, count in found.items() if count) or "no resources"


def settings_of(pool: Pool) -> RaySettings:
    return msgspec.convert(pool.settings, RaySettings)


def settings_from(options: Mapping[str, Any]) -> RaySettings:
    """Check the options of a new pool. Raises InputError."""
    if not options.get("address"):
        raise InputError(
            "address: is missing; it is the cluster's, such as ray://head:10001, or auto on one of its nodes"
        )
    own = _own(options.get("options", {}))
    limit = options.get("max") or options.get("workers") or 1
    least = options.get("min") or 0
    if least > limit:
        raise InputError(f"min {least} is more than max {limit}; a pool cannot keep more workers than it may have")
    given = {"slots": options.get("slots"), "idle_s": options.get("idle"), "max_hours": options.get("max_hours")}
    said = {name: value for name, value in given.items() if value is not None}
    return RaySettings(address=options["address"], max=limit, min=least, **said, **own)


def _own(given: Mapping[str, Any]) -> dict[str, Any]:
    for word in given:
        if word not in WORDS:
            raise InputError(f"option {word}: is not known{suggestion(word, WORDS)}; ray takes {', '.join(WORDS)}")
    found: dict[str, Any] = {word: _number(word, given[word]) for word in ("cpus", "price") if word in given}
    if "gpus" in given:
        gpus = _number("gpus", given["gpus"])
        if gpus != int(gpus):
            raise InputError(
                "option gpus: must be a whole number; two tasks share a GPU by their request of its memory"
            )
        found["gpus"] = int(gpus)
    if "resources" in given:
        found["resources"] = _resources(given["resources"])
    return found


def _resources(given: Any) -> dict[str, float]:
    """`a:1+b:2`, or a table from evalfleet.toml."""
    if isinstance(given, str):
        found: JsonObject = {name: count for name, _, count in (part.partition(":") for part in given.split("+"))}
    else:
        found = cast("JsonObject", given) if isinstance(given, dict) else {}
    if not found or not all(found):
        raise InputError("option resources: must be NAME:COUNT, several with + between them, such as tpu:1+fast:2")
    return {str(name): _number(f"resources {name}", count) for name, count in found.items()}


def _number(word: str, text: Any) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = -1.0
    if not math.isfinite(value) or value < 0:
        raise InputError(f"option {word}: must be a number of at least 0, not {text!r}")
    return value


def prefix_of(home: Home, pool: str) -> str:
    """How the names of a pool's actors begin, before the names of their hosts. Other homes have other ones."""
    return f"{home.id}/{pool}/"


def folder_of(home: Home, host: str) -> str:
    """The folder of a host's runner, on its node."""
    return f"{FOLDER}/{home.id}-{host}"


def host_specs(pool: Pool) -> list[RayHostSpec]:
    """All workers that a pool may have."""
    wanted = settings_of(pool)
    names = [f"{pool.name}-{number}" for number in range(1, wanted.max + 1)]
    return [RayHostSpec(name=name, slots=wanted.slots, price_usd_per_hour=wanted.price) for name in names]
