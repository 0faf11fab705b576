"""The slots of this host as lock files that all homes and users share, and the queue for them.

Slot n is the file `n.lock`. A runner opens and locks it; the attempt on it inherits the open file. So a slot is taken as long
as any process of the attempt lives, even if the runner is dead.

A waiting run holds a lock on a ticket, its own file. Tickets are served in the order of their creation times, which the kernel
sets and no user can forge. A ticket whose holder died is not locked and does not count.
"""

from __future__ import annotations

import fcntl
import json
import os

from .. import jsontext
from . import lock_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER = "/tmp/evalfleet-slots"
VARIABLE = "EVALFLEET_SLOT_LOCKS"  # in the place of that, where homes share another folder
MOST_NOTE = 1024
TRIES = 3
TICKET = ".ticket"


def folder() -> str:
    return os.environ.get(VARIABLE) or FOLDER


class HeldSlot:
    """A slot that this runner holds."""

    def __init__(self, number: int, fd: int) -> None:
        self.number = number
        self.fd = fd


class SlotTicket:
    """Our place in the queue."""

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self.fd = fd


class SlotLocks:
    """The slots and tickets that one runner holds."""

    def __init__(self, spool: str) -> None:
        self._spool = spool
        self._folder = folder()
        self._held: dict[int, HeldSlot] = {}
        self._tickets: dict[str, SlotTicket] = {}
        self.trouble: str | None = None  # why the slots cannot be counted

    @property
    def descriptors(self) -> list[int]:
        return [each.fd for each in (*self._held.values(), *self._tickets.values())]

    @property
    def numbers(self) -> list[int]:
        return list(self._held)

    def touch(self) -> None:
        """Update the slots' times, so that a cleanup of the folder spares them. Not the tickets, which would lose their place."""
        if self._held:
            lock_file.touch(self._folder, [slot.fd for slot in self._held.values()])

    def take(self, slots: int, run: str) -> HeldSlot | None:
        """Take a free one of the first `slots`; None if there is none. Highest first: homes that count fewer slots have only the lowest.

        A slot whose file cannot be used is skipped; if none is left, `trouble` says why.
        """
        self.trouble = None
        for number in range(slots, 0, -1):
            if number not in self._held:
                fd = self._locked(_name(number), fcntl.LOCK_EX)
                if fd is not None:
                    self._note(fd, run)
                    self._held[number] = HeldSlot(number, fd)
                    self.trouble = None
                    return self._held[number]
        return None

    def drop(self, slot: HeldSlot) -> None:
        """Release a slot by closing, never by unlocking, which would release it for surviving processes too."""
        del self._held[slot.number]
        os.close(slot.fd)

    def others(self, slots: int) -> tuple[int, list[str]]:
        """How many of the first `slots` other runners have, and who they are, in words."""
        count = 0
        who: list[str] = []
        for number in range(1, slots + 1):
            if number in self._held:
                continue
            try:
                fd = lock_file.open_lock(self._folder, _name(number), make=False, alone=False)
            except OSError:
                continue  # not created yet, or unusable, which `take` reports
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who look do not see each other
            except OSError:
                count += 1
                words = _words(fd)
                if words not in who:
                    who.append(words)
            finally:
                os.close(fd)
        return count, who

    def join_queue(self, run: str) -> SlotTicket | None:
        """Take a place at the end of the queue; None if that is not possible."""
        for _ in range(TRIES):
            name = "%d-%s%s" % (os.getuid(), os.urandom(8).hex(), TICKET)
            fd = self._locked(name, fcntl.LOCK_EX)
            if fd is not None:
                self._note(fd, run)
                self._tickets[name] = SlotTicket(name, fd)
                return self._tickets[name]
        return None

    def leave_queue(self, ticket: SlotTicket) -> None:
        self._tickets.pop(ticket.name, None)
        self._unlink(ticket.name)
        os.close(ticket.fd)

    def line(self) -> list[str]:
        """The names of the valid tickets, in order."""
        found: list[tuple[int, str]] = []
        try:
            names = [name for name in os.listdir(self._folder) if name.endswith(TICKET)]
        except OSError:
            return []
        for name in names:
            try:
                made = os.lstat(os.path.join(self._folder, name)).st_ctime_ns
            except OSError:
                continue
            if name in self._tickets or self._is_held(name):
                found.append((made, name))
        return [name for _, name in sorted(found)]

    def _is_held(self, name: str) -> bool:
        try:
            fd = lock_file.open_lock(self._folder, name, make=False, alone=False)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(fd)
        self._unlink(name)  # its holder died; or it is just being made, and is made again
        return False

    def _locked(self, name: str, how: int) -> int | None:
        """None if another process has it, or if it cannot be used: then `trouble` says why."""
        for _ in range(TRIES):
            try:
                fd = lock_file.open_lock(self._folder, name, make=True, alone=False)
            except FileNotFoundError:
                continue  # it was removed while it was made
            except OSError as error:
                self.trouble = self._unusable(name, error)
                return None
            try:
                fcntl.flock(fd, how | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                return None
            if lock_file.is_current(fd, self._folder, name):
                return fd
            os.close(fd)
        return None

    def _note(self, fd: int, run: str) -> None:
        """Write who holds the slot, for people."""
        try:
            if not lock_file.is_alone(fd):
                return  # the name may lead to another of our files
            os.ftruncate(fd, 0)
            os.pwrite(fd, jsontext.encode({"run": run, "uid": os.getuid(), "spool": self._spool}), 0)
        except OSError:
            pass  # the lock counts, not the note

    def _unlink(self, name: str) -> None:
        try:
            os.unlink(os.path.join(self._folder, name))
        except OSError:
            pass  # it belongs to another user, or is gone

    def _unusable(self, name: str, error: OSError) -> str:
        # if no ticket can be created, name the folder: ticket names differ, and the same problem should give the same text
        is_folder = name.endswith(TICKET)
        return "slots of this host cannot be counted: %s cannot be used (%s); an administrator must repair it%s" % (
            self._folder if is_folder else os.path.join(self._folder, name),
            error.strerror or error,
            ", mode 1777" if is_folder else "",
        )


def _name(number: int) -> str:
    return "%d.lock" % number


def _words(fd: int) -> str:
    note: dict[str, Any] = {}
    try:
        note = jsontext.as_object(json.loads(os.pread(fd, MOST_NOTE, 0))) or {}
    except (OSError, ValueError, RecursionError):
        pass
    run = "run %s" % lock_file.plain(note.get("run"))
    uid = note.get("uid")
    return run if uid == os.getuid() else "%s of uid %s" % (run, lock_file.plain(uid))
