"""What Azure's errors mean, and what to do about each. Pure.

The class of a Python exception tells nothing: a quota (409) arrives as `ResourceExistsError`, a lack of capacity as an
error with status 200. So we read the code in the body, then the text, in an order that matters: the quota of spot
machines mentions cores as the others do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, cast

from msgspec import Struct

from evalfleet.pools.cloud.problems import ACTIONS, Action, Cause, MissingQuota, Problem

HOUR = 3600.0
NOT_SIGNED_IN = "NotSignedIn"  # our own code: the library names none where no token could be had
_NAMESPACE = re.compile(r"namespace '([\w.]+)'")
_DENIED = re.compile(r"perform (?:the )?action '(?P<action>[^']+)'.*?over scope '(?P<scope>[^']+)'")
_POLICY_HELP = "if it forbids public addresses, see docs/howto/azure-in-a-company.md"
_SIGN_IN_ERROR = "ClientAuthenticationError"
_REFUSED_SIGN_IN = re.compile(r"AADSTS\d+:[^.\n]*")
_NO_CONNECTION = ("Cannot connect to host", "Failed to resolve", "Name or service not known")


class ErrorFacts(Struct, frozen=True, kw_only=True):
    """What was seen of an error: nothing of it is judged yet."""

    code: str = ""
    message: str = ""
    status: int | None = None
    retry_after_s: float | None = None


_QUOTA = re.compile(
    r"exceeding approved (?P<name>.+?) quota.*?Current Limit: (?P<limit>\d+).*?Current Usage: (?P<usage>\d+)"
    r".*?Additional Required: (?P<required>\d+)",
    re.DOTALL,
)
# Of Azure Batch, which names no numbers.
_BATCH_QUOTAS = {
    "accountcorequotareached": Cause.FAMILY_QUOTA,
    "accountvmseriescorequotareached": Cause.FAMILY_QUOTA,
    "accountlowprioritycorequotareached": Cause.SPOT_QUOTA,
    "accountspotcorequotareached": Cause.SPOT_QUOTA,
    "poolquotareached": Cause.REGION_QUOTA,
    "activejobandschedulequotareached": Cause.REGION_QUOTA,
}
_QUOTA_CODES = frozenset({"operationnotallowed", "quotaexceeded"})
_CAPACITY_CODES = frozenset(
    {
        *("allocationfailed", "zonalallocationfailed", "overconstrainedallocationrequest"),
        *("overconstrainedzonalallocationrequest", "allocationtimeout", "allocationtimedout"),
    }
)
_PROVISIONING_CODES = frozenset({"osprovisioningtimedout", "osprovisioningclienterror", "vmstarttimedout"})
_SPOT_CODES = frozenset(
    {
        *("spotpricegreaterthanprovidedmaxprice", "vmsizedoesnotsupportspot"),
        "evictionpolicycanbesetonlyonazurespotvirtualmachines",
    }
)
_CONFLICT_CODES = frozenset(
    {
        *("conflict", "anotheroperationinprogress", "operationpreempted", "retryableerror", "nicinuse"),
        *("poolbeingresized", "jobbeingdeleted", "poolbeingdeleted", "nodestateconflict", "resizestopped"),
        *("inusesubnetcannotbedeleted", "inusenetworksecuritygroupcannotbedeleted", "publicipaddresscannotbedeleted"),
    }
)
_ADDRESS_CODES = frozenset({"publicipcountlimitreached", "publicipaddresscountlimitreached"})
_POLICY_CODES = frozenset({"requestdisallowedbypolicy", "requestdisallowedbyazure"})
_LOCK_CODES = frozenset({"scopelocked"})
_AUTH_CODES = frozenset(
    {
        *("authorizationfailed", "linkedauthorizationfailed"),
        *("invalidauthenticationtoken", "expiredauthenticationtoken", "invalidauthenticationtokentenant"),
        NOT_SIGNED_IN.lower(),
    }
)
_THROTTLE_CODES = frozenset({"toomanyrequests", "subscriptionrequeststhrottled", "operationnotallowedduetothrottling"})


def facts_of(error: BaseException) -> ErrorFacts:
    """Read an exception of the Azure libraries, or any other, without knowing its class."""
    inner = getattr(error, "error", None)
    status = getattr(error, "status_code", None)
    code = getattr(inner, "code", None)
    message = getattr(inner, "message", None) or getattr(error, "message", None) or str(error) or type(error).__name__
    details = cast("Iterable[Any]", getattr(inner, "details", None) or ())
    if status == 429:
        code = next((str(d.code) for d in details if getattr(d, "code", None)), code)
    headers = getattr(getattr(error, "response", None), "headers", None)
    if not code and _is_sign_in(error) and not any(words in str(message) for words in _NO_CONNECTION):
        code = NOT_SIGNED_IN
    return ErrorFacts(
        code=str(code or ""),
        message=str(message),
        status=status if isinstance(status, int) else None,
        retry_after_s=retry_after(headers),
    )


def _is_sign_in(error: BaseException) -> bool:
    return any(kind.__name__ == _SIGN_IN_ERROR for kind in type(error).__mro__)


def retry_after(headers: Any) -> float | None:
    """Return how long the server asks us to wait, in seconds; None where it names no number."""
    try:
        if (text := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(text) / 1000)
        if (text := headers.get("Retry-After")) is not None:
            return max(0.0, float(text))
    except (AttributeError, TypeError, ValueError):
        pass
    return None


def classify(facts: ErrorFacts, *, region: str = "", size: str = "", spot: bool = False) -> Problem:
    """Judge an error. Total: whatever comes is given a cause, and a cause has one action."""
    cause, quota = _cause(facts)
    return Problem(
        cause=cause,
        action=ACTIONS[cause],
        message=_message(cause, facts, quota, region=region, size=size),
        code=facts.code,
        wait_s=_wait_s(cause, facts),
        avoid_s=_avoid_s(cause, quota, spot),
        quota=quota,
    )


def _cause(facts: ErrorFacts) -> tuple[Cause, MissingQuota | None]:
    code, text = facts.code.lower(), facts.message
    if code in _BATCH_QUOTAS:
        return _BATCH_QUOTAS[code], None
    if code in _QUOTA_CODES and "quota" in text.lower():
        return _quota_cause(text)
    for codes, cause in (
        (frozenset({"skunotavailable"}), Cause.SKU),
        (_CAPACITY_CODES, Cause.CAPACITY),
        (_PROVISIONING_CODES, Cause.PROVISIONING),
        (frozenset({"galleryimagenotfound", "imagenotfound"}), Cause.IMAGE),
        (_SPOT_CODES, Cause.SPOT_REFUSED),
        (_THROTTLE_CODES, Cause.THROTTLED),
        (_AUTH_CODES, Cause.AUTH),
        (_CONFLICT_CODES, Cause.CONFLICT),
        (_ADDRESS_CODES, Cause.REGION_QUOTA),
        (_POLICY_CODES, Cause.REQUEST),
        (_LOCK_CODES, Cause.LOCKED),
        (frozenset({"resourcenotfound", "resourcegroupnotfound", "notfound"}), Cause.NOT_FOUND),
    ):
        if code in codes:
            return cause, None
    return _cause_by_status(facts.status), None


def _cause_by_status(status: int | None) -> Cause:
    # An operation that was accepted (200) and failed in a way that nobody foresaw says nothing of the next one.
    if status is None or status >= 500 or status in (200, 408):
        return Cause.SERVER
    if status == 429:
        return Cause.THROTTLED
    if status in (401, 403):
        return Cause.AUTH
    return Cause.NOT_FOUND if status == 404 else Cause.REQUEST


def _quota_cause(text: str) -> tuple[Cause, MissingQuota | None]:
    found = _QUOTA.search(text)
    quota = None
    if found:
        name = " ".join(found["name"].split()).removesuffix(" Cores")
        quota = MissingQuota(
            name=name, limit=int(found["limit"]), usage=int(found["usage"]), required=int(found["required"])
        )
    if "LowPriorityCores" in text or "low priority" in text.lower():
        return Cause.SPOT_QUOTA, quota
    if "Total Regional" in text:
        return Cause.REGION_QUOTA, quota
    return Cause.FAMILY_QUOTA, quota


def _wait_s(cause: Cause, facts: ErrorFacts) -> float:
    if ACTIONS[cause] is not Action.WAIT:
        return 0.0
    if facts.retry_after_s is not None:
        return facts.retry_after_s
    return {Cause.THROTTLED: 30.0, Cause.CONFLICT: 10.0}.get(cause, 5.0)


def _avoid_s(cause: Cause, quota: MissingQuota | None, spot: bool) -> float:
    """How long an offer that failed so will fail again; Microsoft's own autoscaler uses the same times."""
    match cause:
        case Cause.SPOT_QUOTA | Cause.FAMILY_QUOTA | Cause.REGION_QUOTA:
            return HOUR if quota is not None and quota.limit == 0 else HOUR / 6
        case Cause.SKU:
            return HOUR if spot else 23 * HOUR
        case Cause.CAPACITY | Cause.IMAGE:
            return HOUR
        case Cause.SPOT_REFUSED | Cause.PROVISIONING:
            return HOUR / 6
        case _:
            return 0.0


def _message(cause: Cause, facts: ErrorFacts, quota: MissingQuota | None, *, region: str, size: str) -> str:
    where = f" in {region}" if region else ""
    what = size or "the VM"
    said = _one_line(facts)
    match cause:
        case Cause.SPOT_QUOTA | Cause.FAMILY_QUOTA | Cause.REGION_QUOTA:
            if facts.code.lower() in _ADDRESS_CODES:
                return f"the quota of public addresses{where} is used up: {said}; name another region, or ask for more"
            return quota_message(quota, region) if quota else f"the quota{where} is used up: {said}"
        case _ if facts.code.lower() in _POLICY_CODES:
            return f"a policy of your organisation forbids it{where}: {said}; {_POLICY_HELP}"
        case Cause.LOCKED:
            return f"a lock forbids it{where}: {said}; `az lock list` shows it, and who may remove it can use `az lock delete`"
        case Cause.SKU:
            return f"{what} is not to be had{where}; name another size or region (--size, --regions): {said}"
        case Cause.CAPACITY:
            return f"Azure has no machine free for {what}{where}; name another region, or try later: {said}"
        case Cause.SPOT_REFUSED:
            return f"{what} is not to be had as a spot machine{where}; leave out --spot, or name another size: {said}"
        case Cause.IMAGE:
            return (
                f"the image is not to be had{where}; bake it for that region too, or name another (--regions): {said}"
            )
        case Cause.PROVISIONING:
            return f"{what}{where} was made and did not come up: {said}"
        case Cause.THROTTLED:
            return f"Azure asks for fewer requests{where}: {said}"
        case _ if facts.code.lower() == "missingsubscriptionregistration":
            named = _NAMESPACE.search(facts.message)
            space = named[1] if named else "NAME"
            return f"Azure refused{where}: {said}; `az provider register --namespace {space}` registers it"
        case Cause.AUTH if denied := _DENIED.search(facts.message):
            return (
                f"you lack the permission {denied['action']} on {denied['scope']}; ask for the role in "
                "docs/reference/azure.md (`evalfleet doctor --azure` lists all that is missing)"
            )
        case Cause.AUTH if facts.code == NOT_SIGNED_IN:
            return sign_in_message(facts.message)
        case Cause.AUTH if facts.status == 401:
            return f"Azure does not accept this sign-in: {said}; sign in again: az login"
        case Cause.AUTH:
            return f"Azure does not let us: {said}; `evalfleet doctor --azure` shows which permissions are missing"
        case _:
            return f"Azure refused{where}: {said}" if facts.status else f"Azure does not answer{where}: {said}"


def sign_in_message(text: str) -> str:
    """Say why no token could be had, and what to do. The library's text is a page that names every way it tried."""
    refused = _REFUSED_SIGN_IN.search(text)
    if refused is None:
        return (
            "not signed in to Azure; run `az login`, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET of a "
            "service principal"
        )
    variables = "AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
    return f"Azure refused the sign-in: {refused[0]}; correct {variables}, or unset them and run `az login`"


def quota_message(quota: MissingQuota, region: str) -> str:
    """Say what is missing, and the command that asks for more."""
    where = f" in {region}" if region else ""
    return (
        f"quota {quota.name}{where} lacks {quota.missing} cores: limit {quota.limit}, used {quota.usage}, "
        f"needed {quota.required} more; ask for {quota.wanted}: {quota_command(quota.name, region, quota.wanted)}"
    )


def quota_command(name: str, region: str, wanted: int) -> str:
    """Return the command that asks Azure for a higher limit."""
    resource = {"Total Regional": "cores", "LowPriorityCores": "lowPriorityCores"}.get(name, name)
    scope = f"/subscriptions/$EVALFLEET_AZURE_SUBSCRIPTION/providers/Microsoft.Compute/locations/{region or 'REGION'}"
    limit = f"value={wanted} limit-object-type=LimitValue"
    return f'az quota update --resource-name {resource} --scope "{scope}" --limit-object {limit}'


def _one_line(facts: ErrorFacts) -> str:
    named = facts.message if facts.code in facts.message else f"{facts.code}: {facts.message}"
    return " ".join(named.split())[:300]
