"""Time limits of the engine."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, field

from evalfleet.core.breaker import Limits
from evalfleet.core.failures.judge import BUILTIN, Builtin, Pattern
from evalfleet.core.hosts.health import Patience
from evalfleet.core.hosts.quarantine import Terms
from evalfleet.core.shares.quota import ShareRule


class EngineSettings(Struct, frozen=True, kw_only=True):
    lease_s: float = 60.0
    ping_s: float = 5.0
    reconnect_s: float = 0.5
    audit_age_s: float = 30.0  # an attempt that its host does not know after this is no longer being delivered
    last_look_s: float = 40.0  # most time for the other way to a host that was silent for too long
    farewell_s: float = 20.0  # most time for a last look at a host that leaves the fleet
    patience: Patience = field(default_factory=Patience)
    quarantine: Terms = field(default_factory=Terms)
    breaker: Limits = field(default_factory=Limits)
    share_rules: tuple[ShareRule, ...] = ()  # weights and quotas of the configuration
    home: Path | None = None  # whose disk must not become full; None: it is not watched
    keep_free: int | None = None  # bytes of that disk; None: as it is large
    patterns: tuple[Pattern | Builtin, ...] = (BUILTIN,)
