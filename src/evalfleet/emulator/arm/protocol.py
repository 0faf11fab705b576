"""The shape of Azure Resource Manager's requests, answers and errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web
from msgspec import Struct, field

from evalfleet.emulator.arm.errors import ArmError, Body, Never

_NESTED = ("galleries", "workspaces")  # whose resources have others in them, by paths of types and names in turn


async def hang(error: ArmError | None) -> None:
    """Wait for ever, if that is what the fault says."""
    if isinstance(error, Never):
        await asyncio.Event().wait()


def not_found(kind: str, name: str, group: str) -> ArmError:
    said = f"The Resource '{kind}/{name}' under resource group '{group}' was not found."
    return ArmError(404, "ResourceNotFound", said)


def require_location(known: Body | None, location: str) -> None:
    """A resource never moves: refuse a PUT that names another region than the one where it is."""
    if known is not None and known["location"].lower() != location.lower():
        said = f"The resource '{known['name']}' already exists in location '{known['location']}'."
        raise ArmError(409, "InvalidResourceLocation", said)


class Target(Struct, frozen=True, kw_only=True):
    """What a path speaks of. Names of types are in lower case, as Azure does not mind the case."""

    subscription: str
    group: str = ""
    kind: str = ""  # such as microsoft.compute/virtualmachines
    name: str = ""
    action: str = ""  # what follows the name
    location: str = ""


def parse(path: str) -> Target | None:
    """Read a path below /subscriptions; None where it is not of a known shape."""
    parts = [part for part in path.split("/") if part]
    if len(parts) < 2 or parts[0].lower() != "subscriptions":
        return None
    subscription, rest, group = parts[1], parts[2:], ""
    if rest and rest[0].lower() == "resourcegroups":
        group, rest = (rest[1] if len(rest) > 1 else ""), rest[2:]
        if not rest:
            return Target(subscription=subscription, kind="groups", group=group, name=group)
    if not rest:
        return Target(subscription=subscription, kind="subscriptions")
    if rest[0].lower() == "resources":
        return Target(subscription=subscription, kind="resources", group=group)
    if rest[0].lower() != "providers" or len(rest) < 2:
        return None
    if len(rest) == 2 or (len(rest) == 3 and rest[2].lower() == "register"):
        action = rest[2].lower() if len(rest) == 3 else ""
        return Target(subscription=subscription, kind="providers", name=rest[1], action=action)
    space, kind = rest[1].lower(), rest[2].lower()
    if kind == "locations":
        return Target(
            subscription=subscription,
            kind=f"{space}/locations",
            location=rest[3].lower() if len(rest) > 3 else "",
            action=rest[4].lower() if len(rest) > 4 else "",
            name="/".join(rest[5:]),
        )
    if kind in _NESTED:
        types, names = rest[2::2], rest[3::2]
        return Target(
            subscription=subscription, group=group, kind="/".join((space, *types)).lower(), name="/".join(names)
        )
    return Target(
        subscription=subscription,
        group=group,
        kind=f"{space}/{kind}",
        name=rest[3] if len(rest) > 3 else "",
        action="/".join(rest[4:]).lower(),
    )


class Call(Struct, frozen=True, kw_only=True):
    """One request, read."""

    target: Target
    method: str
    api: str
    base_url: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None

    def attributes(self) -> dict[str, str]:
        """What faults can be matched with."""
        found = {"name": self.target.name, "group": self.target.group, "location": self.target.location}
        if isinstance(self.body, dict):
            found["location"] = str(self.body.get("location", found["location"])).lower()  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        return found


Handler = Callable[[Call], Awaitable[web.Response]]
Routes = dict[tuple[str, str, str], Handler]  # method, kind, action


def answer(body: Any = None, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    if body is None:
        return web.Response(status=status, headers=headers)
    return web.Response(
        text=json.dumps(body), status=status, headers=headers, content_type="application/json", charset="utf-8"
    )
