"""Before and after every request: whether the user may do it, and the row of the audit log."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from evalfleet.core.rights import RIGHTS, is_allowed, refusal
from evalfleet.errors import EvalfleetError, NotFound
from evalfleet.model import Run
from evalfleet.web.context import Site, admitted
from evalfleet.web.routes import Route
from evalfleet.web.security.auth import Denied
from evalfleet.web.security.tokens import Bearer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_NAMED = ("run", "pool", "plan", "user")  # parts of addresses that an operation is about
_MADE = ("run", "pool", "id", "name")  # members of answers that name what was made
_log = logging.getLogger("evalfleet.web")


async def permitted(site: Site, request: web.Request, route: Route, handler: Handler) -> web.StreamResponse:
    """Answer the request, if the user may. A change, and one that was refused, is written into the audit log.

    Raises Denied, NotFound.
    """
    assert route.operation is not None
    operation = route.control if route.control and request.query.get("control") == "1" else route.operation
    bearer = await site.gate.admit(request)
    admitted(request, bearer)
    site.connections.admitted(request.transport)
    outcome, made = "500", None
    try:
        await _require(site, request, bearer, operation)
        response = await handler(request)
        outcome, made = _outcome(response), _made(response)
        return response
    except Denied as error:
        outcome = str(error.status)
        raise
    except EvalfleetError as error:
        outcome = type(error).__name__
        raise
    except web.HTTPException as error:
        outcome = str(error.status)
        raise
    finally:
        if RIGHTS[operation].changes:
            await _write_down(site, request, bearer, operation, outcome, made)


async def _require(site: Site, request: web.Request, bearer: Bearer, operation: str) -> None:
    """Raises Denied, NotFound."""
    text, own, always = request.match_info.get("run"), False, is_allowed(bearer.role, operation)
    if text is not None and RIGHTS[operation].own is not None and is_allowed(bearer.role, operation, own=True):
        try:
            run: Run = await site.readers.call(lambda store: store.runs.find(text))
        except NotFound:
            if not always:
                raise
        else:
            # The handler means the run that was looked at here, although `latest` may be another one by then.
            request.match_info["run"] = run.id
            own = bool(run.owner) and run.owner == bearer.user
    if not always and not own:
        raise Denied(403, refusal(bearer.role, operation))


def _outcome(response: web.StreamResponse) -> str:
    return "done" if response.status < 400 else str(response.status)


def _made(response: web.StreamResponse) -> str | None:
    """What the answer says was made."""
    body = response.body if isinstance(response, web.Response) and response.status == 201 else None
    if not isinstance(body, bytes):
        return None
    answer = json.loads(body)
    return next((answer[name] for name in _MADE if isinstance(answer.get(name), str)), None)


async def _write_down(
    site: Site, request: web.Request, bearer: Bearer, operation: str, outcome: str, made: str | None
) -> None:
    named = made or next((request.match_info[name] for name in _NAMED if name in request.match_info), None)
    try:
        await site.write(
            lambda store: store.audit.add(
                bearer.user or bearer.name,
                operation,
                named,
                token=bearer.id or None,
                address=request.remote or "",
                outcome=outcome,
            )
        )
    except EvalfleetError as error:
        _log.warning("the audit log could not be written (%s by %s): %s", operation, bearer, error)
