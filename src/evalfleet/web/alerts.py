"""Alerts as they stand, folded from their events. The events are the state: nothing else is kept, so a restart forgets nothing."""

from __future__ import annotations

from collections.abc import Iterable

from evalfleet.core.alerts import RULES
from evalfleet.model import Event, JsonObject
from evalfleet.store.base import StoreReader

FIRED, RESOLVED, DELIVERED = "alert.fired", "alert.resolved", "alert.delivered"
HOME = "home"  # stands for the run of events that belong to none
NOTICES = frozenset(rule.name for rule in RULES if not rule.resolves)


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
        if event.type == RESOLVED:
            alert |= {"state": "resolved", "resolved_at": event.at}
        elif event.type == DELIVERED:
            sent = {"channel": event.data.get("channel"), "what": event.data.get("what"), "at": event.at}
            alert["delivered"].append(sent)
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
        "state": "resolved" if notice else "firing",
        "fired_at": event.at,
        "resolved_at": event.at if notice else None,
        "delivered": [],
    }


def firing_of(events: Iterable[Event]) -> list[JsonObject]:
    return [alert for alert in fold(events).values() if alert["state"] == "firing"]


def listed(
    store: StoreReader, *, run: str | None, state: str | None, limit: int, before: int | None
) -> tuple[list[JsonObject], int | None]:
    """Newest first, and before which number the next page begins."""
    found = [
        alert
        for alert in reversed(list(fold(store.alert_events()).values()))
        if (run is None or alert["run"] == run)
        and (state is None or alert["state"] == state)
        and (before is None or alert["id"] < before)
    ]
    return found[:limit], found[limit - 1]["id"] if len(found) > limit else None


def rules() -> list[JsonObject]:
    return [{"rule": rule.name, "severity": str(rule.severity), "text": rule.text} for rule in RULES]
