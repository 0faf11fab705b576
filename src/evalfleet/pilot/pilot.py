"""Holds the node's runner: says hello, beats, takes sessions, uploads ended attempts, and says why it ends."""

from __future__ import annotations

import os
import socket
import threading
import time

from . import names
from .carrier import BoxClosed, CarrierError, Traffic
from .control import ControlServer
from .facts import node_facts
from .keys import BadSignature, Identity, accept, introduction, signed
from .runner_process import RunnerClient
from .session import Session
from .uploads import AttemptUpload
from .watch import RunnerWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .carrier import Carrier
    from .keys import PublicIdentity
    from .runner_process import RunnerProcess

BEAT_S = 30.0
BEAT_VARIABLE = "EVALFLEET_PILOT_BEAT_S"  # set where time passes more quickly: in an emulator
LIST_S = 30.0  # in case that the next number was taken by an object that is not a session
REFUSED_S = 600.0  # a grant that is refused for so long will not come back
ENDING_S = 20.0
LAST_TRY_S = 12.0


class PilotRefused(Exception):
    """The box belongs to another pilot."""


class Pilot:
    """One life of a pilot, from `hello` to `bye`."""

    def __init__(
        self,
        carrier: Carrier,
        runner: RunnerProcess,
        identity: Identity,
        controller: PublicIdentity,
        *,
        token: str,
        generation: int,
        slots: int,
        stops_at: float,
        last_session: int,
        note_session: Callable[[int], None],
        log: Callable[[str], None],
    ) -> None:
        """
        Args:
            stops_at: Unix time at which it ends, whatever runs.
            last_session: the newest session of an earlier life on this node; older ones are refused.
            note_session: remembers that number.
        """
        self._carrier = carrier
        self._runner = runner
        self._identity = identity
        self._controller = controller
        self._token = token
        self._generation = generation
        self._slots = slots
        self._stops_at = stops_at
        self._session = last_session + 1
        self._note_session = note_session
        self._log = log
        self._watch = RunnerWatch(runner, AttemptUpload(carrier, identity, controller, generation), log)
        self._sessions: list[Session] = []
        self._requests = Traffic()  # of controllers
        self._beats = 0
        self._started_at = time.time()
        self._over = threading.Event()
        self._why = ""
        self._closed_since: float | None = None

    def run(self) -> None:
        """Returns when the pilot has ended. Raises PilotRefused, BoxClosed, RunnerError."""
        self._introduce()
        self._watch.start()
        threading.Thread(target=self._beat_forever, daemon=True).start()
        self._listen()
        for session in self._sessions:
            session.end()
        for session in self._sessions:
            session.join(LAST_TRY_S)
            self._quietly(session.clean)
        self._watch.finish(ENDING_S)
        self._quietly(self._say_bye)

    def end(self, why: str) -> None:
        """May be called by any thread."""
        self._why = self._why or why
        self._over.set()

    def preempt(self, line: str) -> None:
        """The node is taken away: nothing new starts, and the pilot ends once nothing runs and everything is uploaded."""
        self._watch.notice = self._watch.notice or line

    def _introduce(self) -> None:
        client = RunnerClient(self._runner.connect())
        try:
            inventory = client.request("inventory")
        finally:
            client.close()
        fields = {
            "generation": self._generation,
            "slots": self._slots,
            "started_at": self._started_at,
            "facts": node_facts(inventory),
        }
        data = introduction(self._identity, self._token, fields)
        while True:
            try:
                self._carrier.put(names.HELLO, data, new=True)
                return
            except FileExistsError:
                there = self._carrier.get(names.HELLO) or b""
                if self._identity.public.text.encode() not in there:
                    raise PilotRefused("this box is used by another pilot; a new one needs a new generation") from None
                self._carrier.put(names.HELLO, data)
                return
            except BoxClosed:
                raise
            except CarrierError as error:
                self._log("hello: %s" % error)
                time.sleep(1.0)

    # Sessions.

    def _listen(self) -> None:
        pauses = self._carrier.pace.start()
        listed_at = time.monotonic()
        while not self._over.is_set():
            if time.time() >= self._stops_at:
                self.end("its time is over")
            if self._watch.notice is not None and self._watch.is_drained:
                self.end(self._watch.notice)
            try:
                document = self._carrier.get(names.opened(self._session))
                if document is None and time.monotonic() - listed_at > LIST_S:
                    listed_at = time.monotonic()
                    self._skip()
                self._closed_since = None
            except CarrierError as error:
                self._trouble(error)
                document = None
            self._sweep()
            if document is not None:
                self._open(document)
                pauses.found()
            else:
                self._over.wait(pauses.next(busy=self._watch.live > 0 or bool(self._sessions)))

    def _skip(self) -> None:
        """Go on with the newest number where a gap shows that the next one will never come."""
        known = [names.session_of(name) for name, _ in self._carrier.list(names.OPEN)]
        self._session = max([self._session, *(number for number in known)])

    def _open(self, document: bytes) -> None:
        number, self._session = self._session, self._session + 1
        self._note_session(number)
        try:
            purpose, reply, keys = accept(self._identity, self._controller, self._generation, number, document)
        except BadSignature as error:
            self._log("session %d refused: %s" % (number, error))
            return
        try:
            peer = self._runner.connect() if purpose == "runner" else ControlServer(self._commands()).connect()
        except OSError as error:
            self._log("session %d: %s" % (number, error))
            peer, other = socket.socketpair()
            other.close()
        session = Session(self._carrier, number, keys, peer, lambda: self._watch.live > 0, self._requests, self._log)
        session.start(reply)
        self._sessions.append(session)

    def _sweep(self) -> None:
        for session in [one for one in self._sessions if one.is_over]:
            self._sessions.remove(session)
            self._quietly(session.clean)

    def _commands(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        def reset(_order: dict[str, Any]) -> dict[str, Any]:
            self._runner.kill()
            return {}

        def end(order: dict[str, Any]) -> dict[str, Any]:
            self.end(str(order.get("reason") or "it was told to end"))
            return {}

        def facts(_order: dict[str, Any]) -> dict[str, Any]:
            client = RunnerClient(self._runner.connect())
            try:
                return {"facts": node_facts(client.request("inventory"))}
            finally:
                client.close()

        return {"ping": lambda _order: {}, "reset": reset, "end": end, "facts": facts}

    def _trouble(self, error: CarrierError) -> None:
        if not isinstance(error, BoxClosed):
            self._closed_since = None
            return
        now = time.monotonic()
        self._closed_since = self._closed_since or now
        if now - self._closed_since > REFUSED_S:
            self.end("its box is closed: %s" % error)

    # Beats.

    def _beat_forever(self) -> None:
        while not self._over.is_set():
            try:
                self._carrier.put(names.BEAT, signed(self._identity, "beat", self._standing()))
            except CarrierError as error:
                self._log("beat: %s" % error)
            self._over.wait(float(os.environ.get(BEAT_VARIABLE, BEAT_S)))

    def _standing(self) -> dict[str, Any]:
        self._beats += 1
        return {
            "number": self._beats,
            "generation": self._generation,
            "at": time.time(),
            "started_at": self._started_at,
            "live": self._watch.live,
            "waiting": self._watch.waiting,
            "notice": self._watch.notice,
            "reads": self._carrier.traffic.reads,
            "writes": self._carrier.traffic.writes,
            "controllers_reads": self._requests.reads,
            "controllers_writes": self._requests.writes,
        }

    def _say_bye(self) -> None:
        fields = {"generation": self._generation, "at": time.time(), "reason": self._why, "pid": os.getpid()}
        self._carrier.put(names.BYE, signed(self._identity, "bye", fields))

    def _quietly(self, call: Callable[[], None]) -> None:
        try:
            call()
        except OSError as error:
            self._log(str(error))
