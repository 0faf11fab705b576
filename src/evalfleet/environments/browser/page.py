"""One page of a browser: opened, looked at, and acted on over the DevTools protocol."""

from __future__ import annotations

import base64
import time
from typing import Any

from evalfleet.actions import Action, Click, Drag, Move, Press, Scroll, Wait, Write
from evalfleet.environments.base import LONGEST_WAIT_S, PRESS_LIMIT, Size
from evalfleet.environments.browser import keys
from evalfleet.environments.browser.cdp import Connection
from evalfleet.errors import BrowserGone, BrowserRefused, ScriptFailed

_START_S = 60.0
_DRAG_MOVES = 5


class Page:
    """Every method has a time limit and raises BrowserError."""

    def __init__(self, connection: Connection, size: Size) -> None:
        self.size = size
        self._connection = connection
        self._loaded = False
        target = connection.call("Target.createTarget", {"url": "about:blank"}, timeout_s=_START_S)["targetId"]
        attached = connection.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session: str = attached["sessionId"]
        connection.on("Page.loadEventFired", self._note_load)
        connection.on("Page.javascriptDialogOpening", self._accept_dialog)
        connection.on("Inspector.targetCrashed", _crashed)
        self._call("Page.enable")
        self._call("Inspector.enable")
        self._call("Emulation.setFocusEmulationEnabled", {"enabled": True})
        self._call("Emulation.setLocaleOverride", {"locale": "en-US"})
        self._call("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})
        metrics = {"width": size.width, "height": size.height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", metrics)

    def open(self, url: str, *, timeout_s: float = 60.0) -> None:
        """Go to an address and wait until the page has loaded."""
        self._loaded = False
        answer = self._call("Page.navigate", {"url": url}, timeout_s=timeout_s)
        if answer.get("errorText"):
            raise BrowserRefused(f"{url}: {answer['errorText']}")
        self._connection.wait(lambda: self._loaded, f"{url} to load", timeout_s=timeout_s)

    def evaluate(self, expression: str, *, timeout_s: float = 30.0) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        params = {"expression": expression, "returnByValue": True, "awaitPromise": True, "userGesture": False}
        answer = self._call("Runtime.evaluate", params, timeout_s=timeout_s)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            said = details.get("exception", {}).get("description") or details.get("text", "")
            raise ScriptFailed(f"JavaScript failed: {said.splitlines()[0] if said else 'no message'}")
        return answer["result"].get("value")

    def stop_script(self) -> None:
        """End the JavaScript that runs, if any does."""
        self._call("Runtime.terminateExecution")

    def screenshot(self, size: Size | None = None) -> bytes:
        """Return the page's upper left part of that size as PNG; without a size, all of it."""
        size = size or self.size
        clip = {"x": 0, "y": 0, "width": size.width, "height": size.height, "scale": 1}
        answer = self._call("Page.captureScreenshot", {"format": "png", "clip": clip, "optimizeForSpeed": True})
        return base64.b64decode(answer["data"])

    def perform(self, action: Action) -> None:
        """Carry out one action. Raises InputError if it cannot be done."""
        match action:
            case Click():
                self._click(action)
            case Move():
                self._mouse("mouseMoved", action.x, action.y)
            case Drag():
                self._drag(action)
            case Scroll():
                self._mouse("mouseWheel", action.x, action.y, deltaX=action.dx, deltaY=action.dy)
            case Write():
                for character in action.text:
                    self._press({"\n": "Enter", "\t": "Tab"}.get(character, character))
            case Press():
                for _ in range(min(action.times, PRESS_LIMIT)):
                    self._press(action.key, action.held)
            case Wait():
                time.sleep(min(max(action.seconds, 0.0), LONGEST_WAIT_S))

    def _click(self, action: Click) -> None:
        bits = keys.modifiers(action.held)
        self._mouse("mouseMoved", action.x, action.y, modifiers=bits)
        for number in range(1, min(action.count, PRESS_LIMIT) + 1):
            pressed = {"button": "left", "clickCount": number, "modifiers": bits}
            self._mouse("mousePressed", action.x, action.y, buttons=1, **pressed)
            self._mouse("mouseReleased", action.x, action.y, **pressed)

    def _drag(self, action: Drag) -> None:
        self._mouse("mouseMoved", action.x, action.y)
        self._mouse("mousePressed", action.x, action.y, button="left", buttons=1, clickCount=1)
        for part in range(1, _DRAG_MOVES + 1):
            x = action.x + (action.to_x - action.x) * part / _DRAG_MOVES
            y = action.y + (action.to_y - action.y) * part / _DRAG_MOVES
            self._mouse("mouseMoved", x, y, button="left", buttons=1)
        self._mouse("mouseReleased", action.to_x, action.to_y, button="left", clickCount=1)

    def _press(self, key: str, held: tuple[str, ...] = ()) -> None:
        for event in keys.events(key, held):
            self._call("Input.dispatchKeyEvent", event)

    def _mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self._call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})

    def _call(
        self, method: str, params: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        return self._connection.call(method, params, session=self._session, timeout_s=timeout_s)

    def _note_load(self, _params: dict[str, Any]) -> None:
        self._loaded = True

    def _accept_dialog(self, _params: dict[str, Any]) -> None:
        # An open dialog stops the page, and with it every answer.
        self._connection.post("Page.handleJavaScriptDialog", {"accept": True}, session=self._session)


def _crashed(_params: dict[str, Any]) -> None:
    raise BrowserGone("the page crashed")
