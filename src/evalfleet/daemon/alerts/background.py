"""The alert service in a thread with an event loop of its own, so that it neither slows nor ends what it runs beside."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import anyio
from anyio.abc import TaskStatus
from anyio.from_thread import start_blocking_portal

from evalfleet import config
from evalfleet.config import Settings
from evalfleet.daemon.alerts.access import Access, OwnStore
from evalfleet.daemon.alerts.service import AlertService
from evalfleet.errors import EvalfleetError, MissingSecret
from evalfleet.model import Event

_END_S = 8.0  # after which nothing more is sent when the controller ends; what is on its way may take a little longer
_FOLLOW_S = 1.0
_PAGE = 1000

_log = logging.getLogger("evalfleet.alerts")


@contextmanager
def in_thread(settings: Settings, notice: Callable[[str], None]) -> Generator[None]:
    """See `alerts_beside`."""
    try:
        config.secret_values(settings.alerts.variables)
    except MissingSecret as error:
        notice(f"alerts: this process sends none: {error}")
        yield
        return
    with start_blocking_portal() as portal:
        background = portal.call(_Background, settings, notice)
        portal.start_task(background.serve)
        try:
            yield
        finally:
            portal.call(background.finish)


class _Background:
    """Used in the thread of its event loop."""

    def __init__(self, settings: Settings, notice: Callable[[str], None]) -> None:
        self._settings = settings
        self._notice = notice
        self._service: AlertService | None = None
        self._store = OwnStore(settings.home)
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()

    async def serve(self, *, task_status: TaskStatus[None]) -> None:
        with self._scope, self._boundary():
            access = Access(read=self._store.call, write=self._store.call, notice=self._notice)
            service = AlertService(self._settings, access)
            await service.begin()
            self._service = service
            task_status.started()
            async with anyio.create_task_group() as group:
                group.start_soon(self._follow, service)
                await service.serve()
        if self._service is None:
            task_status.started()
        self._ended.set()

    async def finish(self) -> None:
        self._scope.cancel()
        await self._ended.wait()
        with self._boundary(), anyio.move_on_after(_END_S):
            if self._service is not None:
                await self._service.finish()
        await self._store.close()

    async def _follow(self, service: AlertService) -> None:
        """Let the service look at once when something happened."""
        last = await self._store.call(lambda reader: reader.events.last_number())
        while True:
            await anyio.sleep(_FOLLOW_S)
            with suppress(EvalfleetError):
                events: list[Event] = await self._store.call(lambda reader, last=last: reader.events.all(last, _PAGE))
                if events:
                    last = events[-1].number
                    service.look_soon(events)

    @contextmanager
    def _boundary(self) -> Generator[None]:
        """Errors of alerts do not stop the run."""
        try:
            yield
        except* (EvalfleetError, OSError) as errors:
            self._notice(f"alerts: {errors.exceptions[0]}")
        except* Exception:  # noqa: BLE001
            _log.exception("alerts failed")
            self._notice("alerts: they failed, which is a mistake of evalfleet; the log has the traceback")
