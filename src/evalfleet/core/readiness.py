"""One rung of a readiness ladder: what must hold before a machine gets work, tried. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from evalfleet.model import JsonObject


class Rung(Struct, frozen=True, kw_only=True):
    """One rung, tried."""

    name: str  # ssh, tools, disk, docker, kvm, image, container, guest; or what a benchmark requires
    of: str | None = None  # the container, where it is about one
    holds: bool
    seen: str
    remedy: str = ""  # what to do where it does not hold
    took_s: float = 0.0

    def said(self) -> str:
        of = f" {self.of}" if self.of else ""
        return f"{self.name}{of}: {self.seen}" + ("" if self.holds else f"; {self.remedy}")

    def row(self) -> JsonObject:
        """As JSON, for programs and for the way from a host to us."""
        return {
            "rung": self.name,
            "container": self.of,
            "holds": self.holds,
            "seen": self.seen,
            "remedy": self.remedy or None,
            "took_s": self.took_s,
        }

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Rung:
        """Raises KeyError where it is no row."""
        return cls(
            name=str(row["rung"]),
            of=row["container"],
            holds=bool(row["holds"]),
            seen=str(row["seen"]),
            remedy=row["remedy"] or "",
            took_s=float(row["took_s"]),
        )


_PULL = re.compile(r"pulls (\S+): .+, (\d+) s")


def pull_said(image: str, how_far: str, took_s: float) -> str:
    """The line that a host says while it pulls an image."""
    return f"pulls {image}: {how_far}, {took_s:.0f} s"


def pull_in(line: str) -> JsonObject | None:
    """What such a line tells: `image`, and `took_s` so far. None: it is another one."""
    found = _PULL.fullmatch(line)
    return None if found is None else {"image": found[1], "took_s": float(found[2])}
