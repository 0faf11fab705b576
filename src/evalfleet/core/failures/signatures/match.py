"""What a signature says of an end."""

from __future__ import annotations

from msgspec import Struct

from evalfleet.model import Kind


class Found(Struct, frozen=True):
    kind: Kind
    line: str  # the evidence


class Own(Struct, frozen=True):
    """Known words, and they say that the program itself was wrong (a request that the endpoint cannot take)."""


OWN = Own()
