"""`[share]` and `[quota]`: how users and projects compare, and the most that each may have. `evalfleet share` sets the same in the store,
for all controllers; what is set there goes first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Struct, field

from evalfleet.core.shares.quota import ShareRule, Subject, merged
from evalfleet.model.settings_table import Check, SettingsTable

LEAST_WEIGHT, MOST_WEIGHT = 0.001, 1000.0
MOST_AT_A_TIME = 1_000_000

Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_AT_A_TIME)]
Dollars = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


def _are_weights(value: Mapping[str, float]) -> bool:
    return all(LEAST_WEIGHT <= weight <= MOST_WEIGHT and math.isfinite(weight) for weight in value.values())


_WEIGHTS: Check = (_are_weights, f"each weight must be from {LEAST_WEIGHT} to {MOST_WEIGHT:.0f}")


class ShareTable(SettingsTable, frozen=True, kw_only=True):
    """`[share]`"""

    CHECKS: ClassVar[Mapping[str, Check]] = {"users": _WEIGHTS, "projects": _WEIGHTS}

    users: dict[str, float] = field(default_factory=dict[str, float])
    projects: dict[str, float] = field(default_factory=dict[str, float])


class Quota(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most that one user or project may have; None: no limit."""

    running: Count | None = None  # attempts at a time
    gpus: Count | None = None
    usd_per_day: Dollars | None = None


class QuotaTable(SettingsTable, frozen=True, kw_only=True):
    """`[quota]`"""

    CHECKS: ClassVar[Mapping[str, Check]] = {}

    users: dict[str, Quota] = field(default_factory=dict[str, Quota])
    projects: dict[str, Quota] = field(default_factory=dict[str, Quota])


def share_rules(share: ShareTable, quota: QuotaTable) -> tuple[ShareRule, ...]:
    """What both tables say."""
    weights = [
        ShareRule(subject=subject, name=name, weight=weight)
        for subject, table in ((Subject.USER, share.users), (Subject.PROJECT, share.projects))
        for name, weight in table.items()
    ]
    limits = [
        ShareRule(subject=subject, name=name, **_given(limit))
        for subject, table in ((Subject.USER, quota.users), (Subject.PROJECT, quota.projects))
        for name, limit in table.items()
    ]
    return tuple(merged(weights, limits))


def _given(limit: Quota) -> dict[str, Any]:
    return {name: getattr(limit, name) for name in limit.__struct_fields__}
