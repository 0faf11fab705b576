"""One host of a run as its controller sees it: its connection, the orders sent to it, and the files collected from it."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from evalfleet.engine.hosts.collector import FileCollector
from evalfleet.engine.hosts.delivery import OrderDelivery
from evalfleet.hosts.base import Backend, Host


class HostSession:
    """Used by the loop's thread only."""

    def __init__(
        self, backend: Backend, delivery: OrderDelivery, collector: FileCollector, changed: Callable[[], None]
    ) -> None:
        self.backend = backend
        self.delivery = delivery
        self.collector = collector
        self.host: Host | None = None  # reached, and asked for all its attempts
        self.trouble: str | None = "no answer yet"  # why it is not reached
        self.is_leaving = False  # the fleet no longer has it; its last answers are still read for a moment
        self.scope = anyio.CancelScope()  # around everything that is done for this host
        self._changed = changed

    def meet(self, host: Host | None) -> None:
        """A host was reached and asked for everything, or is gone."""
        self.host = host
        self.delivery.use(host)
        self.collector.use(host)
        self._changed()

    async def serve(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self.delivery.serve)
            group.start_soon(self.collector.serve)
