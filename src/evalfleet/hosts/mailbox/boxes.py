"""Boxes: one per generation of a pilot, so that a node's rights reach nothing of another node."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import anyio.to_thread
from msgspec import Struct

from evalfleet.hosts.mailbox.carrier import Carrier, FolderCarrier
from evalfleet.pilot.carrier import BoxClosed


class Box(Struct, frozen=True, kw_only=True):
    """The box of one generation of one host.

    Attributes:
        address: where it is; without a right to enter, so it may be stored and shown.
        grant: what the node needs to enter. A secret where it is a signed address; never stored.
        stops_at: Unix time at which the pilot ends.
    """

    host: str
    generation: int
    address: str
    grant: str
    stops_at: float

    def __repr__(self) -> str:
        return f"Box(address={self.address!r}, generation={self.generation})"


class Boxes(Protocol):
    """The boxes of a pool. Methods raise `pilot.carrier.CarrierError`."""

    async def open(self, host: str, generation: int, stops_at: float) -> Box:
        """Make the box before its pilot is created. Idempotent: the same box, with a fresh grant."""
        ...

    async def delete(self, host: str, generation: int) -> None:
        """Delete the box with everything in it. Does nothing if there is none."""
        ...

    async def list(self) -> Sequence[str]:
        """Addresses of all boxes of this home and pool, for the reaper."""
        ...

    def carrier(self, address: str) -> Carrier:
        """The controller's way into a box."""
        ...

    async def aclose(self) -> None: ...


def box_name(host: str, generation: int) -> str:
    return f"{host}-{generation}"


class FolderBoxes:
    """Implements `Boxes` as folders below one that the nodes share."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def open(self, host: str, generation: int, stops_at: float) -> Box:
        folder = self._root / box_name(host, generation)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BoxClosed(str(error)) from error
        path = str(folder)
        return Box(host=host, generation=generation, address=path, grant=path, stops_at=stops_at)

    async def delete(self, host: str, generation: int) -> None:
        folder = self._root / box_name(host, generation)
        await anyio.to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))

    async def list(self) -> Sequence[str]:
        return sorted(str(one) for one in self._root.iterdir()) if self._root.is_dir() else []

    def carrier(self, address: str) -> Carrier:
        return FolderCarrier(address)

    async def aclose(self) -> None:
        pass
