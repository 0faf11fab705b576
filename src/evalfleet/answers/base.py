"""What all answers share."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from msgspec import Struct

SCHEMA = 2
"""The version of the JSON documents that commands print. It rises when a member changes its meaning or goes away."""

Range = tuple[float, float]
"""[low, high]."""


class Answer(Struct, frozen=True, kw_only=True):
    """An object that is answered. Its members are attributes."""

    if not TYPE_CHECKING:  # the type checker finds what still does

        def __getitem__(self, name: str) -> Any:
            """Scripts of version 0.1 read answers like dictionaries; they can for one more version."""
            warnings.warn(
                f'answers have attributes now: write `.{name}` instead of `["{name}"]`',
                DeprecationWarning,
                stacklevel=2,
            )
            if name not in self.__struct_fields__:
                raise KeyError(name)
            return getattr(self, name)
