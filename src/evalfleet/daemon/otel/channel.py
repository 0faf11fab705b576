"""Sends messages to one address of a collector, and decides what becomes of those that it does not take."""

from __future__ import annotations

import gzip
import http.client
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from enum import Enum, auto

from evalfleet.core.failures.kinds import one_line
from evalfleet.daemon.otel.destination import Endpoint

LONGEST_PAUSE_S = 60.0
_NOT_THERE = (404, 405, 501)  # the collector takes no such signal
_BAD_BATCH = (400, 413)


class Sent(Enum):
    DONE = auto()  # or dropped for good: the next may be sent
    LATER = auto()


class Channel:
    """Used by one thread. After a failure nothing is sent for a while, which grows."""

    def __init__(self, signal: str, endpoint: Endpoint, notice: Callable[[str], None]) -> None:
        self._signal = signal
        self._endpoint = endpoint
        self._notice = notice
        self._failures = 0
        self._again_at = 0.0
        self._told = ""
        self.is_off = False

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._again_at

    def send(self, body: bytes) -> Sent:
        """One try."""
        if self.is_off:
            return Sent.DONE
        if not self.is_due:
            return Sent.LATER
        try:
            with urllib.request.urlopen(self._request(body), timeout=self._endpoint.timeout_s) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return self._refused(error.code, error.headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            return self._later(f"{self._endpoint.shown} cannot be reached: {one_line(str(reason))}")
        if self._failures:
            self._tell(f"{self._endpoint.shown} takes {self._signal} again")
        self._failures, self._told = 0, ""
        return Sent.DONE

    def _request(self, body: bytes) -> urllib.request.Request:
        headers = {"Content-Type": "application/x-protobuf", "User-Agent": "evalfleet", **self._endpoint.headers}
        if self._endpoint.gzip:
            body, headers["Content-Encoding"] = gzip.compress(body, 1), "gzip"
        return urllib.request.Request(self._endpoint.url, body, headers, method="POST")

    def _refused(self, status: int, headers: Message) -> Sent:
        shown = f"{self._endpoint.shown} answers {status}"
        if status in _NOT_THERE:
            self.is_off = True
            self._tell(f"{shown}: it takes no {self._signal}, and gets none from this process")
            return Sent.DONE
        if status in _BAD_BATCH:
            self._tell(f"{shown}: some {self._signal} are left out")
            return Sent.DONE
        return self._later(shown, headers.get("Retry-After"))

    def _later(self, why: str, asked: str | None = None) -> Sent:
        self._failures += 1
        pause_s = min(LONGEST_PAUSE_S, 2.0 ** min(self._failures - 1, 10)) * random.uniform(0.75, 1.0)
        if asked is not None and asked.isascii() and asked.isdigit():
            pause_s = min(LONGEST_PAUSE_S, max(pause_s, float(asked)))
        self._again_at = time.monotonic() + pause_s
        if self._failures == 2:  # one failure is nothing to tell of
            self._tell(f"{why}; {self._signal} wait for it, the run does not")
        return Sent.LATER

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._notice(f"telemetry: {text}")
