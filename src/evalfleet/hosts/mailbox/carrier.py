"""What carries the box of one pilot, on the controller's side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol

import anyio.to_thread

from evalfleet.pilot import carrier as blocking
from evalfleet.pilot.carrier import Traffic
from evalfleet.pilot.pace import Pace


class Carrier(Protocol):
    """The objects of one box.

    Methods raise `pilot.carrier.CarrierError` when the carrier does not work now, and its subclass `BoxClosed` when it refuses us or
    the box is gone.
    """

    @property
    def pace(self) -> Pace: ...

    @property
    def traffic(self) -> Traffic: ...

    async def put(self, name: str, data: bytes, *, new: bool = False) -> None:
        """Write an object, completely or not at all. Raises FileExistsError if `new` is set and it exists."""
        ...

    async def get(self, name: str, start: int = 0, limit: int | None = None) -> bytes | None:
        """The bytes of an object from `start` on; None if there is no such object."""
        ...

    async def list(self, prefix: str) -> Sequence[tuple[str, int]]:
        """Names and sizes of the objects whose names begin so, in order."""
        ...

    async def delete(self, names: Iterable[str]) -> None:
        """Delete objects. Missing ones are ignored."""
        ...


class FolderCarrier:
    """Implements `Carrier` over a folder."""

    def __init__(self, folder: str) -> None:
        self._carrier = blocking.FolderCarrier(folder)
        self.pace = self._carrier.pace
        self.traffic = self._carrier.traffic

    async def put(self, name: str, data: bytes, *, new: bool = False) -> None:
        await anyio.to_thread.run_sync(partial(self._carrier.put, name, data, new=new))

    async def get(self, name: str, start: int = 0, limit: int | None = None) -> bytes | None:
        return await anyio.to_thread.run_sync(self._carrier.get, name, start, limit)

    async def list(self, prefix: str) -> Sequence[tuple[str, int]]:
        return await anyio.to_thread.run_sync(self._carrier.list, prefix)

    async def delete(self, names: Iterable[str]) -> None:
        await anyio.to_thread.run_sync(self._carrier.delete, [*names])
