"""What a principal must be allowed, by what is done with it, and whether it is. Pure.

Azure names a permission for every request, and a role is a list of such names, with `*` for any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from msgspec import Struct

ROLE_NAME = "evalfleet operator"
_VM = "Microsoft.Compute/virtualMachines"
_NET = "Microsoft.Network"
_GROUP = "Microsoft.Resources/subscriptions/resourceGroups"

BUDGETS = "let Azure notify of budgets"

# On the resource group.
NEEDED: dict[str, tuple[str, ...]] = {
    "look": (
        *(f"{_GROUP}/read", f"{_GROUP}/resources/read", f"{_VM}/read", f"{_VM}/instanceView/read"),
        *(f"{_NET}/networkInterfaces/read", f"{_NET}/publicIPAddresses/read", "Microsoft.Compute/disks/read"),
        "Microsoft.Authorization/permissions/read",
    ),
    "create machines": (
        *(f"{_VM}/write", "Microsoft.Compute/disks/write"),
        *(f"{_NET}/virtualNetworks/read", f"{_NET}/virtualNetworks/write", f"{_NET}/virtualNetworks/subnets/read"),
        *(f"{_NET}/virtualNetworks/subnets/join/action", f"{_NET}/networkSecurityGroups/read"),
        *(f"{_NET}/networkSecurityGroups/write", f"{_NET}/networkSecurityGroups/join/action"),
        f"{_NET}/networkSecurityGroups/securityRules/write",
        *(f"{_NET}/networkInterfaces/write", f"{_NET}/networkInterfaces/join/action"),
        *(f"{_NET}/publicIPAddresses/write", f"{_NET}/publicIPAddresses/join/action"),
    ),
    "set deadlines": tuple(f"Microsoft.DevTestLab/schedules/{verb}" for verb in ("read", "write", "delete")),
    "stop and start": (f"{_VM}/start/action", f"{_VM}/deallocate/action"),
    "delete": (
        *(f"{_VM}/delete", "Microsoft.Compute/disks/delete", f"{_NET}/networkInterfaces/delete"),
        *(f"{_NET}/publicIPAddresses/delete", f"{_NET}/virtualNetworks/delete", f"{_NET}/networkSecurityGroups/delete"),
    ),
    "make images": (
        *(f"Microsoft.Compute/snapshots/{verb}" for verb in ("read", "write", "delete")),
        *("Microsoft.Compute/disks/beginGetAccess/action", "Microsoft.Compute/snapshots/beginGetAccess/action"),
        *(
            f"Microsoft.Compute/galleries{inner}/{verb}"
            for inner in ("", "/images", "/images/versions")
            for verb in ("read", "write", "delete")
        ),
    ),
    BUDGETS: tuple(f"Microsoft.Consumption/budgets/{verb}" for verb in ("read", "write", "delete")),
    "read console logs": (f"{_VM}/retrieveBootDiagnosticsData/action",),
    "read metrics": ("Microsoft.Insights/metrics/read",),
}
# On the subscription; without them machines are made all the same, but nobody can say before whether they can be.
NEEDED_ABOVE: dict[str, tuple[str, ...]] = {
    "see quotas and sizes": (
        *("Microsoft.Compute/locations/usages/read", "Microsoft.Network/locations/usages/read"),
        "Microsoft.Compute/skus/read",
    ),
    "see providers": ("Microsoft.Resources/subscriptions/providers/read",),
}
REQUIRED = ("look", "create machines", "set deadlines", "stop and start", "delete")


class Grant(Struct, frozen=True, kw_only=True):
    """One of the roles that a principal has somewhere, as the permissions API shows it."""

    actions: tuple[str, ...] = ()
    not_actions: tuple[str, ...] = ()

    def allows(self, action: str) -> bool:
        return _fits(self.actions, action) and not _fits(self.not_actions, action)


def grant(body: Any) -> Grant:
    return Grant(actions=tuple(body.get("actions") or ()), not_actions=tuple(body.get("notActions") or ()))


def missing(grants: Iterable[Grant], actions: Iterable[str]) -> list[str]:
    """Those of the actions that none of the roles allows."""
    held = list(grants)
    return [action for action in actions if not any(each.allows(action) for each in held)]


def role_definition(subscription: str, group: str) -> dict[str, Any]:
    """The least role that all commands need on the resource group, for `az role definition create`."""
    actions = sorted({action for some in NEEDED.values() for action in some})
    return {
        "Name": ROLE_NAME,
        "Description": "Creates, stops and deletes the machines of evalfleet in one resource group.",
        "IsCustom": True,
        "Actions": actions,
        "NotActions": [],
        "AssignableScopes": [f"/subscriptions/{subscription}/resourceGroups/{group}"],
    }


def _fits(patterns: Iterable[str], action: str) -> bool:
    return any(_compiled(pattern.lower()).fullmatch(action.lower()) for pattern in patterns)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))
