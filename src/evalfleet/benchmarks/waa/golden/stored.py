"""Golden images that this home had built on rented machines: what they are and where they lie."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from evalfleet.benchmarks.waa.golden.manifest import Golden


class StoredImage(Struct, frozen=True, kw_only=True):
    """One of them."""

    image: Golden
    run: str  # that built it
    stored: str | None  # in this blob container
    baked: str | None  # in this VM image
    deleted_at: str | None = None

    @property
    def place(self) -> str:
        return self.stored or f"VM image {self.baked}"


def remember(home: Path, stored: StoredImage) -> None:
    folder = home / "waa-images"
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{stored.image.name}.partial"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(stored)))
    partial.replace(folder / f"{stored.image.name}.json")


def forget(home: Path, stored: StoredImage) -> None:
    """Note that it was deleted; the run that built it stays known, so that it is not taken up again."""
    remember(home, replace(stored, deleted_at=datetime.now(UTC).isoformat(timespec="seconds")))


def remembered(home: Path, name: str) -> StoredImage | None:
    """The record of an image, also of one that was deleted."""
    try:
        return msgspec.json.decode((home / "waa-images" / f"{name}.json").read_bytes(), type=StoredImage)
    except FileNotFoundError:
        return None


def stored_images(home: Path) -> Iterator[StoredImage]:
    """Those that were not deleted, by name."""
    for file in sorted((home / "waa-images").glob("*.json")):
        found = remembered(home, file.stem)
        if found is not None and found.deleted_at is None:
            yield found
