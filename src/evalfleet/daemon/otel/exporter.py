"""Sends the events of a run as they are stored, in a thread of its own.

The store is the queue: what a collector does not take stays there, and the number of the last event that was sent is kept
beside the run. The next controller of the run goes on from there. What is left of a run that is over is sent by the next
controller of the home.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from evalfleet.core.tracing import TraceBuilder
from evalfleet.daemon.otel.channel import Channel, Sent
from evalfleet.daemon.otel.cursor import Cursor, unfinished
from evalfleet.daemon.otel.destination import Destination
from evalfleet.daemon.otel.messages import log_request, metric_request, trace_request
from evalfleet.daemon.otel.points import host_points, run_points
from evalfleet.errors import EvalfleetError, NotFound
from evalfleet.layout import Home
from evalfleet.store.open import open_reader
from evalfleet.store.reader import StoreReader

PAGE = 500  # events in one message
_LOOK_S = 1.0
_END_S = 3.0  # after which the end of a run does not wait for its last events to be taken
_OLD_RUNS = 20  # that are looked at for what is left of them

_log = logging.getLogger("evalfleet.telemetry")


class RunStream:
    """The events of one run on their way. A page is sent again until each of its signals was taken."""

    def __init__(self, home: Home, run_id: str, channels: dict[str, Channel], resource: dict[str, str]) -> None:
        self._run_id = run_id
        self._channels = channels
        self._resource = resource
        self._cursor = Cursor(home.run(run_id))
        self._builder: TraceBuilder | None = None  # None: not begun
        self._read = 0  # number of the last event that the builder had
        self._waiting: dict[str, bytes] = {}  # signal -> message that was not taken yet
        self.hosts: set[str] = set()

    def step(self, reader: StoreReader) -> bool:
        """Send one page. True: there may be more to send at once."""
        if not self._cursor.take():
            return False
        if self._builder is None:
            self._begin(reader)
        if not self._waiting:
            self._next_page(reader)
        for signal, body in list(self._waiting.items()):
            if self._channels[signal].send(body) is Sent.DONE:
                del self._waiting[signal]
        if self._waiting:
            return False
        moved = self._read > self._cursor.after
        self._cursor.move(self._read, done=self._is_over(reader))
        return moved

    @property
    def is_done(self) -> bool:
        return self._cursor.is_done

    def close(self) -> None:
        self._cursor.close()

    def _begin(self, reader: StoreReader) -> None:
        """Read again what was sent already: spans that are open began there."""
        self._builder = TraceBuilder(self._run_id)
        while self._read < self._cursor.after:
            events = [one for one in reader.events.of_run(self._run_id, self._read) if one.number <= self._cursor.after]
            for event in events:
                self._builder.feed(event)
                self._note_host(event.data.get("worker"))
            self._read = events[-1].number if events else self._cursor.after

    def _next_page(self, reader: StoreReader) -> None:
        assert self._builder is not None
        events = reader.events.of_run(self._run_id, self._read, PAGE)
        told = [self._builder.feed(event) for event in events]
        for event in events:
            self._note_host(event.data.get("worker"))
        self._read = events[-1].number if events else self._read
        spans, logs = [span for some, _ in told for span in some], [log for _, log in told if log is not None]
        if spans and "traces" in self._channels:
            self._waiting["traces"] = trace_request(spans, self._resource)
        if logs and "logs" in self._channels:
            self._waiting["logs"] = log_request(logs, self._resource)

    def _note_host(self, worker: object) -> None:
        if isinstance(worker, str):
            self.hosts.add(worker.rpartition("-")[0] or worker)

    def _is_over(self, reader: StoreReader) -> bool:
        return reader.runs.get(self._run_id).state.is_over and not reader.events.of_run(self._run_id, self._read, 1)


class Exporter:
    """Made, started and finished by the controller; all else happens in its thread."""

    def __init__(self, home: Path, destination: Destination, run_id: str, notice: Callable[[str], None]) -> None:
        self._home = Home(home)
        self._run_id = run_id
        self._notice = notice
        self._interval_s = destination.interval_s
        self._resource = {"host.name": socket.gethostname(), **destination.resource}
        self._channels = {name: Channel(name, end, notice) for name, end in destination.signals.items()}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="telemetry", daemon=True)
        self._measured_at: float | None = None
        self._measure_at = 0.0

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Let it send what is new, and return soon in any case."""
        self._stopping.set()
        self._thread.join(_END_S)

    def _serve(self) -> None:
        try:
            reader = open_reader(self._home.path)
            if reader is None:
                return
            try:
                self._follow(reader)
            finally:
                reader.close()
        except (EvalfleetError, OSError) as error:
            self._notice(f"telemetry: it has stopped: {error}")
        except Exception:  # noqa: BLE001 - telemetry never stops the run
            _log.exception("telemetry failed")
            self._notice("telemetry: it failed, which is a mistake of evalfleet; the log has the traceback")

    def _follow(self, reader: StoreReader) -> None:
        stream = self._stream(self._run_id)
        left = [run for run in unfinished(self._home.path / "runs") if run != self._run_id][:_OLD_RUNS]
        try:
            while True:
                stopping = self._stopping.is_set()
                has_more = stream.step(reader)
                self._measure(reader, stream, last=stopping and not has_more)
                if has_more:
                    continue
                if stopping:
                    return
                if left:
                    self._send_rest(reader, left.pop(0))
                self._stopping.wait(_LOOK_S)
        finally:
            stream.close()

    def _stream(self, run_id: str) -> RunStream:
        return RunStream(self._home, run_id, self._channels, self._resource)

    def _send_rest(self, reader: StoreReader, run_id: str) -> None:
        """What is left of another run that no controller drives; the next try is that of the next controller."""
        stream = self._stream(run_id)
        try:
            if reader.runs.driver(run_id) is None:
                while not self._stopping.is_set() and stream.step(reader):
                    pass
        except NotFound:
            pass  # the run was deleted
        finally:
            stream.close()

    def _measure(self, reader: StoreReader, stream: RunStream, *, last: bool) -> None:
        """Metrics are of the moment: those that are not taken are left out."""
        channel = self._channels.get("metrics")
        if channel is None or not channel.is_due or not (last or time.monotonic() >= self._measure_at):
            return
        self._measure_at = time.monotonic() + self._interval_s
        run = reader.runs.get(self._run_id)
        now = reader.now()
        since = now - self._interval_s if self._measured_at is None else self._measured_at
        points = [*run_points(reader, run), *host_points(reader, frozenset(stream.hosts), since)]
        if channel.send(metric_request(points, self._resource)) is Sent.DONE:
            self._measured_at = now
