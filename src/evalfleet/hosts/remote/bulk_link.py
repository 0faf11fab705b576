"""A second link to a host's runner, for files: large transfers must not delay events and answers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

import anyio

from evalfleet.errors import BackendError, RunnerUnavailable
from evalfleet.hosts.base import single_error
from evalfleet.hosts.protocol.link import RunnerLink

Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[RunnerLink]]


class BulkLink:
    """Opened on first use, and again if it breaks. `serve` must run beside its users."""

    def __init__(self, open_link: Opener) -> None:
        self._open_link = open_link
        self._wanted = anyio.Event()
        self._changed = anyio.Event()
        self._link: RunnerLink | None = None
        self._failure: BackendError | None = None
        self._is_over = False

    async def link(self) -> RunnerLink:
        """The open link. Raises BackendError if it cannot be opened."""
        while self._link is None:
            if self._is_over:
                raise RunnerUnavailable("the connection to the host is closed")
            self._wanted.set()
            await self._changed.wait()
            if self._failure is not None:
                raise self._failure
        return self._link

    async def serve(self) -> None:
        try:
            while True:
                await self._wanted.wait()
                try:
                    with single_error():
                        async with self._open_link() as link:
                            self._tell(link, None)
                            await link.gone.wait()
                            self._tell(None, None)
                except BackendError as error:
                    self._tell(None, error)
        finally:
            self._is_over = True  # who waits for the link would wait for ever
            self._tell(None, None)

    def _tell(self, link: RunnerLink | None, failure: BackendError | None) -> None:
        self._link, self._failure = link, failure
        self._wanted = anyio.Event()
        self._changed.set()
        self._changed = anyio.Event()
