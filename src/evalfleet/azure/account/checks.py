"""Looks at an account of Azure before anything is bought: who we are, what we may do, and what there is to be had.

Every check ends in one line and, where something is wrong, in what to do about it. They run side by side, each with a limit.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import anyio
from azure.core.exceptions import AzureError

from evalfleet.azure import sizes, skus
from evalfleet.azure.account import policies
from evalfleet.azure.account.permissions import BUDGETS, NEEDED, NEEDED_ABOVE, REQUIRED, Grant, grant, missing
from evalfleet.azure.arm import judged
from evalfleet.azure.clients import Clients
from evalfleet.azure.error_causes import classify, facts_of, quota_message
from evalfleet.azure.quota import allowance, usages
from evalfleet.errors import ConfigError
from evalfleet.hosts.base import first_error
from evalfleet.pools.cloud.problems import Cause, Refusal
from evalfleet.pools.cloud.records import Diagnosis, Level, Offering

LIMIT_S = 15.0  # of one check
CLOCK_S = 60.0  # a schedule has whole minutes
SPACES = ("Microsoft.Compute", "Microsoft.Network", "Microsoft.DevTestLab")
_ADDRESSES = ("standardskupublicipaddresses", "publicipaddresses", "staticpublicipaddresses")
_API = {"subscription": "2022-12-01", "provider": "2021-04-01", "permissions": "2022-04-01", "network": "2024-05-01"}
_POLICY_API = "2022-06-01"
Check = Callable[[], AsyncGenerator[Diagnosis]]


class Account:
    """One subscription and resource group, as they are asked for a purchase."""

    def __init__(self, clients: Clients, echo: Callable[[], Awaitable[str]]) -> None:
        """
        Args:
            echo: tells under which address this machine is seen from outside.
        """
        self._clients = clients
        self._arm = clients.arm
        self._settings = clients.settings
        self._above = f"/subscriptions/{clients.settings.subscription}"
        self._echo = echo

    async def examine(self, offerings: Sequence[Offering], workers: int, *, register: bool) -> list[Diagnosis]:
        """All checks, in the order in which a person should read them. Who is not signed in is told only that."""
        first = await self._limited("sign-in", self._sign_in)
        if any(each.level is Level.PROBLEM for each in first):
            return first
        listed = anyio.Event()  # the SKU API was asked, and what it says of sizes is known
        checks: dict[str, Check] = {
            "subscription": self._subscription,
            "resource group": self._group,
            "providers": lambda: self._providers(register=register),
            "permissions": self._permissions,
            "policies": lambda: self._policies(offerings),
            "quota": lambda: self._quota(offerings, workers, listed),
            "sizes": lambda: self._sizes(offerings, listed),
            "addresses": lambda: self._addresses(offerings, workers),
            "own address": self._own_address,
        }
        found: dict[str, list[Diagnosis]] = {}

        async def look(name: str, check: Check) -> None:
            found[name] = await self._limited(name, check)

        async with anyio.create_task_group() as group:
            for name, check in checks.items():
                group.start_soon(look, name, check)
        return [*first, *(each for name in checks for each in found[name]), self._clock()]

    async def _limited(self, name: str, check: Check) -> list[Diagnosis]:
        found: list[Diagnosis] = []
        try:
            with anyio.fail_after(LIMIT_S):
                async for each in check():
                    found.append(each)
        except TimeoutError:
            found.append(_warning(name, f"Azure did not answer within {LIMIT_S:g} s", "try again later"))
        except Refusal as error:
            found.append(_unseen(name, error))
        except AzureError as error:
            found.append(_unseen(name, Refusal(classify(facts_of(error)))))
        return found

    # Who we are

    async def _sign_in(self) -> AsyncGenerator[Diagnosis]:
        if not self._settings.signed:
            yield _ok("sign-in", "this emulator asks for none")
            return
        try:
            token = await self._clients.credential.get_token(self._settings.scope)
        except AzureError as error:
            said = classify(facts_of(error)).message
            what, _, remedy = said.partition("; ")
            yield _problem("sign-in", what, remedy or "run `az login`")
            return
        yield _ok("sign-in", f"signed in as {_who(token.token)}")

    async def _subscription(self) -> AsyncGenerator[Diagnosis]:
        found = await self._arm.get(self._above, _API["subscription"])
        state = str((found or {}).get("state", ""))
        if found is None:
            said = f"there is no subscription {self._settings.subscription}, or you may not see it"
            remedy = "`az account list -o table` shows yours; set EVALFLEET_AZURE_SUBSCRIPTION to one of them"
            yield _problem("subscription", said, remedy)
        elif state not in ("Enabled", "Warned"):
            said = f"{found.get('displayName')} is {state}: nothing can be made in it"
            yield _problem("subscription", said, "see to its payment in the portal, or name another subscription")
        else:
            yield _ok("subscription", f"{found.get('displayName')} ({self._settings.subscription}), {state.lower()}")

    async def _group(self) -> AsyncGenerator[Diagnosis]:
        name = self._settings.resource_group
        if await self._arm.has_group():
            yield _ok("resource group", name)
            return
        held = await self._held(self._above)
        if missing(held, ("Microsoft.Resources/subscriptions/resourceGroups/write",)):
            remedy = f"ask for it: az group create --name {name} --location eastus"
            yield _problem(
                "resource group", f"{name} is not there (or not to be seen), and you may not make it", remedy
            )
        else:
            yield _ok("resource group", f"{name} is not there yet; the first pool makes it")

    async def _providers(self, *, register: bool) -> AsyncGenerator[Diagnosis]:
        absent: list[str] = []
        spaces = (*SPACES, "Microsoft.Consumption") if self._settings.budget_emails else SPACES
        for space in spaces:
            provider = await self._arm.get(f"{self._above}/providers/{space}", _API["provider"])
            if (provider or {}).get("registrationState") != "Registered":
                absent.append(space)
        if register:
            absent = [space for space in absent if not await self._arm.register(space)]
        if absent:
            remedy = "evalfleet doctor --azure --register   registers them; so does the first pool, if you may"
            yield _warning("providers", f"the subscription is not registered for {', '.join(absent)}", remedy)
        else:
            yield _ok("providers", f"registered: {', '.join(spaces)}")

    # What we may do

    async def _held(self, scope: str) -> list[Grant]:
        path = f"{scope}/providers/Microsoft.Authorization/permissions"
        return [grant(each) for each in await self._arm.list(path, _API["permissions"])]

    async def _permissions(self) -> AsyncGenerator[Diagnosis]:
        scope = self._settings.group_path() if await self._arm.has_group() else self._above
        held = await self._held(scope)
        needed = {what: NEEDED[what] for what in NEEDED if what != BUDGETS or self._settings.budget_emails}
        lacks = {what: missing(held, actions) for what, actions in needed.items()}
        above = await self._held(self._above)
        lacks_above = {what: missing(above, actions) for what, actions in NEEDED_ABOVE.items()}
        role = "ask for the role in docs/reference/azure.md on the resource group"
        for what, actions in lacks.items():
            if actions:
                said = f"you may not {what}: {_some(actions)}"
                yield (_problem if what in REQUIRED else _warning)("permissions", said, role)
        for what, actions in lacks_above.items():
            if actions:
                remedy = "ask for Reader on the subscription; machines can be made without it"
                yield _warning("permissions", f"you may not {what}: {_some(actions)}", remedy)
        if not any(lacks.values()) and not any(lacks_above.values()):
            yield _ok("permissions", "all that the commands need")

    async def _policies(self, offerings: Sequence[Offering]) -> AsyncGenerator[Diagnosis]:
        scope = self._settings.group_path() if await self._arm.has_group() else self._above
        path = f"{scope}/providers/Microsoft.Authorization/policyAssignments"
        assigned = await self._arm.list(path, _POLICY_API)
        found = policies.obstacles(assigned, offerings, public_ip=self._settings.public_ip)
        for message, remedy in found:
            yield _problem("policies", message, remedy)
        if not found:
            yield _ok("policies", "none that is known forbids such machines")

    # What there is to be had

    async def _quota(
        self, offerings: Sequence[Offering], workers: int, listed: anyio.Event
    ) -> AsyncGenerator[Diagnosis]:
        if any(sizes.known(each.size) is None for each in offerings):
            await listed.wait()
        free, told = 0, list[str]()
        short: dict[str, str] = {}
        for offering in offerings:
            size = sizes.find(offering.size)
            counters = await usages(self._clients, offering.region)
            allowed = allowance(counters, size, offering.region, spot=offering.spot)
            free += allowed.fits
            told.append(f"{offering.region} {allowed.fits}")
            for each in allowed.missing(workers)[:1]:
                short[offering.region] = quota_message(each, offering.region)
        size_names = ", ".join(dict.fromkeys(each.size for each in offerings))
        kind = "spot machines" if offerings and offerings[0].spot else "machines"
        said = f"{kind} of {size_names} that still fit: {', '.join(told)}"
        if free < workers:
            yield _problem("quota", said, next(iter(short.values()), "ask for more quota").partition("; ")[2])
        else:
            yield _ok("quota", said)

    async def _sizes(self, offerings: Sequence[Offering], listed: anyio.Event) -> AsyncGenerator[Diagnosis]:
        closed: dict[Offering, str] = {}

        async def look(region: str) -> None:
            by_name = await skus.listed(self._arm, self._settings.subscription, region)
            for offering in offerings:
                row = by_name.get(offering.size.lower())
                if offering.region == region and (why := _restricted(row)):
                    closed[offering] = why
                if row is not None and sizes.known(offering.size) is None:
                    sizes.learn(skus.size_of(row))

        try:
            async with judged():
                with first_error(AzureError):
                    async with anyio.create_task_group() as group:
                        for region in dict.fromkeys(each.region for each in offerings):
                            group.start_soon(look, region)
        finally:
            listed.set()
        for offering, why in closed.items():
            message = f"{offering.size} is not sold to you in {offering.region}: {why}"
            remedy = "name another size or region (--size, --regions), or ask Azure's support to lift it"
            yield (_problem if len(closed) == len(offerings) else _warning)("sizes", message, remedy)
        if not closed:
            yield _ok("sizes", f"sold to you in {', '.join(dict.fromkeys(each.region for each in offerings))}")

    async def _addresses(self, offerings: Sequence[Offering], workers: int) -> AsyncGenerator[Diagnosis]:
        if not self._settings.public_ip:
            yield _ok("addresses", "no public address is used")
            return
        free: dict[str, int] = {}
        for region in dict.fromkeys(each.region for each in offerings):
            path = f"{self._above}/providers/Microsoft.Network/locations/{region}/usages"
            rows = [
                row
                for row in await self._arm.list(path, _API["network"])
                if str(row["name"]["value"]).lower() in _ADDRESSES
            ]
            if rows:
                free[region] = min(int(row["limit"]) - int(row["currentValue"]) for row in rows)
        said = f"public addresses left: {', '.join(f'{region} {left}' for region, left in free.items())}"
        if free and sum(max(0, left) for left in free.values()) < workers:
            remedy = "ask for more (Usage + quotas in the portal), name more regions, or use no public address"
            yield _problem("addresses", said, remedy)
        else:
            yield _ok("addresses", said if free else "Azure counts none here")

    async def _own_address(self) -> AsyncGenerator[Diagnosis]:
        import ipaddress

        if not self._settings.public_ip:
            yield _ok("own address", "the machines are reached inside the network")
            return
        try:
            admitted = self._settings.admitted()
        except ConfigError as error:
            yield _problem("own address", str(error), "set azure.ssh_from (EVALFLEET_AZURE_SSH_FROM)")
            return
        try:
            seen = (await self._echo()).strip()
            is_admitted = any(ipaddress.ip_address(seen) in ipaddress.ip_network(each) for each in admitted)
        except (OSError, ValueError) as error:
            remedy = "compare azure.ssh_from with your public address by hand: curl -4 https://ifconfig.me"
            yield _warning("own address", f"cannot be found out: {error}", remedy)
            return
        if is_admitted:
            yield _ok("own address", f"{seen}, which azure.ssh_from lets in")
        else:
            remedy = f"export EVALFLEET_AZURE_SSH_FROM={seen}/32"
            yield _problem("own address", f"{seen}, but azure.ssh_from lets in only {', '.join(admitted)}", remedy)

    def _clock(self) -> Diagnosis:
        skew_s = self._arm.skew_s
        if abs(skew_s) < CLOCK_S:
            return _ok("clock", "as Azure's")
        way = "behind" if skew_s > 0 else "ahead of"
        said = f"this machine's clock is {abs(skew_s) / 60:.0f} min {way} Azure's; deadlines are set by Azure's"
        return _warning("clock", said, "set it right (timedatectl set-ntp true)")


def _restricted(row: Mapping[str, Any] | None) -> str | None:
    """Why a size cannot be had, by its row in the list of SKUs; None: it can be."""
    if row is None:
        return "it is not in the list of sizes there"
    for each in cast("Sequence[Any]", row.get("restrictions") or ()):
        if each.get("type") == "Location":
            return str(each.get("reasonCode") or "restricted")
    return None


def _who(token: str) -> str:
    """The name in a token, which nobody but Azure needs to verify."""
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError, binascii.Error):
        return "somebody whom the token does not name"
    name = claims.get("upn") or claims.get("unique_name") or claims.get("preferred_username")
    who = name or f"application {claims.get('appid') or claims.get('oid') or '?'}"
    left_s = float(claims.get("exp", 0)) - time.time()
    return f"{who}, tenant {claims.get('tid', '?')}" + ("" if left_s > 0 else " (the token has expired)")


def _unseen(name: str, error: Refusal) -> Diagnosis:
    remedy = "ask for Reader on the subscription" if error.problem.cause is Cause.AUTH else "try again later"
    return _warning(name, f"cannot be seen: {error}", remedy)


def _some(actions: Sequence[str]) -> str:
    more = f" and {len(actions) - 2} more" if len(actions) > 2 else ""
    return ", ".join(actions[:2]) + more


def _ok(name: str, message: str) -> Diagnosis:
    return Diagnosis(name=name, message=message)


def _warning(name: str, message: str, remedy: str) -> Diagnosis:
    return Diagnosis(name=name, level=Level.WARNING, message=message, remedy=remedy)


def _problem(name: str, message: str, remedy: str) -> Diagnosis:
    return Diagnosis(name=name, level=Level.PROBLEM, message=message, remedy=remedy)
