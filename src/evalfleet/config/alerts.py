"""`[alerts]`: when something is told, to whom, and what is done about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field


class RuleSettings(Struct, frozen=True, kw_only=True):
    """`[alerts.rules.NAME]`. What is None is as the rule itself says."""

    enabled: bool | None = None
    severity: str | None = None
    action: str | None = None


class AlertSettings(Struct, frozen=True, kw_only=True):
    """Addresses are named by variables, because they may hold secrets."""

    webhook: str | None = None  # variable with the address
    secret: str | None = None  # variable with the key that signs what is sent there
    notify: tuple[str, ...] = ()  # variables with addresses of apprise: Slack, e-mail, Teams, ...
    off: tuple[str, ...] = ()  # rules that never fire
    quiet: str | None = None  # "22:00-07:00", local time: only what is critical is told then
    no_progress_s: float = 600.0  # while it is not known how long tasks take
    stall_least_s: float = 60.0  # below it no run is said to be stuck
    undriven_s: float = 60.0
    failure_rate: float = 0.5  # of the latest 20 attempts
    retry_rate: float = 0.2
    budget_shares: tuple[float, ...] = (0.5, 0.8, 1.0)
    pool_budget_shares: tuple[float, ...] = (0.8, 1.0)
    slow: float = 2.0  # times what a task was expected to take
    slow_least_s: float = 60.0
    pull_s: float = 300.0
    load: float = 0.95  # of processors, memory or disk
    load_for_s: float = 300.0
    idle_s: float = 900.0  # of a pool that costs money
    reap_s: float = 60.0  # between looks for what is ours in the cloud and has no purpose
    rules: Mapping[str, RuleSettings] = field(default_factory=dict[str, RuleSettings])

    @classmethod
    def of(cls, *tables: Mapping[str, Any]) -> AlertSettings:
        """What several files set; a later one stands before an earlier one, in `rules` for each rule."""
        merged: dict[str, Any] = {}
        rules: dict[str, RuleSettings] = {}
        for table in tables:
            merged |= {name: value for name, value in table.items() if name != "rules"}
            rules |= table.get("rules", {})
        return cls(rules=rules, **merged)

    @property
    def channels(self) -> tuple[str, ...]:
        """To whom alerts go, by the names of their variables."""
        return (*(("webhook",) if self.webhook else ()), *self.notify)

    @property
    def is_set(self) -> bool:
        """Whether there is anything to do about an alert but to show it."""
        return bool(self.channels) or any(rule.action not in (None, "notify") for rule in self.rules.values())

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables that a process which sends alerts needs."""
        return tuple(name for name in (self.webhook, self.secret, *self.notify) if name)
