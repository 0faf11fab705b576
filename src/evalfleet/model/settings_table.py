"""The shape of one table of the configuration file: a frozen struct whose fields have checks. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, TypeAlias

import msgspec
from msgspec import Meta, Struct

Check: TypeAlias = tuple[Callable[[Any], bool], str]  # whether a value is good, and what it must be
Seconds: TypeAlias = Annotated[float, Meta(extra={"duration": True})]  # written as "90s" or "15m"
FilePath: TypeAlias = Annotated[str, Meta(extra={"path": True})]  # begins at the folder of the file that names it
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class SettingsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the configuration file. Holds no secret, only names of variables that do."""

    CHECKS: ClassVar[Mapping[str, Check]] = {}  # of fields, by their names in Python

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            holds, said = self.CHECKS.get(field.name, (None, ""))
            value = getattr(self, field.name)
            if holds is not None and value is not None and not holds(value):
                raise ValueError(f"{field.encode_name}: {said}")


def is_path(value: str) -> bool:
    return bool(value.strip()) and "\0" not in value


def are_variables(value: Iterable[str]) -> bool:
    return all(_VARIABLE.fullmatch(name) for name in value)


def between(least: float, most: float) -> Callable[[Any], bool]:
    return lambda value: least <= value <= most
