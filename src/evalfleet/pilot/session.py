"""One session with a controller: carries bytes between its frames in the box and a socket of this node."""

from __future__ import annotations

import socket
import threading
import time
from functools import partial

from . import names
from .carrier import BoxClosed, CarrierError
from .frames import FRAME_BYTES, BadFrame, Frame, Receiver, Sender

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .carrier import Carrier, Traffic
    from .keys import SessionKeys

SILENT_S = 240.0  # without a frame for so long the controller is gone; a live one writes every minute
GAP_S = 0.2  # between two frames, so that a chatty task costs at most five requests per second
RETRY_S = 1.0
CLOSING_S = 10.0
GIVE_UP_S = 600.0  # of failures of the carrier


class Session:
    """Runs in two threads of its own until the controller closes it, falls silent, or the socket ends."""

    def __init__(
        self,
        carrier: Carrier,
        number: int,
        keys: SessionKeys,
        peer: socket.socket,
        is_busy: Callable[[], bool],
        requests: Traffic,
        log: Callable[[str], None],
    ) -> None:
        """
        Args:
            peer: the session takes ownership.
            is_busy: whether attempts run on this node.
            requests: counts those of controllers, as they report them.
        """
        self.number = number
        self._carrier = carrier
        self._in, self._out = names.to_pilot(number), names.from_pilot(number)
        self._receiver = Receiver(keys.to_pilot, keys.to_pilot_acks)
        self._sender = Sender(keys.from_pilot, keys.from_pilot_acks)
        self._peer = peer
        self._is_busy = is_busy
        self._requests = requests
        self._log = log
        self._over = threading.Event()
        self._reply = b""
        self._is_closed_there = False  # by the controller
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in (self._receive, self._send)
        ]

    @property
    def is_over(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def start(self, reply: bytes) -> None:
        """
        Args:
            reply: to the controller that opened the session.
        """
        self._reply = reply
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._over.set()

    def join(self, limit_s: float) -> None:
        for thread in self._threads:
            thread.join(limit_s)

    def clean(self) -> None:
        """Delete what is left of it in the box."""
        for folder in (self._in, self._out):
            self._carrier.delete([name for name, _ in self._carrier.list(folder)])
        self._peer.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BoxClosed as error:
            self._log("session %d: %s" % (self.number, error))
        except OSError as error:
            self._log("session %d ended: %s" % (self.number, error))
        finally:
            self._over.set()
            try:
                self._peer.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended already

    def _receive(self) -> None:
        self._insist(lambda: self._carrier.put(names.reply(self.number), self._reply))
        # The newest one stays, so that controllers know the next number.
        self._insist(lambda: self._carrier.delete([names.opened(self.number - 1)]))
        pauses = self._carrier.pace.start()
        heard_at = time.monotonic()
        while not self._over.is_set():
            frame = self._next_frame()
            now = time.monotonic()
            if frame is None:
                if now - heard_at > SILENT_S:
                    raise CarrierError("its controller has written nothing for %d s" % SILENT_S)
                self._acknowledge()
                self._over.wait(pauses.next(busy=self._is_busy()))
                continue
            pauses.found()
            heard_at = now
            self._requests.add(frame.reads, frame.writes)
            if frame.payload:
                self._peer.sendall(frame.payload)
            self._insist(lambda: self._carrier.delete([names.frame(self._in, self._receiver.next - 1)]))
            if frame.closes:
                self._is_closed_there = True
                return
            self._acknowledge()

    def _next_frame(self) -> Frame | None:
        data = self._insist(lambda: self._carrier.get(names.frame(self._in, self._receiver.next)))
        if data is None:
            return None
        try:
            return self._receiver.take(data, time.monotonic())
        except BadFrame as error:
            self._log("session %d: refused: %s" % (self.number, error))
            return None

    def _acknowledge(self) -> None:
        told = self._receiver.ack(time.monotonic())
        if told is not None:
            self._insist(lambda: self._carrier.put(names.ack(self._in), told))
            self._receiver.acked(time.monotonic())

    def _send(self) -> None:
        self._peer.settimeout(1.0)
        while not self._over.is_set():
            try:
                data = self._peer.recv(FRAME_BYTES)
            except socket.timeout:
                self._again()
                continue
            if not data:
                break
            self._wait_for_room()
            self._seal(data)
            self._over.wait(GAP_S if self._carrier.pace.quick_s >= GAP_S else 0)
        if not self._is_closed_there:
            self._say_closed()

    def _seal(self, data: bytes, *, closes: bool = False) -> str:
        """Put the next frame; returns its name."""
        frame = Frame(data, closes=closes, busy=self._is_busy())
        number, sealed = self._sender.seal(frame, time.monotonic())
        self._insist(partial(self._put, number, sealed))
        return names.frame(self._out, number)

    def _say_closed(self) -> None:
        """Tell the controller, and wait until it knows: then it has deleted the frame."""
        name = self._seal(b"", closes=True)
        deadline = time.monotonic() + CLOSING_S
        while time.monotonic() < deadline and self._carrier.get(name) is not None:
            time.sleep(self._carrier.pace.busy_s / 2)

    def _wait_for_room(self) -> None:
        pauses = self._carrier.pace.start()
        while not self._sender.has_room and not self._over.is_set():
            self._again()
            if not self._sender.has_room:
                self._over.wait(pauses.next(busy=True))

    def _again(self) -> None:
        """Read how far the controller is, and put what it seems to lack once more."""
        if self._sender.asks(time.monotonic()):
            self._sender.acknowledge(self._insist(lambda: self._carrier.get(names.ack(self._out))))
            for number, sealed in self._sender.overdue(time.monotonic()):
                self._insist(partial(self._put, number, sealed))

    def _put(self, number: int, sealed: bytes) -> None:
        self._carrier.put(names.frame(self._out, number), sealed)

    def _insist(self, call: Callable[[], _T]) -> _T:
        """Try until the carrier works, as long as the session lasts."""
        deadline = time.monotonic() + GIVE_UP_S
        while True:
            try:
                return call()
            except BoxClosed:
                raise
            except CarrierError:
                if self._over.is_set() or time.monotonic() > deadline:
                    raise
                self._over.wait(RETRY_S)


if TYPE_CHECKING:
    from typing import TypeVar

    _T = TypeVar("_T")
