"""`[alerts]` of the configuration file: thresholds of the rules, channels and actions. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct, field

from evalfleet.core.alerts.rules import BY_NAME, Action, Severity
from evalfleet.model.settings_table import Check, Seconds, SettingsTable, are_variables

_QUIET = re.compile(r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d")
_SHARE: Check = (lambda value: 0 < value <= 1, "must be more than 0 and at most 1")
_SHARES: Check = (lambda value: all(0 < share <= 10 for share in value), "must be shares such as [0.8, 1.0]")


class RuleSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[alerts.rules.NAME]`. None means the rule's default."""

    enabled: bool | None = None
    severity: Severity | None = None
    action: Action | None = None


class AlertSettings(SettingsTable, frozen=True, kw_only=True):
    """Addresses are named by variables, because they may hold secrets."""

    CHECKS: ClassVar[Mapping[str, Check]] = {
        "webhook": (lambda value: are_variables([value]), "must be the name of a variable, not an address"),
        "secret": (lambda value: are_variables([value]), "must be the name of a variable, never its value"),
        "notify": (are_variables, "must be names of variables, not addresses"),
        "quiet": (lambda value: _QUIET.fullmatch(value) is not None, 'must be like "22:00-07:00"'),
        "failure_rate": _SHARE,
        "retry_rate": _SHARE,
        "budget_shares": _SHARES,
        "pool_budget_shares": _SHARES,
        "slow": (lambda value: 1 <= value < float("inf"), "must be 1 or more"),
        "load": _SHARE,
    }

    webhook: str | None = None  # variable with the address
    secret: str | None = None  # variable with the key that signs what is sent there
    notify: tuple[str, ...] = ()  # variables with addresses of apprise: Slack, e-mail, Teams, ...
    off: tuple[str, ...] = ()  # rules that never fire
    quiet: str | None = None  # "22:00-07:00", local time: only what is critical is told then
    no_progress_s: Seconds = field(default=600.0, name="no_progress")  # while it is not known how long tasks take
    stall_least_s: Seconds = field(default=60.0, name="stall_least")  # 3 times a short median would be noise
    undriven_s: Seconds = field(default=60.0, name="undriven")
    failure_rate: float = 0.5  # of the latest 20 attempts
    retry_rate: float = 0.2
    budget_shares: tuple[float, ...] = (0.5, 0.8, 1.0)
    pool_budget_shares: tuple[float, ...] = (0.8, 1.0)
    slow: float = 2.0  # times what a task was expected to take
    slow_least_s: Seconds = field(default=60.0, name="slow_least")
    pull_s: Seconds = field(default=300.0, name="pull")
    load: float = 0.95  # of processors, memory or disk
    load_for_s: Seconds = field(default=300.0, name="load_for")
    idle_s: Seconds = field(default=900.0, name="idle")  # of a pool that costs money
    reap_s: Seconds = field(default=60.0, name="reap")  # between looks for resources that belong to no pool
    rules: Mapping[str, RuleSettings] = field(default_factory=dict[str, RuleSettings])

    def __post_init__(self) -> None:
        SettingsTable.__post_init__(self)
        for name in (*self.off, *self.rules):
            if name not in BY_NAME:
                raise ValueError(f"there is no rule {name!r}; there are: {', '.join(BY_NAME)}")
        for name, rule in self.rules.items():
            fits = BY_NAME[name].actions
            if rule.action is not None and rule.action not in fits:
                raise ValueError(
                    f"rules.{name}.action: {rule.action} is not an action of this rule; use: {', '.join(fits)}"
                )

    def is_off(self, rule: str) -> bool:
        enabled = self.rules[rule].enabled if rule in self.rules else None
        return rule in self.off if enabled is None else not enabled

    def severity(self, rule: str) -> Severity | None:
        """The configured severity of a rule; None: the rule's default."""
        return self.rules[rule].severity if rule in self.rules else None

    def action(self, rule: str) -> Action:
        return (self.rules[rule].action if rule in self.rules else None) or Action.NOTIFY

    @property
    def channels(self) -> tuple[str, ...]:
        """Where alerts go, by the names of their variables."""
        return (*(("webhook",) if self.webhook else ()), *self.notify)

    @property
    def is_set(self) -> bool:
        """Whether alerts are sent or acted on, and not only shown."""
        return bool(self.channels) or any(self.action(rule) is not Action.NOTIFY for rule in self.rules)

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables that a process which sends alerts needs."""
        return tuple(name for name in (self.webhook, self.secret, *self.notify) if name)
