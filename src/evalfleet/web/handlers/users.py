"""Users and the audit log, for admins."""

from __future__ import annotations

import msgspec
from aiohttp import web

from evalfleet.answers.team import UserList
from evalfleet.operations import users
from evalfleet.operations.users import AuditFilter
from evalfleet.web import params
from evalfleet.web.answers import answered, told
from evalfleet.web.context import Handlers, bearer_of


class NewUser(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    role: str = "member"


class UserChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    role: str | None = None
    disabled: bool | None = None


class Users(Handlers):
    """Handlers of the role admin."""

    async def listed(self, request: web.Request) -> web.Response:
        del request
        return await answered(self._site, None, lambda store: UserList(users=users.list_users(store)))

    async def add(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, NewUser)
        by = str(bearer_of(request))
        return told(await self._site.write(lambda store: users.add_user(store, wanted.name, wanted.role, by=by)), 201)

    async def set(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, UserChange)
        name, by = request.match_info["user"], str(bearer_of(request))
        return told(
            await self._site.write(
                lambda store: users.set_user(store, name, role=wanted.role, disabled=wanted.disabled, by=by)
            )
        )

    async def remove(self, request: web.Request) -> web.Response:
        await params.body(request, params.Nothing)
        name, by = request.match_info["user"], str(bearer_of(request))
        return told(await self._site.write(lambda store: users.remove_user(store, name, by=by)))

    async def audit(self, request: web.Request) -> web.Response:
        page = params.page(request)
        wanted = AuditFilter(
            user=params.text(request, "user"),
            operation=params.text(request, "operation"),
            object=params.text(request, "object"),
        )
        before = int(page.cursor) if page.cursor else None
        return await answered(
            self._site, None, lambda store: users.audit_page(store, wanted, limit=page.limit, before=before)
        )
