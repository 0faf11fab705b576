"""The web application: all services behind one port, and the one place where errors become answers."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote, urlencode

from aiohttp import web
from aiohttp.typedefs import Middleware
from msgspec import Struct

from evalfleet.azure.settings import EMULATOR_SUBSCRIPTION
from evalfleet.emulator.arm.access.identity import Identity, require_token
from evalfleet.emulator.arm.access.policies import Policies, require_policies
from evalfleet.emulator.arm.access.roles import Roles, require_permission
from evalfleet.emulator.arm.budgets import Budgets
from evalfleet.emulator.arm.compute import Compute
from evalfleet.emulator.arm.galleries import Galleries
from evalfleet.emulator.arm.groups import Groups
from evalfleet.emulator.arm.monitor import Monitor
from evalfleet.emulator.arm.network import Network
from evalfleet.emulator.arm.protocol import ArmError, Call, Routes, parse
from evalfleet.emulator.arm.providers import Providers, require_registered
from evalfleet.emulator.arm.retail import Retail
from evalfleet.emulator.arm.schedules import Schedules
from evalfleet.emulator.arm.snapshots import Snapshots
from evalfleet.emulator.arm.vms import VirtualMachines
from evalfleet.emulator.batch.service import BatchService
from evalfleet.emulator.context import Dropped, EmulatorContext
from evalfleet.emulator.control import Control
from evalfleet.emulator.docker.daemon import Dockerd
from evalfleet.emulator.machines.docker_machine import VmDocker
from evalfleet.emulator.machines.guests import Guests
from evalfleet.emulator.machines.imds import Imds
from evalfleet.emulator.machines.machines import Machines
from evalfleet.emulator.ml.service import MachineLearning
from evalfleet.emulator.ml.workspaces import SPACE

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Services(Struct, frozen=True, kw_only=True):
    """What lives as long as the emulator."""

    app: web.Application
    machines: Machines
    dockerd: Dockerd
    guests: Guests
    control: Control
    ml: MachineLearning


def build(world: EmulatorContext) -> Services:
    """Put the services together."""
    network = Network(world)
    vms = VirtualMachines(world, network)
    snapshots = Snapshots(world, vms.machines)
    galleries = Galleries(world, snapshots)
    vms.machines.images = galleries.content
    network.changed = vms.machines.apply_all_rules
    guests = Guests(world, vms.machines)
    dockerd = Dockerd(lambda name: VmDocker(world, vms.machines, guests, vms.machines.named(name)))
    batch = BatchService(world)
    ml = MachineLearning(world)
    control = Control(world, vms.machines, dockerd, [batch, ml])
    routes: Routes = {
        **Providers(world).routes(),
        **Roles(world).routes(),
        **Policies(world).routes(),
        **network.routes(),
        **vms.routes(),
        **Compute(world).routes(),
        **snapshots.routes(),
        **galleries.routes(),
        **Groups(world, vms).routes(),
        **Schedules(world, vms).routes(),
        **Budgets(world).routes(),
        **batch.accounts.routes(),
        **ml.routes(),
        **world.operations.routes("microsoft.compute", "microsoft.network", "groups", SPACE),
    }
    app = web.Application(middlewares=[_answering(world)], client_max_size=16 * 2**20)
    app.add_routes(control.routes())
    app.add_routes(batch.routes())
    app.add_routes(ml.web_routes())
    app.add_routes(Imds(world, vms.machines).routes())
    app.add_routes(Retail(world).routes())
    app.add_routes(Monitor(world, vms.machines).routes())
    app.add_routes(Identity(world).routes())
    app.router.add_route("*", "/subscriptions/{tail:.*}", _arm(world, routes))
    return Services(app=app, machines=vms.machines, dockerd=dockerd, guests=guests, control=control, ml=ml)


def _answering(world: EmulatorContext) -> Middleware:
    """Return what stands before all handlers: turns errors into answers, and records every exchange but our own."""

    @web.middleware
    async def answering(request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except ArmError as error:
            response = error.answer()
        except Dropped:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        response.headers["x-ms-request-id"] = str(uuid.uuid4())
        response.headers["Date"] = formatdate(time.time() + world.scenario.clock_ahead, usegmt=True)
        if _is_recorded(request):
            world.journal.record(
                method=request.method,
                path=request.path,
                query=unquote(request.query_string),
                headers=request.headers,
                request=_parsed(await request.text()),
                status=response.status,
                answer=_parsed(_text(response)),
                answer_headers=response.headers,
            )
        return response

    return answering


def _is_recorded(request: web.Request) -> bool:
    """Leave out our own interface, and the looks for scheduled events: each VM asks every second."""
    polled = request.method == "GET" and request.path.endswith("/scheduledevents")
    return not polled and not request.path.startswith("/emulator/")


def _text(response: web.StreamResponse) -> str:
    """The text of an answer; empty for a file's content."""
    if response.content_type == "application/octet-stream":
        return ""
    return response.text or "" if isinstance(response, web.Response) and isinstance(response.body, bytes) else ""


def _parsed(text: str) -> Any:
    """Return what the text says in JSON; None for nothing, and the text where it is none."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def _arm(world: EmulatorContext, routes: Routes) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the handler of Azure Resource Manager, which does not mind the case of paths."""

    async def handle(request: web.Request) -> web.Response:
        return await _route(world, routes, request, await _body(request))

    return handle


async def _route(world: EmulatorContext, routes: Routes, request: web.Request, body: Any) -> web.Response:
    target = parse(request.path)
    api = request.query.get("api-version", "")
    if not api:
        raise ArmError(
            400, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required."
        )
    require_token(world, request.headers.get("Authorization"))
    if target is not None and target.subscription.lower() != EMULATOR_SUBSCRIPTION:
        said = f"The subscription '{target.subscription}' could not be found."
        raise ArmError(404, "SubscriptionNotFound", said)
    if target is None:
        raise ArmError(404, "InvalidResourceType", f"The path {request.path} is not emulated.")
    if target.kind.startswith(f"{SPACE}/"):
        world.require_service("ml")
    handler = routes.get((request.method, target.kind, target.action))
    if handler is None and target.action.count("/") == 1:
        handler = routes.get(
            (request.method, target.kind, "")
        )  # a child, such as a subnet; its type's owner looks it up
    if handler is None:
        said = f"{request.method} {target.kind} {target.action} is not emulated."
        raise ArmError(404, "InvalidResourceType", said)
    call = Call(
        target=target,
        method=request.method,
        api=api,
        base_url=world.base_url,
        query=request.query,
        headers=request.headers,
        body=body,
    )
    require_permission(world, call)
    require_registered(world, call)
    require_policies(world, call)
    if call.method == "DELETE" and target.group in world.scenario.lock:
        raise ArmError(409, "ScopeLocked", f"The scope '{request.path}' cannot perform delete operation: it is locked.")
    return _paged(world, request, await handler(call))


def _paged(world: EmulatorContext, request: web.Request, response: web.Response) -> web.Response:
    """The page of a list that was asked for, and where the next one is."""
    size, text = world.scenario.page, response.text or ""
    if size is None or request.method != "GET" or not text.startswith('{"value":'):
        return response
    found = json.loads(text)
    begin = int(request.query.get("$skiptoken", "0"))
    page = {"value": found["value"][begin : begin + size]}
    if begin + size < len(found["value"]):
        query = {**request.query, "$skiptoken": str(begin + size)}
        page["nextLink"] = f"{world.base_url}{request.path}?{urlencode(query)}"
    return web.json_response(page, status=response.status)


async def _body(request: web.Request) -> Any:
    text = await request.text()
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        raise ArmError(400, "InvalidRequestContent", "The request content was invalid and could not be read.") from None
