"""Sign-in: the token endpoint, its discovery documents, and whose token a request carries."""

from __future__ import annotations

import base64
import json
import secrets
from typing import Any

from aiohttp import web

from evalfleet.azure.settings import EMULATOR_SUBSCRIPTION
from evalfleet.emulator.arm.protocol import ArmError
from evalfleet.emulator.context import EmulatorContext

TENANT = "00000000-0000-0000-0000-00000000e000"
CLIENT = "emulator"
PRINCIPAL = "00000000-0000-0000-0000-00000000e0a1"


class Identity:
    """What `azure-identity` asks for."""

    def __init__(self, world: EmulatorContext) -> None:
        self._world = world

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/{tenant}/v2.0/.well-known/openid-configuration", self._configuration),
            web.post("/{tenant}/oauth2/v2.0/token", self._token),
            web.get("/metadata/endpoints", self._endpoints),
        ]

    async def _configuration(self, request: web.Request) -> web.Response:
        base = f"{self._world.base_url}/{request.match_info['tenant']}"
        return web.json_response(
            {
                "token_endpoint": f"{base}/oauth2/v2.0/token",
                "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
                "issuer": f"{base}/v2.0",
                "tenant_region_scope": None,
            }
        )

    async def _token(self, request: web.Request) -> web.Response:
        await self._world.meet("token", {})
        form = await request.post()
        client, secret = str(form.get("client_id", "")), str(form.get("client_secret", ""))
        if self._world.signs_in and client != CLIENT:
            said = f"AADSTS700016: Application with identifier '{client}' was not found in the directory 'emulator'."
            return _refused("unauthorized_client", said)
        if self._world.signs_in and secret != self._world.secret:
            said = f"AADSTS7000215: Invalid client secret provided for app '{client}'."
            return _refused("invalid_client", said)
        claims = {
            "tid": request.match_info["tenant"],
            "exp": int(self._world.clock.now()) + 3600,
            "appid": client,
            "oid": PRINCIPAL,
            "sub": PRINCIPAL,
        }
        token = ".".join([_part({"alg": "none"}), _part(claims), secrets.token_urlsafe(8)])
        self._world.tokens.add(token)
        return web.json_response({"token_type": "Bearer", "expires_in": 3600, "access_token": token})

    async def _endpoints(self, request: web.Request) -> web.Response:
        base = self._world.base_url
        return web.json_response(
            {
                "name": "emulator",
                "resourceManager": base,
                "authentication": {"loginEndpoint": base, "audiences": [base], "tenant": TENANT},
                "subscription": EMULATOR_SUBSCRIPTION,
            }
        )


def require_token(world: EmulatorContext, authorization: str | None) -> None:
    """Refuse a request without a token, and with TLS one whose token was not given out here."""
    if authorization is None:
        raise ArmError(401, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
    if world.signs_in and authorization.removeprefix("Bearer ") not in world.tokens:
        raise ArmError(401, "InvalidAuthenticationToken", "The access token is invalid.")


def _refused(error: str, said: str) -> web.Response:
    return web.json_response({"error": error, "error_description": said, "error_codes": [_number(said)]}, status=401)


def _number(said: str) -> int:
    return int(said.partition(":")[0].removeprefix("AADSTS"))


def _part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
