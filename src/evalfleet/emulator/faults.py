"""Faults as data: which operation, of which resource, how often, and what goes wrong.

::

    {"op": "vm.create", "match": {"location": "eastus"}, "preset": "allocation_failed", "times": 2}
    {"op": "vm.*", "preset": "throttled", "retry_after": 2, "times": 20}
    {"op": "host.exec", "match": {"command": "*docker pull*"}, "hang": true}
    {"op": "prices.list", "drop": true, "probability": 0.1}

All chance comes from one seeded generator, so that a scenario goes the same way each time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from evalfleet.emulator.wire import ArmError


class Fault(msgspec.Struct, forbid_unknown_fields=True):
    """One fault. Times are those of this machine's clock, not of the cloud's."""

    op: str  # a pattern, such as "vm.create" or "vm.*"
    match: dict[str, str] = {}  # attribute -> pattern
    preset: str | None = None
    times: int | None = None  # how often; None: always
    skip: int = 0  # so many matching operations pass first
    probability: float = 1.0
    delay: float = 0.0  # seconds before anything else
    hang: bool = False  # never answer
    drop: bool = False  # cut the connection
    retry_after: float = 1.0  # of "throttled"
    exit: int | None = None  # of "host.exec": end so, without running the command
    stderr: str = ""  # and say this


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """How Azure words an error; `late` ones are accepted first, and fail when the operation ends."""

    status: int
    code: str
    message: str
    late: bool = False
    detail: str = ""


PRESETS: dict[str, Preset] = {
    "sku_not_available": Preset(
        status=409,
        code="SkuNotAvailable",
        message="The requested VM size for resource 'Following SKUs have failed for Capacity Restrictions: {size}' is "
        "currently not available in location '{location}'. Please try another size or deploy to a different location "
        "or different zone. See https://aka.ms/azureskunotavailable for details.",
    ),
    "allocation_failed": Preset(
        status=200,
        code="AllocationFailed",
        message="Allocation failed. We do not have sufficient capacity for the requested VM size in this region. Read "
        "more about improving likelihood of allocation success at http://aka.ms/allocation-guidance",
        late=True,
    ),
    "zonal_allocation_failed": Preset(
        status=200,
        code="ZonalAllocationFailed",
        message="Allocation failed. We do not have sufficient capacity for the requested VM size in this zone.",
        late=True,
    ),
    "overconstrained": Preset(
        status=200,
        code="OverconstrainedAllocationRequest",
        message="Allocation failed. VM(s) with the following constraints cannot be allocated, because the condition is "
        "too restrictive. Constraints applied are: - Low Priority VMs - Networking Constraints - VM Size",
        late=True,
    ),
    "os_provisioning_timed_out": Preset(
        status=200,
        code="OSProvisioningTimedOut",
        message="OS Provisioning for VM '{name}' did not finish in the allotted time.",
        late=True,
    ),
    "internal_operation_error": Preset(
        status=200, code="InternalOperationError", message="An internal operation error occurred.", late=True
    ),
    "throttled": Preset(
        status=429,
        code="OperationNotAllowed",
        message="The server rejected the request because too many requests have been received for this subscription.",
        detail="TooManyRequests",
    ),
    "server_error": Preset(status=500, code="InternalServerError", message="Encountered an internal server error."),
    "unavailable": Preset(status=503, code="ServerTimeout", message="The request timed out. Please retry."),
    "authorization_failed": Preset(
        status=403,
        code="AuthorizationFailed",
        message="The client does not have authorization to perform the action over the scope, or the scope is invalid.",
    ),
    "conflict": Preset(
        status=409,
        code="AnotherOperationInProgress",
        message="Another operation on this or a dependent resource is in progress.",
    ),
    "spot_price": Preset(
        status=409,
        code="SpotPriceGreaterThanProvidedMaxPrice",
        message="Unable to perform operation since the provided max price is lower than the current spot price.",
    ),
    # Of hosts: "host.boot".
    "no_ssh": Preset(status=0, code="no_ssh", message="SSH is refused for ever"),
    "mute_ssh": Preset(status=0, code="mute_ssh", message="SSH accepts, and never says anything"),
    "wrong_host_key": Preset(status=0, code="wrong_host_key", message="the host shows a key that is not ours"),
}


@dataclass(slots=True)
class Counter:
    """A fault, and how often it was met and took effect."""

    number: int
    fault: Fault
    met: int = 0
    used: int = 0

    def as_json(self) -> dict[str, Any]:
        return {"number": self.number, "met": self.met, "used": self.used} | msgspec.to_builtins(self.fault)


@dataclass(slots=True)
class Faults:
    """The faults of this emulator, in the order in which they were given."""

    rng: random.Random
    _counters: list[Counter] = field(default_factory=list[Counter])
    _numbers: int = 0

    def add(self, fault: Fault) -> int:
        self._numbers += 1
        self._counters.append(Counter(self._numbers, fault))
        return self._numbers

    def clear(self) -> None:
        self._counters.clear()

    def listed(self) -> list[dict[str, Any]]:
        return [counter.as_json() for counter in self._counters]

    def take(self, op: str, attributes: Mapping[str, str]) -> Fault | None:
        """Return the first fault that hits this operation now, and count it."""
        for counter in self._counters:
            fault = counter.fault
            if not fnmatchcase(op, fault.op) or not _fits(fault, attributes):
                continue
            counter.met += 1
            if counter.met <= fault.skip or (fault.times is not None and counter.used >= fault.times):
                continue
            if fault.probability < 1 and self.rng.random() >= fault.probability:
                continue
            counter.used += 1
            return fault
        return None


def _fits(fault: Fault, attributes: Mapping[str, str]) -> bool:
    return all(fnmatchcase(attributes.get(name, ""), pattern) for name, pattern in fault.match.items())


def error_of(fault: Fault, attributes: Mapping[str, str]) -> ArmError | None:
    """Return the error that the fault's preset stands for."""
    if fault.preset is None:
        return None
    preset = PRESETS[fault.preset]
    values = {"size": "", "location": "", "name": "", **attributes}
    headers = {"Retry-After": f"{fault.retry_after:g}"} if preset.status == 429 else None
    message = preset.message.format(**values)
    return ArmError(preset.status, preset.code, message, headers=headers, detail=preset.detail)


def is_late(fault: Fault) -> bool:
    return fault.preset is not None and PRESETS[fault.preset].late
