"""Alerts as they stand, folded from their events. The events are the state: nothing else is kept, so a restart forgets nothing."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from evalfleet.answers.alerts import ActionTaken, Alert, AlertRule, Delivery
from evalfleet.config import AlertSettings
from evalfleet.core.alerts.rules import NOTICES, RULES, Action
from evalfleet.core.transitions import allowed
from evalfleet.model import AlertState, Event
from evalfleet.store.reader import StoreReader

FIRED, RESOLVED, DELIVERED, ACTED = "alert.fired", "alert.resolved", "alert.delivered", "alert.acted"
HOME = "home"  # stands for the run of events that belong to none


def fold(events: Iterable[Event]) -> dict[int, Alert]:
    """All alerts by their numbers, oldest first."""
    alerts: dict[int, Alert] = {}
    for event in events:
        if event.type == FIRED:
            alerts[event.number] = _fired(event)
            continue
        alert = alerts.get(event.data.get("alert", -1))
        if alert is None:
            continue
        if event.type == RESOLVED and allowed(AlertState(alert.state), AlertState.RESOLVED):
            alerts[alert.id] = replace(alert, state="resolved", resolved_at=event.at)
        elif event.type == DELIVERED:
            alert.delivered.append(Delivery(channel=event.data["channel"], what=event.data["what"], at=event.at))
        elif event.type == ACTED:
            taken = ActionTaken(step=event.data.get("step"), error=event.data.get("error"), at=event.at)
            alert.acted.append(taken)
    return alerts


def _fired(event: Event) -> Alert:
    data = event.data
    is_notice = data["rule"] in NOTICES
    return Alert(
        id=event.number,
        rule=data["rule"],
        subject=data["subject"],
        severity=data["severity"],
        run=None if ":" in event.run_id or event.run_id == HOME else event.run_id,
        about=event.run_id,
        run_name=data.get("run_name"),
        message=data["message"],
        action=data.get("action", str(Action.NOTIFY)),
        host=data.get("host"),
        attempts=data.get("attempts", []),
        state="resolved" if is_notice else "firing",
        fired_at=event.at,
        resolved_at=event.at if is_notice else None,
        delivered=[],
        acted=[],
    )


def firing_of(events: Iterable[Event]) -> list[Alert]:
    return [alert for alert in fold(events).values() if alert.state == "firing"]


def listed(
    store: StoreReader, *, run: str | None, state: str | None, limit: int, before: int | None
) -> tuple[list[Alert], int | None]:
    """Newest first, and before which number the next page begins."""
    found = [
        alert
        for alert in reversed(fold(store.events.alerts()).values())
        if (run is None or alert.run == run)
        and (state is None or alert.state == state)
        and (before is None or alert.id < before)
    ]
    return found[:limit], found[limit - 1].id if len(found) > limit else None


def rules(settings: AlertSettings) -> list[AlertRule]:
    """All rules as they are set here."""
    return [
        AlertRule(
            rule=rule.name,
            severity=(settings.severity(rule.name) or rule.severity).value,
            text=rule.text,
            action=str(settings.action(rule.name)),
            enabled=not settings.is_off(rule.name),
        )
        for rule in RULES
    ]
