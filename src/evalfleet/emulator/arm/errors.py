"""Errors as Azure Resource Manager answers them; faults of a scenario are such errors, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiohttp import web

Body = dict[str, Any]


class ArmError(Exception):
    """An answer that is an error."""

    def __init__(
        self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None, detail: str = ""
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = dict(headers or {})
        self.detail = detail

    def body(self) -> Body:
        error: Body = {"code": self.code, "message": self.message}
        if self.detail:
            error["details"] = [{"code": self.detail, "message": self.message}]
        return {"error": error}

    def answer(self) -> web.Response:
        from aiohttp import web  # slow to import, and the fake Docker answers nothing by HTTP

        return web.json_response(self.body(), status=self.status, headers=self.headers)


class Never(ArmError):
    """Stands for the end of an operation that never ends."""
