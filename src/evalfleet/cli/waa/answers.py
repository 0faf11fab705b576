"""What `evalfleet waa image` answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalfleet.answers.base import Answer
from evalfleet.benchmarks.waa.golden.manifest import Golden

if TYPE_CHECKING:
    from evalfleet.benchmarks.waa.golden.stored import StoredImage


class GoldenImage(Answer, frozen=True, kw_only=True):
    """One image, and where it lies."""

    folder: str  # of this machine; or an address, or a VM image
    image: Golden
    run: str | None = None  # that built it on a rented machine
    cost_usd: float | None = None  # of that build

    @classmethod
    def of_stored(cls, stored: StoredImage, cost_usd: float | None = None) -> GoldenImage:
        return cls(folder=stored.place, image=stored.image, run=stored.run, cost_usd=cost_usd)


class GoldenImages(Answer, frozen=True, kw_only=True):
    images: list[GoldenImage]


class Verified(Answer, frozen=True, kw_only=True):
    name: str
    holds: bool
    differences: list[str]
