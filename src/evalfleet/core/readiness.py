"""Readiness checks: what must hold before a machine gets work, and what was found. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from evalfleet.model import JsonObject


class ReadinessCheck(Struct, frozen=True, kw_only=True):
    """One check and what it found."""

    name: str  # ssh, tools, disk, docker, kvm, image, container, guest; or what a benchmark requires
    of: str | None = None  # the container, where it is about one
    holds: bool
    seen: str
    remedy: str = ""  # what to do where it does not hold
    took_s: float = 0.0
    restarted: bool = False  # something was dead there and was started again

    def said(self) -> str:
        of = f" {self.of}" if self.of else ""
        return f"{self.name}{of}: {self.seen}" + ("" if self.holds else f"; {self.remedy}")

    def row(self) -> JsonObject:
        """As JSON, for programs and for the way from a host to the controller."""
        return {
            "check": self.name,
            "container": self.of,
            "holds": self.holds,
            "seen": self.seen,
            "remedy": self.remedy or None,
            "took_s": self.took_s,
            "restarted": self.restarted,
        }

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> ReadinessCheck:
        """Raises KeyError where it is no row."""
        return cls(
            name=str(row["check"]),
            of=row["container"],
            holds=bool(row["holds"]),
            seen=str(row["seen"]),
            remedy=row["remedy"] or "",
            took_s=float(row["took_s"]),
            restarted=bool(row.get("restarted")),
        )


class Pull(Struct, frozen=True, kw_only=True):
    """How far the pull of an image is. A host sends it as a record; `str` is the line that people read."""

    image: str
    progress: str  # such as "3 of 7 layers"
    took_s: float  # so far

    def __str__(self) -> str:
        return f"pulls {self.image}: {self.progress}, {self.took_s:.0f} s"

    def row(self) -> JsonObject:
        """As JSON, for the way from a host to the controller."""
        return {"image": self.image, "progress": self.progress, "took_s": self.took_s}

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Pull:
        """Raises KeyError where it is no row."""
        return cls(image=str(row["image"]), progress=str(row["progress"]), took_s=float(row["took_s"]))


Update: TypeAlias = str | Pull
"""What a host reports while a check goes on: a line for people, or a record that events are made of."""


class HostEvent(Struct, frozen=True, kw_only=True):
    """An event about a host, for the event log."""

    host: str
    type: str
    data: JsonObject


Notice: TypeAlias = Callable[[str | HostEvent], None]
"""Hears what a host reports: a line for people, or an event."""


class PullEvents:
    """Makes the events of a host's image pulls: the first record begins a pull, the end of the check that it is part of ends it.

    A pull outlives a lost connection: the next check of the host goes on with it, or ends it.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._pull: Pull | None = None

    def update(self, pull: Pull) -> HostEvent | None:
        begins, self._pull = self._pull is None, pull
        return self._event("worker.pulling", pull, {}) if begins else None

    def end(self, error: str | None) -> HostEvent | None:
        """The check has ended, `error` where it failed. None where no pull was going on."""
        if self._pull is None:
            return None
        pull, self._pull = self._pull, None
        return self._event("worker.pulled", pull, {"error": error})

    def _event(self, type_: str, pull: Pull, more: JsonObject) -> HostEvent:
        data = {"host": self._host, "image": pull.image, "took_s": round(pull.took_s, 3), **more}
        return HostEvent(host=self._host, type=type_, data=data)
