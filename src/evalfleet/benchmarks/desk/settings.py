"""`[desk]` of the configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from evalfleet.config.tables import Check, FilePath, SettingsTable, is_path

ENVIRONMENTS = ("desktop", "vm")


class DeskSettings(SettingsTable, frozen=True, kw_only=True):
    CHECKS: ClassVar[Mapping[str, Check]] = {
        "tasks": (is_path, "must be a path"),
        "environment": (ENVIRONMENTS.__contains__, f"must be one of {', '.join(ENVIRONMENTS)}"),
    }

    environment: str = "desktop"  # where tasks run: a desktop of the worker, or a guest as [vm] describes it
    tasks: FilePath | None = None  # folder with a person's own tasks
