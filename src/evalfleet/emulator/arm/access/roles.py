"""Roles: what the one principal of the emulator may do, and the API that tells it. Without roles it may do everything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evalfleet.azure.account.permissions import Grant, missing
from evalfleet.emulator.arm.access.identity import PRINCIPAL
from evalfleet.emulator.arm.operations import OPERATIONS, RESULTS
from evalfleet.emulator.arm.protocol import ArmError, Call, Routes, answer
from evalfleet.emulator.arm.resources import IMAGE, SNAPSHOT, SPELLING, VERSION, VM
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.scenario import Role

PERMISSIONS = "microsoft.authorization/permissions"
_GROUP = "Microsoft.Resources/subscriptions/resourceGroups"
_VERBS = {"GET": "read", "HEAD": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete"}
_NAMES = {"groups": _GROUP, "subscriptions": "Microsoft.Resources/subscriptions"}
# What a request needs besides, of what it names in its body.
_LINKED = {
    ("PUT", VM): (
        *("Microsoft.Network/virtualNetworks/subnets/join/action", "Microsoft.Network/networkInterfaces/write"),
        *("Microsoft.Network/networkSecurityGroups/join/action", "Microsoft.Compute/disks/write"),
    ),
    ("PUT", SNAPSHOT): ("Microsoft.Compute/disks/beginGetAccess/action",),
    ("PUT", VERSION): ("Microsoft.Compute/snapshots/read",),
}


class Roles:
    """Microsoft.Authorization/permissions."""

    def __init__(self, world: EmulatorContext) -> None:
        self._world = world

    def routes(self) -> Routes:
        return {("GET", PERMISSIONS, ""): self._list}

    async def _list(self, call: Call) -> Any:
        await self._world.meet("permissions.list", call.attributes())
        held = [Grant(actions=("*",))] if self._world.roles is None else list(_held(self._world.roles, call))
        return answer({"value": [{"actions": [*each.actions], "notActions": [*each.not_actions]} for each in held]})


def require_permission(world: EmulatorContext, call: Call) -> None:
    """Refuse what no role allows, in Azure's words."""
    is_open = call.target.action in (OPERATIONS, RESULTS) or call.target.kind == PERMISSIONS
    is_filtered = call.method == "GET" and call.target.kind == "groups" and not call.target.group
    if world.roles is None or is_open or is_filtered:
        return
    held = list(_held(world.roles, call))
    for code, actions in (
        ("AuthorizationFailed", (action_of(call),)),
        ("LinkedAuthorizationFailed", _linked(call)),
    ):
        for action in missing(held, actions):
            said = (
                f"The client 'emulator' with object id '{PRINCIPAL}' does not have authorization to perform action "
                f"'{action}' over scope '{_scope(call)}' or the scope is invalid. If access was recently granted, please "
                "refresh your credentials."
            )
            raise ArmError(403, code, said)


def action_of(call: Call) -> str:
    """The permission that a request needs, as Azure names it."""
    target = call.target
    if target.kind == "resources":
        return f"{_GROUP}/resources/read" if target.group else "Microsoft.Resources/subscriptions/resources/read"
    if target.kind == "providers":
        is_order = target.action == "register"
        return f"{target.name}/register/action" if is_order else "Microsoft.Resources/subscriptions/providers/read"
    kind = _NAMES.get(target.kind) or SPELLING.get(target.kind, target.kind)
    if target.kind.endswith("/locations") or (target.action and call.method == "GET"):
        return f"{kind}/{target.action.split('/')[0]}/read"
    return f"{kind}/{target.action}/action" if call.method == "POST" else f"{kind}/{_VERBS[call.method]}"


def _linked(call: Call) -> tuple[str, ...]:
    kind = call.target.kind
    more = _LINKED.get((call.method, VERSION if kind == VERSION else kind), ())
    if (call.method, kind) == ("PUT", VM):
        if "publicIPAddressConfiguration" in str(call.body):
            more = (*more, "Microsoft.Network/publicIPAddresses/write")
        if f"/{IMAGE.rpartition('/')[2]}/" in str(call.body).lower():
            more = (*more, "Microsoft.Compute/galleries/images/versions/read")
    return more


def _held(roles: list[Role], call: Call) -> Iterator[Grant]:
    """The roles that count where the request goes: those of the subscription, and those of its group."""
    for role in roles:
        if role.scope == "subscription" or call.target.group.lower() == role.scope.lower():
            yield Grant(actions=tuple(role.actions), not_actions=tuple(role.not_actions))


def _scope(call: Call) -> str:
    group = f"/resourceGroups/{call.target.group}" if call.target.group else ""
    return f"/subscriptions/{call.target.subscription}{group}"
