"""Alerts, the rules behind them, and the channels that they go to."""

from __future__ import annotations

from typing import Literal

from evalfleet.answers.base import Answer

Severity = Literal["critical", "warning", "info"]


class Delivery(Answer, frozen=True, kw_only=True):
    channel: str
    what: str
    at: float


class ActionTaken(Answer, frozen=True, kw_only=True):
    step: str | None
    error: str | None
    at: float


class Alert(Answer, frozen=True, kw_only=True):
    id: int
    rule: str
    subject: str
    severity: Severity
    run: str | None
    about: str
    run_name: str | None
    message: str
    action: str
    host: str | None
    attempts: list[str]
    state: Literal["firing", "resolved"]
    fired_at: float
    resolved_at: float | None
    delivered: list[Delivery]
    acted: list[ActionTaken]


class AlertRule(Answer, frozen=True, kw_only=True):
    rule: str
    severity: Severity
    text: str
    action: str
    enabled: bool


class AlertChannel(Answer, frozen=True, kw_only=True):
    channel: str


class AlertList(Answer, frozen=True, kw_only=True):
    """As `evalfleet alerts --json` prints it."""

    alerts: list[Alert]
    rules: list[AlertRule]
    channels: list[AlertChannel]


class AlertPage(AlertList, frozen=True, kw_only=True):
    next: str | None


class ChannelTest(Answer, frozen=True, kw_only=True):
    channel: str
    ok: bool
    error: str | None


class ChannelTests(Answer, frozen=True, kw_only=True):
    channels: list[ChannelTest]
