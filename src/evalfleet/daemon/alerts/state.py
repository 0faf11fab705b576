"""Alerts as they stand, folded from their events. The events are the state: nothing else is kept, so a restart forgets nothing."""

from __future__ import annotations

from collections.abc import Iterable

from evalfleet.config import AlertSettings
from evalfleet.core.alerts.rules import NOTICES, RULES, Action
from evalfleet.core.transitions import allowed
from evalfleet.model import AlertState, Event, JsonObject
from evalfleet.store.reader import StoreReader

FIRED, RESOLVED, DELIVERED, ACTED = "alert.fired", "alert.resolved", "alert.delivered", "alert.acted"
HOME = "home"  # stands for the run of events that belong to none


def fold(events: Iterable[Event]) -> dict[int, JsonObject]:
    """All alerts by their numbers, oldest first."""
    alerts: dict[int, JsonObject] = {}
    for event in events:
        if event.type == FIRED:
            alerts[event.number] = _fired(event)
            continue
        alert = alerts.get(event.data.get("alert", -1))
        if alert is None:
            continue
        if event.type == RESOLVED and allowed(AlertState(alert["state"]), AlertState.RESOLVED):
            alert |= {"state": str(AlertState.RESOLVED), "resolved_at": event.at}
        elif event.type == DELIVERED:
            sent = {"channel": event.data.get("channel"), "what": event.data.get("what"), "at": event.at}
            alert["delivered"].append(sent)
        elif event.type == ACTED:
            alert["acted"].append({"step": event.data.get("step"), "error": event.data.get("error"), "at": event.at})
    return alerts


def _fired(event: Event) -> JsonObject:
    notice = event.data.get("rule") in NOTICES
    return {
        "id": event.number,
        "rule": event.data.get("rule"),
        "subject": event.data.get("subject"),
        "severity": event.data.get("severity"),
        "run": None if ":" in event.run_id or event.run_id == HOME else event.run_id,
        "about": event.run_id,
        "run_name": event.data.get("run_name"),
        "message": event.data.get("message"),
        "action": event.data.get("action", str(Action.NOTIFY)),
        "host": event.data.get("host"),
        "attempts": event.data.get("attempts", []),
        "state": str(AlertState.RESOLVED if notice else AlertState.FIRING),
        "fired_at": event.at,
        "resolved_at": event.at if notice else None,
        "delivered": [],
        "acted": [],
    }


def firing_of(events: Iterable[Event]) -> list[JsonObject]:
    return [alert for alert in fold(events).values() if alert["state"] == AlertState.FIRING]


def listed(
    store: StoreReader, *, run: str | None, state: str | None, limit: int, before: int | None
) -> tuple[list[JsonObject], int | None]:
    """Newest first, and before which number the next page begins."""
    found = [
        alert
        for alert in reversed(list(fold(store.events.alerts()).values()))
        if (run is None or alert["run"] == run)
        and (state is None or alert["state"] == state)
        and (before is None or alert["id"] < before)
    ]
    return found[:limit], found[limit - 1]["id"] if len(found) > limit else None


def rules(settings: AlertSettings) -> list[JsonObject]:
    """All rules as they are set here."""
    return [
        {
            "rule": rule.name,
            "severity": str(settings.severity(rule.name) or rule.severity),
            "text": rule.text,
            "action": str(settings.action(rule.name)),
            "enabled": not settings.is_off(rule.name),
        }
        for rule in RULES
    ]
