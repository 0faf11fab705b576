"""Preemption notices from the metadata service inside a VM (Azure's Scheduled Events).

A thread asks about once per second, because an eviction is announced only 30 seconds ahead and the first answer may take two
minutes. Events are not acknowledged: that would end the notice at once, and the tasks need the time.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
import urllib.parse

from .. import jsontext
from ..loop import READ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..loop import Loop

VARIABLE = "EVALFLEET_IMDS"  # in the place of the address below, on hosts of the emulator
AZURE = "http://169.254.169.254"
INSTANCE = "/metadata/instance?api-version=2021-02-01"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
POLL_S = 1.0
MOST_PAUSE_S = 8.0  # after failures; well below the length of a notice
CONNECT_S = 10.0
ANSWER_S = 10.0
FIRST_ANSWER_S = 150.0  # the first call switches the service on
LARGEST = 1 << 20


class PreemptionWatch:
    """Watches from the start, and reports once. Used in the loop's thread; only `_work` runs in another.

    That thread may be at any point when the loop's thread forks: it imports everything before it starts, and no forked child uses
    the network.
    """

    def __init__(self, loop: Loop, log: Callable[[str], None], tell: Callable[[str], None]) -> None:
        """
        Args:
            log: may be called by any thread.
            tell: called in the loop's thread with a line that says what happens and when.
        """
        self._loop = loop
        self._log = log
        self._tell = tell
        self._line = ""
        self._reader, self._writer = os.pipe()
        loop.watch(self._reader, READ, self._noticed)
        base = os.environ.get(VARIABLE) or AZURE
        log("watching for notices at %s" % base)
        threading.Thread(target=self._work, args=(base,), daemon=True).start()

    def _noticed(self, _mask: int) -> None:
        self._loop.unwatch(self._reader)
        os.close(self._reader)
        self._tell(self._line)

    def _work(self, base: str) -> None:
        name = ""
        patience_s = FIRST_ANSWER_S
        pause_s = POLL_S
        while True:
            try:
                name = name or name_in(ask(base, INSTANCE, patience_s))
                line = preemption(ask(base, EVENTS, patience_s), name)
                if line is not None:
                    break
                patience_s, pause_s = ANSWER_S, POLL_S
            except (OSError, ValueError, http.client.HTTPException) as error:
                if pause_s == POLL_S:  # once per row of failures
                    self._log("no answer about notices: %r" % error)
                pause_s = min(2 * pause_s, MOST_PAUSE_S)
            time.sleep(pause_s)
        self._line = line
        os.write(self._writer, b".")
        os.close(self._writer)


def ask(base: str, path: str, patience_s: float) -> dict[str, Any]:
    """One answer of the metadata service, asked directly: behind a proxy it could not tell which machine asks.

    Raises:
        OSError, ValueError, http.client.HTTPException: there is no valid answer.
    """
    where = urllib.parse.urlsplit(base)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=CONNECT_S)
    try:
        connection.connect()
        connection.sock.settimeout(patience_s)
        connection.request("GET", where.path.rstrip("/") + path, headers={"Metadata": "true"})
        answer = connection.getresponse()
        data = answer.read(LARGEST)
    finally:
        connection.close()
    if answer.status != 200:
        raise ValueError("status %d: %r" % (answer.status, data[:200]))
    found = jsontext.as_object(jsontext.parse(data))
    if found is None:
        raise ValueError("the answer is not an object")
    return found


def name_in(document: dict[str, Any]) -> str:
    """The name of this machine in the service's answer."""
    name = (jsontext.as_object(document.get("compute")) or {}).get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("the answer does not name the machine")
    return name


def preemption(document: dict[str, Any], name: str) -> str | None:
    """A line about the event that preempts this machine, if there is one. Other events concern other machines, or are harmless."""
    for entry in jsontext.as_list(document.get("Events")) or []:
        event = jsontext.as_object(entry) or {}
        machines = jsontext.as_list(event.get("Resources")) or []
        if event.get("EventType") == "Preempt" and name.lower() in [str(machine).lower() for machine in machines]:
            due = event.get("NotBefore")
            when = "not before %s" % due if due and event.get("EventStatus") != "Started" else "now"
            return "the cloud preempts %s, %s (event %s)" % (name, when, event.get("EventId"))
    return None
