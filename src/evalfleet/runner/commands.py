"""The commands of the runner's protocol."""

from __future__ import annotations

import base64
import binascii
import os
import time

from .attempt import spec as words
from .attempt.attempt import Attempt
from .attempt.journal import Journal
from .attempt.spec import AttemptSpec, RequestRefused, bad
from .host.inventory import inventory
from .host.load import HostLoad
from .jsontext import as_list
from .protocol import PROTOCOL, EventFeed
from .redact import Redactor
from .runner import EndedAttempt
from .spool.spool import fetch, write_task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .host.preemption import PreemptionWatch
    from .protocol import Answer, ClientConnection
    from .runner import Runner

FETCH_BYTES = 1 << 20


class Commands:
    """One method per command; each returns the fields of its answer or raises `RequestRefused`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._spool = runner.spool
        self._load = HostLoad(runner.spool.folder)
        self._notices: PreemptionWatch | None = None
        self._table: dict[str, Callable[[ClientConnection, dict[str, Any]], Answer]] = {
            "hello": self._hello,
            "ping": self._ping,
            "put": self._put,
            "launch": self._launch,
            "attach": self._attach,
            "cancel": self._cancel,
            "fetch": self._fetch,
            "ack": self._ack,
            "inventory": self._inventory,
            "want": self._want,
            "watch": self._watch,
            "preempt": self._preempt,
            "shutdown": self._shutdown,
        }

    def serve(self, connection: ClientConnection, message: dict[str, Any]) -> Answer:
        command = self._table.get(str(message.get("do")))
        if command is None:
            raise bad("do must be one of: %s" % ", ".join(sorted(self._table)))
        return command(connection, message)

    def _hello(self, connection: ClientConnection, message: dict[str, Any]) -> Answer:
        if message.get("protocol") != PROTOCOL:
            raise bad("this runner speaks protocol %d" % PROTOCOL)
        if message.get("run") is not None:
            self._fence(message)
        self._runner.look_again()
        connection.wants_notices = message.get("notices") is True
        load = self._load.look() if message.get("load") is True else None
        # a client that only inspects the runner does not wait until a driver wakes up
        return self._with_gpus(lambda: self._standing(load), wait=message.get("run") is not None)

    def _standing(self, load: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "protocol": PROTOCOL,
            "version": self._runner.version,
            "pid": os.getpid(),
            "now": self._runner.now(),
            "boot_id": self._runner.boot_id,
            "doomed": self._runner.preemption,
            "age_s": self._spool.age_s(),
            "load": load,
            "attempts": [
                {
                    "attempt": attempt.name,
                    "run": attempt.run,
                    "state": "running" if attempt.live else "ended",
                    "last": attempt.journal.next - 1,
                }
                for attempt in self._runner.attempts.values()
            ],
            "unreadable": [{"attempt": name, "message": message} for name, message in self._runner.unreadable.items()],
        }

    def _ping(self, _connection: ClientConnection, _message: dict[str, Any]) -> dict[str, Any]:
        return {"now": self._runner.now()}

    def _put(self, connection: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
        digest = words.text(message, "sha256")
        try:
            data = base64.b64decode(words.text(message, "data") if "data" in message else "", validate=True)
        except (binascii.Error, ValueError):
            raise bad("data must be base64") from None
        known = self._spool.put(
            digest, words.whole(message, "offset"), data, message.get("last") is True, connection.number
        )
        return {"known": known}

    def _launch(self, connection: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
        received = time.monotonic()
        name = words.attempt_name(message)
        run = self._fence(message)
        known = self._runner.attempts.get(name)
        if known is not None:
            if known.run != run:
                raise bad("attempt %s belongs to run %s" % (name, known.run))
            connection.after_answer.append(lambda: self._feed(connection, name, 0))
            return {"known": True}
        if name in self._runner.unreadable:
            raise RequestRefused("io_error", "attempt %s is here already: %s" % (name, self._runner.unreadable[name]))
        if self._runner.stopping:
            raise RequestRefused("shutting_down", "the runner is ending")
        if self._runner.preemption is not None:
            raise RequestRefused("draining", self._runner.preemption)
        spec = AttemptSpec(message.get("spec"))
        secrets = words.variables(message, "secrets")
        # By our own time, which the controller knows: a launch may have been under way for long.
        left_s = words.limit(message, "not_after") - self._runner.now()
        deadline = received + min(left_s, words.limit(message, "valid_for_s"))
        attempt, first = self._prepare(name, run, spec, secrets, message["epoch"], deadline)
        attempt.slots, attempt.start_by = _slots(message), deadline
        self._runner.adopt(attempt)
        connection.after_answer.append(lambda: self._begin(connection, attempt, secrets, first))
        return {"known": False}

    def _prepare(
        self, name: str, run: str, spec: AttemptSpec, secrets: dict[str, str], epoch: int, deadline: float
    ) -> tuple[Attempt, bytes]:
        """Create the attempt's folder with its files and the first journal line. Leaves nothing behind if it fails."""
        folder = self._spool.attempt(name)
        journal = Journal(folder + "/journal.jsonl", name, self._runner.now)
        os.mkdir(folder, 0o700)
        try:
            os.mkdir(folder + "/artifacts", 0o700)
            write_task(folder, spec)
            self._spool.stage(folder, spec)
            if time.monotonic() > deadline:
                raise RequestRefused("expired", "the launch arrived too late to be started")
            journal.create()
            told = {"spec": spec.fields, "run": run, "epoch": epoch, "secrets": sorted(secrets), "file": journal.file()}
            first = journal.append("launched", told)
            if journal.error is not None:
                raise journal.error
        except (OSError, RequestRefused):
            journal.close()
            self._spool.discard(name)
            raise
        return Attempt(self._runner, name, run, folder, spec, Redactor(secrets), journal), first

    def _begin(self, connection: ClientConnection, attempt: Attempt, secrets: dict[str, str], first: bytes) -> None:
        feed = EventFeed(connection, attempt.journal, 0)
        attempt.feeds.append(feed)
        connection.feeds[attempt.name] = feed
        feed.push(first)
        self._runner.guard(attempt, lambda: attempt.start(secrets))

    def _attach(self, connection: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
        name = words.attempt_name(message)
        start = words.whole(message, "from")
        attempt = self._runner.attempts.get(name)
        if attempt is None or not (attempt.live or os.path.exists(attempt.journal.path)):
            return {"known": False}
        connection.after_answer.append(lambda: self._feed(connection, name, start))
        return {"known": True}

    def _feed(self, connection: ClientConnection, name: str, start: int) -> None:
        """Send the attempt's events from number `start` on. Replaces an earlier attachment of this connection."""
        attempt = self._runner.attempts[name]
        old = connection.feeds.pop(name, None)
        if old is not None:
            connection.behind.discard(old)
        try:
            feed = EventFeed(connection, attempt.journal, attempt.journal.offset_of(start))
        except OSError:
            return  # its folder was taken away
        connection.behind.add(feed)
        if not isinstance(attempt, EndedAttempt):
            if old in attempt.feeds:
                attempt.feeds.remove(old)
            attempt.feeds.append(feed)
            connection.feeds[name] = feed

    def _cancel(self, _connection: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
        name = words.attempt_name(message)
        run = self._fence(message)
        attempt = self._runner.live.get(name)
        if attempt is not None and attempt.run == run:
            reason = message.get("reason")
            attempt.stop("cancelled", reason if isinstance(reason, str) else None)
        return {}

    def _fetch(self, _connection: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
        name = words.attempt_name(message)
        if name not in self._runner.attempts:
            raise RequestRefused("unknown_attempt", "there is no attempt %s here" % name)
        limit = min(words.whole(message, "limit", FETCH_BYTES), FETCH_BYTES)
        offset = words.whole(message, "offset")
        path, journal = words.text(message, "path"), self._runner.attempts[name].journal
        if path == "journal.jsonl" and journal.backlog:  # the disk is full, and the end waits in memory
            data, size = journal.piece(offset, limit), journal.size
        else:
            data, size = fetch(self._spool.attempt(name), path, offset, limit)
        return {"data": base64.b64encode(data).decode(), "size": size, "eof": offset + len(data) >= size}

    def _ack(self, _connection: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
        name = words.attempt_name(message)
        run = self._fence(message)
        attempt = self._runner.attempts.get(name)
        if attempt is None or attempt.run != run:
            return {}
        if attempt.live:
            raise bad("attempt %s has not ended" % name)
        self._runner.forget(name)
        self._spool.discard(name)
        return {}

    def _inventory(self, _connection: ClientConnection, _message: dict[str, Any]) -> Answer:
        return self._with_gpus(lambda: dict(inventory(self._spool.folder), now=self._runner.now()), wait=True)

    def _with_gpus(self, fields: Callable[[], dict[str, Any]], wait: bool) -> Answer:
        """An answer with the state of the GPUs, which may have to be probed first."""
        return lambda tell: self._runner.gpus.tell(lambda gpus: tell(dict(fields(), **gpus)), wait)

    def _watch(self, _connection: ClientConnection, _message: dict[str, Any]) -> dict[str, Any]:
        if self._notices is None:
            from .host.preemption import (
                PreemptionWatch,  # HTTP costs a runner that does not need it a third of its start-up
            )

            self._notices = PreemptionWatch(self._runner.loop, self._spool.log, self._runner.note_preemption)
        return {"doomed": self._runner.preemption}

    def _preempt(self, _connection: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
        """A preemption notice that another program of this machine heard."""
        if self._runner.preemption is None:
            self._runner.note_preemption(words.text(message, "message"))
        return {"doomed": self._runner.preemption}

    def _want(self, connection: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
        slots, most = _slots(message), words.whole(message, "most")
        if slots is None:
            raise bad("slots must be a whole number above 0")
        return self._runner.slots.want(connection, self._fence(message), slots, most)

    def _shutdown(self, connection: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
        others = self._runner.connections - {connection}
        if message.get("if_idle") is True and (others or self._runner.live):
            return {"ended": False}
        if message.get("if_idle") is True:
            self._spool.mark_reapable(self._runner.now())
        connection.after_answer.append(self._runner.stop)
        return {"ended": True}

    def _fence(self, message: dict[str, Any]) -> str:
        run = words.text(message, "run")
        epoch = message.get("epoch")
        if isinstance(epoch, bool) or not isinstance(epoch, int):
            raise bad("epoch must be a whole number")
        self._runner.spool_move.follow()
        home = message.get("home")
        if isinstance(home, str):
            self._spool.claim(run, home, [str(one) for one in as_list(message.get("former")) or []])
        self._spool.fence(run, epoch)
        return run


def _slots(message: dict[str, Any]) -> int | None:
    """The number of slots of the host, if the sender counts them."""
    return words.whole(message, "slots") or None if message.get("slots") is not None else None
