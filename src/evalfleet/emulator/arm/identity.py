"""Sign-in: the token endpoint and its discovery documents. Every secret is accepted."""

from __future__ import annotations

import base64
import json
from typing import Any

from aiohttp import web

from evalfleet.azure.settings import EMULATOR_SUBSCRIPTION
from evalfleet.emulator.context import EmulatorContext

TENANT = "00000000-0000-0000-0000-00000000e000"


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
        claims = {"tid": request.match_info["tenant"], "exp": int(self._world.clock.now()) + 3600, "sub": "emulator"}
        token = ".".join([_part({"alg": "none"}), _part(claims), "unsigned"])
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


def _part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
