"""What all answers share."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

SCHEMA = 2
"""The version of the JSON documents that commands print. It rises when a member changes its meaning or goes away."""

Range = tuple[float, float]
"""[low, high]."""


class Answer(Struct, frozen=True, kw_only=True):
    """An object that is answered. Its members are attributes."""

    @classmethod
    def copy_of(cls, *sources: object, **members: Any) -> Self:
        """An answer with these members; each other one is an attribute of the first source that has it."""
        for source in sources:
            found = {name: getattr(source, name) for name in cls.__struct_fields__ if hasattr(source, name)}
            members = found | members
        return cls(**members)

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
