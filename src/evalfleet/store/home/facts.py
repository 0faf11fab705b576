"""What the store knows of the home itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from evalfleet.layout import Home


class Former(Struct, frozen=True):
    """A home whose place was taken."""

    id: str
    label: str


class Facts(Struct, frozen=True, kw_only=True):
    """Where a home lies, and which file its database is."""

    path: str
    inode: str
    device: str  # many file systems get another one whenever they are mounted
    boot: str
    machine: str  # empty where it is not known


class Identity(Struct, frozen=True, kw_only=True):
    id: str
    label: str  # in the tags of all that it makes in the cloud
    legacy: str | None  # the label of homes at this path of this machine, when homes had no id
    former: tuple[Former, ...]
    facts: Facts

    @property
    def labels(self) -> frozenset[str]:
        """Its own, and those of the homes whose place it took."""
        return frozenset({self.label, *(one.label for one in self.former)})


def identified(path: Path, identity: Identity) -> Home:
    """The home, for those who act for it."""
    return Home(path, identity.id, tuple(one.id for one in identity.former))


def facts_in(row: Any) -> Facts:
    return Facts(**{name: row[name] for name in Facts.__struct_fields__})


def identity_of(row: Any) -> Identity:
    return Identity(
        id=row["id"],
        label=row["label"],
        legacy=row["legacy"],
        former=msgspec.json.decode(row["former"], type=tuple[Former, ...]),
        facts=facts_in(row),
    )
