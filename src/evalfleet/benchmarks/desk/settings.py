"""`[desk]` of the configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from evalfleet.config.tables import Check, FilePath, SettingsTable, is_path


class DeskSettings(SettingsTable, frozen=True, kw_only=True):
    """The table."""

    CHECKS: ClassVar[Mapping[str, Check]] = {"tasks": (is_path, "must be a path")}

    tasks: FilePath | None = None  # folder with a person's own tasks
