"""Long-running operations: accepted at once, finished later, polled meanwhile. Like Azure's, except for the times."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from anyio.abc import TaskGroup
from msgspec import Struct

from evalfleet.emulator.arm.protocol import ArmError, Body, Call, Routes, answer, not_found
from evalfleet.emulator.clock import Clock, iso

OPERATIONS = "operations"
RESULTS = "operationresults"
Work = Callable[[], Awaitable[Any]]


class Operation(Struct):
    id: str
    started_at: float
    status: str = "InProgress"
    ended_at: float | None = None
    error: ArmError | None = None
    result: Any = None

    def body(self) -> Body:
        found: Body = {"name": self.id, "status": self.status, "startTime": iso(self.started_at)}
        if self.ended_at is not None:
            found["endTime"] = iso(self.ended_at)
        if self.error is not None:
            found["error"] = self.error.body()["error"]
        if self.result is not None:
            found["properties"] = {"output": self.result}
        return found


class Operations:
    """All long operations; each is a task of the group that the emulator lives in."""

    def __init__(self, clock: Clock, tasks: TaskGroup) -> None:
        self._clock = clock
        self._tasks = tasks
        self._known: dict[str, Operation] = {}

    def accepted(
        self, call: Call, location: str, work: Work, body: Body | None = None, status: int = 202
    ) -> web.Response:
        """Begin, and answer as to an accepted request. Without a body, the client also asks for the operation's result.

        Args:
            work: raises an `ArmError` to fail, and returns the operation's output or None.
        """
        operation = Operation(str(uuid.uuid4()), self._clock.now())
        self._known[operation.id] = operation
        self._tasks.start_soon(self._run, operation, work)
        space = call.target.kind.split("/")[0]
        base = f"{call.base_url}/subscriptions/{call.target.subscription}/providers/{space}/locations/{location}"
        headers = {
            "Azure-AsyncOperation": f"{base}/{OPERATIONS}/{operation.id}?api-version={call.api}",
            "retry-after-ms": self._pause(),
        }
        if body is None:
            headers["Location"] = f"{base}/{RESULTS}/{operation.id}?api-version={call.api}"
        return answer(body, status, headers)

    def forget(self) -> None:
        """Know of no operation any more, as Azure does after a day."""
        self._known.clear()

    async def _run(self, operation: Operation, work: Work) -> None:
        try:
            operation.result = await work()
            operation.status = "Succeeded"
        except ArmError as error:
            operation.error = error
            operation.status = "Failed"
        except Exception as error:  # noqa: BLE001 - the boundary: one operation's fault must not end the others
            operation.error = ArmError(500, "InternalServerError", f"{type(error).__name__}: {error}")
            operation.status = "Failed"
        operation.ended_at = self._clock.now()

    def _pause(self) -> str:
        """For `retry-after-ms`: only that lets clients ask more often than once a second."""
        speed = self._clock.speed
        return str(round(min(5000.0, max(10.0, 5000.0 / speed))) if speed else 10)

    def routes(self, *spaces: str) -> Routes:
        routes: Routes = {}
        for space in spaces:
            routes["GET", f"{space}/locations", OPERATIONS] = self._status
            routes["GET", f"{space}/locations", RESULTS] = self._result
        return routes

    def _find(self, call: Call) -> Operation:
        operation = self._known.get(call.target.name)
        if operation is None:
            raise not_found(OPERATIONS, call.target.name, "")
        return operation

    async def _status(self, call: Call) -> Any:
        operation = self._find(call)
        headers = {} if operation.ended_at else {"retry-after-ms": self._pause()}
        return answer(operation.body(), headers=headers)

    async def _result(self, call: Call) -> Any:
        operation = self._find(call)
        if operation.ended_at is None:
            return answer(status=202, headers={"retry-after-ms": self._pause()})
        if operation.error is not None:
            return answer(operation.error.body(), status=409)
        return answer(operation.result) if operation.result is not None else answer(status=204)
