"""How an alert reaches a person: a webhook, or whatever apprise knows.

Addresses come from the environment and go nowhere else: not into a log, an event or a message.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, cast
from urllib.parse import urlsplit

from evalfleet import config
from evalfleet.answers.alerts import Alert
from evalfleet.config import AlertSettings
from evalfleet.errors import MissingSecret
from evalfleet.model import JsonObject
from evalfleet.version import version

TIMEOUT_S = 10.0
_TOLD = ["rule", "subject", "severity", "message", "action", "run", "run_name", "fired_at", "resolved_at"]
_MARKS = {"critical": "CRITICAL", "warning": "warning", "info": "info"}


def message_of(alert: Alert, what: str) -> JsonObject:
    """What is sent. `text` alone is enough for Slack and its like; `id` is the same at every try."""
    mark = _MARKS.get(alert.severity, alert.severity) if what == "fired" else "resolved"
    return {
        "text": f"[evalfleet {mark}] {alert.message}",
        "id": f"{alert.id}:{what}",
        "what": what,
        **{name: getattr(alert, name) for name in _TOLD},
    }


def trial() -> JsonObject:
    """A message that says only that messages arrive."""
    now, said = time.time(), "this is a test; alerts of evalfleet arrive here"
    told = {"rule": "test", "subject": "", "severity": "info", "message": said, "action": "notify", "fired_at": now}
    message = {"text": f"[evalfleet info] {said}", "id": f"test:{now:.3f}", "what": "fired"}
    return {**message, **dict.fromkeys(_TOLD), **told}


class ChannelSender:
    """Sends. Used by any thread."""

    def __init__(self, settings: AlertSettings) -> None:
        self._settings = settings

    @property
    def channels(self) -> tuple[str, ...]:
        return self._settings.channels

    def is_quiet(self, severity: str, now: time.struct_time) -> bool:
        """Whether it must wait for the morning."""
        if self._settings.quiet is None or severity == "critical":
            return False
        begin, end = self._settings.quiet.split("-")
        clock = f"{now.tm_hour:02d}:{now.tm_min:02d}"
        return begin <= clock < end if begin <= end else clock >= begin or clock < end

    def send(self, channel: str, message: JsonObject) -> str | None:
        """Send; returns what went wrong, without the address, or None."""
        try:
            if channel == "webhook":
                return self._post(message)
            return _notify(_value(channel), message)
        except MissingSecret as error:
            return str(error)

    def _post(self, message: JsonObject) -> str | None:
        url = _value(self._settings.webhook or "")
        if urlsplit(url).scheme not in ("http", "https"):
            return f"the variable {self._settings.webhook} holds no http or https address"
        body = json.dumps(message).encode()
        headers = {"Content-Type": "application/json", "User-Agent": f"evalfleet/{version()}"}
        headers["X-Evalfleet-Id"] = str(message["id"])
        if self._settings.secret:
            key = _value(self._settings.secret).encode()
            headers["X-Evalfleet-Signature"] = "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S):
                return None
        except urllib.error.HTTPError as error:
            with error:
                return f"it answered {error.code}"
        except (OSError, HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            kind = getattr(reason, "strerror", None) or type(reason).__name__
            return f"it cannot be reached: {kind}"


def _value(name: str) -> str:
    """Raises MissingSecret."""
    return config.secret_values([name])[name]


def _notify(url: str, message: JsonObject) -> str | None:
    try:
        import apprise  # pyright: ignore[reportMissingImports]
    except ImportError:
        return "apprise is not installed; pip install 'evalfleet[notify]'"
    sender: Any = cast("Any", apprise).Apprise()
    if not sender.add(url):
        return "its variable holds no address that apprise knows"
    title = f"evalfleet: {message['rule']} {message['what']}"
    return None if sender.notify(body=message["text"], title=title) else "apprise could not send it"
