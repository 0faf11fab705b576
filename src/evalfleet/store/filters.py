"""Values of statements that filter pages."""

from __future__ import annotations

from collections.abc import Sequence

from evalfleet.store.rows import to_json

FAR = 1 << 62  # later than every row


def any_of(words: Sequence[str]) -> str | None:
    return to_json(list(words)) if words else None


def beginning_with(text: str) -> str:
    """A pattern for `like`."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"


def containing(text: str | None) -> str | None:
    """A pattern for `like`."""
    return "%" + beginning_with(text) if text else None
