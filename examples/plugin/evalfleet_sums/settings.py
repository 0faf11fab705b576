"""`[sums]` of evalfleet.toml."""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from evalfleet.config.tables import Check, Seconds, SettingsTable


class SumsSettings(SettingsTable, frozen=True, kw_only=True):
    """The table."""

    CHECKS: ClassVar[Mapping[str, Check]] = {
        "largest": (lambda value: 1 <= value <= 10**6, "must be from 1 to 1000000")
    }

    largest: int = 999  # number of the large tasks
    timeout_s: Seconds = msgspec.field(default=60.0, name="timeout")  # of an episode
