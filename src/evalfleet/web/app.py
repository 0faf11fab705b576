"""The application: routes behind the gate, errors as JSON, headers that keep a browser safe, and the page."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from evalfleet.errors import (
    BackendError,
    EvalfleetError,
    FilesUnreachable,
    HostRefused,
    HostUnreachable,
    InputError,
    NotFound,
    Refused,
    StoreBusy,
)
from evalfleet.web import openapi
from evalfleet.web.context import Site
from evalfleet.web.metrics import home
from evalfleet.web.permission import permitted
from evalfleet.web.routes import API, Route, routes
from evalfleet.web.security.auth import Denied, Entrance, is_loopback
from evalfleet.web.security.sessions import LIFE_S

LARGEST_BODY = 32 << 20
STATIC = Path(__file__).parent / "static"
_PAGE_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_API_CSP = "default-src 'none'; frame-ancestors 'none'"
_ASSET = re.compile(r"[\w.-]+", re.ASCII)
_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".json": "application/json",
    ".html": "text/html",
}
_NO_PAGE = (
    "<!doctype html><meta charset=utf-8><title>evalfleet</title><p>The page is not built into this evalfleet: it is a "
    "checkout. Run <code>make page</code> there, then reload. The API is at <code>/api/v1</code>."
)
_ENDLESS = ("text/event-stream", "websocket")  # how long those take says nothing
_log = logging.getLogger("evalfleet.web")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(site: Site) -> web.Application:
    """The whole server, but for what runs beside it."""
    found = [*routes(site), home.route(site)]
    described = openapi.document([route for route in found if route.path.startswith(API)])
    found.append(_fixed(f"{API}/openapi.json", msgspec.json.encode(described), "what this API is"))
    found.append(_fixed("/healthz", b'{"status": "ok"}', "whether the server answers"))
    table = {(route.method, _canonical(route.path)): route for route in found}
    app = web.Application(middlewares=[_guard(site, table)], client_max_size=LARGEST_BODY)
    for route in found:
        app.router.add_route(route.method, route.path, route.handler)
        if route.method == "GET":
            app.router.add_route("HEAD", route.path, route.handler)
    app.router.add_get("/assets/{name}", _asset)
    app.router.add_get("/{name:[\\w-]+\\.(?:svg|ico|png|txt|webmanifest)}", _asset)
    app.router.add_get("/{path:.*}", partial(_page, site))
    app.on_response_prepare.append(partial(_add_headers, site.gate.entrance))
    return app


def _fixed(path: str, body: bytes, text: str) -> Route:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    return Route(method="GET", path=path, handler=handler, text=text, operation=None)


def _canonical(path: str) -> str:
    return re.sub(r"\{(\w+):[^{}]+\}", r"{\1}", path)


# The page


async def _page(site: Site, request: web.Request) -> web.StreamResponse:
    """The page, for every address that is one of its own. A token in the address becomes a cookie."""
    path = request.path
    if path.startswith(("/api/", "/metrics", "/healthz", "/assets/")) or "." in path:
        raise NotFound(f"there is nothing at {path!r}")
    token = request.query.get("token")
    if token:
        return await _enter(site, request, token)
    index = STATIC / "index.html"
    body = index.read_bytes() if index.is_file() else _NO_PAGE.encode()
    headers = {"Content-Security-Policy": _PAGE_CSP, "Cache-Control": "no-cache"}
    return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)


async def _enter(site: Site, request: web.Request, token: str) -> web.Response:
    if request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
        return _asked_first(request)
    bearer = await site.gate.try_token(request, token)
    rest = urlencode([(name, value) for name, value in request.query.items() if name != "token"])
    path = "/" + request.path.lstrip("/\\")  # two slashes would lead to another server
    response = web.Response(status=303, headers={"Location": f"{path}?{rest}" if rest else path})
    entrance = site.gate.entrance
    response.set_cookie(
        entrance.cookie,
        site.gate.sessions.open(bearer.id),
        httponly=True,
        samesite="Strict",
        path="/",
        secure=entrance.secure,
        max_age=int(LIFE_S),
    )
    _log.info("a browser entered with token %s", bearer.id)
    return response


def _asked_first(request: web.Request) -> web.Response:
    """Another site led here, perhaps to switch the user's identity: the user must confirm."""
    again = escape(f"?{request.query_string}", quote=True)
    body = (
        "<!doctype html><meta charset=utf-8><title>evalfleet</title><p>Another page sent you here with a token for this "
        f'server. If you want to use it, <a href="{again}">continue with it</a>; it replaces your current sign-in here.'
    )
    headers = {"Cache-Control": "no-store"}
    return web.Response(text=body, content_type="text/html", headers=headers)


async def _asset(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    folder = STATIC / "assets" if request.path.startswith("/assets/") else STATIC
    path = folder / name
    if not _ASSET.fullmatch(name) or name.startswith(".") or not path.is_file():
        raise NotFound(f"there is no file {name!r}")
    kept = "public, max-age=31536000, immutable" if folder != STATIC else "no-cache"
    kind = _TYPES.get(path.suffix, "application/octet-stream")
    return web.FileResponse(path, headers={"Content-Type": kind, "Cache-Control": kept})


# Around every request


def _guard(site: Site, table: Mapping[tuple[str, str], Route]) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        route = _route(request, table)
        began = time.perf_counter()
        try:
            site.gate.check_host(request)
            if route is not None and route.operation is not None:
                return await permitted(site, request, route, handler)
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            return _error(error.status, error.reason, error.text or error.reason, error.headers.get("Allow"))
        except Denied as error:
            return _error(error.status, "Denied", str(error), retry_after_s=error.retry_after_s)
        except EvalfleetError as error:
            return _error(_status(error), type(error).__name__, str(error))
        except ConnectionResetError:
            raise
        except Exception:  # noqa: BLE001 - the boundary
            _log.exception("%s %s failed", request.method, request.path)
            return _error(500, "Internal", "an internal error; the server's log has the traceback")
        finally:
            if route is not None and route.media not in _ENDLESS:
                site.latency.note(route.method, _canonical(route.path), time.perf_counter() - began)

    return guard


def _route(request: web.Request, table: Mapping[tuple[str, str], Route]) -> Route | None:
    """Which address it is for; None: the page, which holds no data, or nothing."""
    resource = request.match_info.route.resource
    method = "GET" if request.method == "HEAD" else request.method
    return table.get((method, resource.canonical)) if resource is not None else None


def _status(error: EvalfleetError) -> int:
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, InputError):
        return 400
    if isinstance(error, StoreBusy | HostUnreachable | HostRefused | FilesUnreachable):
        return 503
    return 409 if isinstance(error, Refused | BackendError) else 500


def _error(
    status: int, kind: str, message: str, allow: str | None = None, retry_after_s: float | None = None
) -> web.Response:
    headers: dict[str, str] = {"Cache-Control": "no-store"}
    if allow:
        headers["Allow"] = allow
    if retry_after_s is not None:
        headers["Retry-After"] = f"{retry_after_s:.0f}"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body: dict[str, Any] = {"error": {"kind": kind, "message": message, "status": status}}
    return web.json_response(body, status=status, headers=headers)


async def _add_headers(entrance: Entrance, request: web.BaseRequest, response: web.StreamResponse) -> None:
    # Of this machine's own names it would bind every other server here, whatever its port.
    if entrance.secure and not is_loopback(urlsplit(f"//{request.host}").hostname or ""):
        response.headers["Strict-Transport-Security"] = "max-age=31536000"
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Content-Security-Policy", _API_CSP)
    response.headers["Server"] = "evalfleet"
