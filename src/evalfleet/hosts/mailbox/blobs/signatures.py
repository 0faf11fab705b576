"""Signatures of Azure's blob storage: of requests, and of addresses that reach one container until a moment. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

from msgspec import Struct

from evalfleet.pilot.carrier import VERSION

NODE_MAY = "rcwdl"  # read, create, write, delete, list: inside its own container
_SIGNED_HEADERS = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)


class DelegationKey(Struct, frozen=True, kw_only=True):
    """A key that the service lends to a signed-in identity, to sign addresses without the account's key."""

    object_id: str
    tenant_id: str
    starts: str
    expires: str
    service: str
    version: str
    value: str

    def __repr__(self) -> str:
        return f"DelegationKey(expires={self.expires!r})"


def moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def request_signature(
    account: str, key: str, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> str:
    """The Authorization header of a request that the account's key signs."""
    low = {name.lower(): value for name, value in headers.items()}
    values = [
        "" if low.get(name) == "0" and name == "content-length" else low.get(name, "") for name in _SIGNED_HEADERS
    ]
    own = [f"{name}:{value}" for name, value in sorted(low.items()) if name.startswith("x-ms-")]
    resource = [f"/{account}{path}", *(f"{name.lower()}:{value}" for name, value in sorted(query.items()))]
    return f"SharedKey {account}:{_signed(key, [method, *values, *own, *resource])}"


def container_address(
    base: str,
    account: str,
    container: str,
    expires: float,
    *,
    key: str | None = None,
    lent: DelegationKey | None = None,
) -> str:
    """The address of a container with the right to use it until then, signed by the account's key or by a lent one."""
    secure = "https" if base.startswith("https:") else "https,http"
    resource = f"/blob/{account}/{container}"
    query = {"sp": NODE_MAY, "se": moment(expires), "spr": secure, "sv": VERSION, "sr": "c"}
    tail = ["", secure, VERSION, "c", *[""] * 7]  # address range, …, snapshot, scope, five headers
    if lent is None:
        query["sig"] = _signed(key or "", [NODE_MAY, "", query["se"], resource, "", *tail])
    else:
        delegation = {
            "skoid": lent.object_id,
            "sktid": lent.tenant_id,
            "skt": lent.starts,
            "ske": lent.expires,
            "sks": lent.service,
            "skv": lent.version,
        }
        query |= delegation
        signed = [NODE_MAY, "", query["se"], resource, *delegation.values(), "", "", "", *tail]
        query["sig"] = _signed(lent.value, signed)
    return f"{base}/{container}?{urlencode(query)}"


def _signed(key: str, lines: list[str]) -> str:
    digest = hmac.new(base64.b64decode(key), "\n".join(lines).encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()
