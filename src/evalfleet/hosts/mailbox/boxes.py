"""Boxes: one per generation of a pilot, so that a node's rights reach nothing of another node."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
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

    async def delete_at(self, address: str) -> None:
        """Delete the box at an address that `list` gave."""
        ...

    async def list(self) -> Sequence[str]:
        """Addresses of all boxes of this home and pool."""
        ...

    def carrier(self, address: str) -> Carrier:
        """The controller's way into a box."""
        ...

    async def aclose(self) -> None: ...


class KeptBox(Struct, frozen=True, kw_only=True):
    """A box as its storage lists it."""

    home: str  # id
    pool: str
    address: str


class BoxStorage(Protocol):
    """The boxes of all homes and pools in one place, for the reaper. Methods raise `pilot.carrier.CarrierError`."""

    async def list(self) -> Sequence[KeptBox]: ...

    async def delete(self, box: KeptBox) -> None:
        """Delete the box with everything in it. Does nothing if there is none."""
        ...

    def address(self, home: str, pool: str, host: str, generation: int) -> str:
        """Where the box of that generation of a host is."""
        ...


def box_owner(home: str, pool: str) -> str:
    """Under this name a storage keeps the boxes of a pool."""
    return f"{home}-{pool}"


def kept_box(owner: str, address: str) -> KeptBox:
    home, _, pool = owner.partition("-")  # an id has no hyphen
    return KeptBox(home=home, pool=pool, address=address)


def box_name(host: str, generation: int) -> str:
    return f"{host}-{generation}"


class FolderBoxes:
    """Implements `Boxes` as folders below one that the nodes share."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def open(self, host: str, generation: int, stops_at: float) -> Box:
        folder = self._root / box_name(host, generation)
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise BoxClosed(str(error)) from error
        path = str(folder)
        return Box(host=host, generation=generation, address=path, grant=path, stops_at=stops_at)

    async def delete(self, host: str, generation: int) -> None:
        await self.delete_at(str(self._root / box_name(host, generation)))

    async def delete_at(self, address: str) -> None:
        await anyio.to_thread.run_sync(_delete_folder, Path(address))

    async def list(self) -> Sequence[str]:
        return sorted(str(one) for one in self._root.iterdir()) if self._root.is_dir() else []

    def carrier(self, address: str) -> Carrier:
        return FolderCarrier(address)

    async def aclose(self) -> None:
        pass


class FolderStorage:
    """Implements `BoxStorage` for the folder that holds a folder of boxes for each owner."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def list(self) -> Sequence[KeptBox]:
        owners = sorted(self._root.iterdir()) if self._root.is_dir() else []
        return [kept_box(owner.name, box) for owner in owners for box in await FolderBoxes(owner).list()]

    async def delete(self, box: KeptBox) -> None:
        await FolderBoxes(self._root).delete_at(box.address)

    def address(self, home: str, pool: str, host: str, generation: int) -> str:
        return str(self._root / box_owner(home, pool) / box_name(host, generation))


def _delete_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()  # of its owner, if it was the last
