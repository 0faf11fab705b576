"""Policies of an organisation that would refuse our machines, by the definitions that Azure brings itself. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evalfleet.pools.cloud.records import Offering

NO_PUBLIC_IP = "83a86a26-fd1f-447c-b59d-e51f44264114"  # network interfaces should not have public IPs
NOT_ALLOWED_TYPES = "6c112d4e-5bc7-47ae-a041-ea2d9dccd749"
ALLOWED_LOCATIONS = "e56962a6-4747-49cd-b67b-bf8b01975c4c"
ALLOWED_SIZES = "cccc23c7-8427-4f53-ad12-b6a63eb452b3"
_ADDRESS = "microsoft.network/publicipaddresses"
_NO_ADDRESS_HELP = "use a network of your own without public addresses: docs/howto/azure-in-a-company.md"


def obstacles(
    assignments: Iterable[Mapping[str, Any]], offerings: Sequence[Offering], *, public_ip: bool
) -> list[tuple[str, str]]:
    """Return what the assigned policies forbid of machines like these, each with what to do about it."""
    found: list[tuple[str, str]] = []
    for each in assignments:
        properties: Mapping[str, Any] = each.get("properties") or {}
        if properties.get("enforcementMode", "Default") != "Default":
            continue
        definition = str(properties.get("policyDefinitionId", "")).rpartition("/")[2].lower()
        parameters: Mapping[str, Any] = properties.get("parameters") or {}
        named = f"policy {properties.get('displayName') or each.get('name')!r}"
        obstacle = _obstacle(definition, parameters, offerings, public_ip=public_ip)
        if obstacle is not None:
            found.append((f"{named} {obstacle[0]}", obstacle[1]))
    return found


def _obstacle(
    definition: str, parameters: Mapping[str, Any], offerings: Sequence[Offering], *, public_ip: bool
) -> tuple[str, str] | None:
    if definition == NO_PUBLIC_IP and public_ip:
        return "forbids public addresses", _NO_ADDRESS_HELP
    if (
        definition == NOT_ALLOWED_TYPES
        and public_ip
        and _ADDRESS in _values(parameters, "listOfResourceTypesNotAllowed")
    ):
        return "forbids public addresses", _NO_ADDRESS_HELP
    if definition == ALLOWED_LOCATIONS:
        allowed = _values(parameters, "listOfAllowedLocations")
        outside = [each.region for each in offerings if each.region.lower() not in allowed]
        if outside:
            named = ", ".join(dict.fromkeys(outside))
            return f"forbids {named}", f"name regions that it allows (--regions): {', '.join(sorted(allowed))}"
    if definition == ALLOWED_SIZES:
        allowed = _values(parameters, "listOfAllowedSKUs")
        outside = [each.size for each in offerings if each.size.lower() not in allowed]
        if outside:
            named = ", ".join(dict.fromkeys(outside))
            return f"forbids {named}", f"name sizes that it allows (--size): {', '.join(sorted(allowed)[:5])}"
    return None


def _values(parameters: Mapping[str, Any], name: str) -> set[str]:
    inner: Any = parameters.get(name) or {}
    return {str(value).lower() for value in inner.get("value") or ()}
