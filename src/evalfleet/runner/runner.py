"""The runner: holds the attempts, reaps their processes, and ends when idle."""

from __future__ import annotations

import os
import resource
import signal
import time
import zlib

from . import jsontext
from .attempt import process_tree
from .attempt.attempt import Attempt
from .background import BackgroundWork
from .gpu.devices import Gpus
from .host.lock_file import TOUCH_S
from .loop import READ, Loop
from .protocol import ClientConnection
from .spool.disk_sync import DiskSync
from .spool.move import SpoolMove

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    from .attempt.journal import Journal
    from .host.slots import HostSlots
    from .loop import Timer
    from .protocol import Answer
    from .spool.recovery import LostAttempt, RecoveredAttempts
    from .spool.spool import Spool

    class ClientSocket(Protocol):
        def open(self) -> socket.socket: ...
        def shut(self) -> None: ...
        def reopen(self) -> None: ...
        def close(self) -> None: ...


TICK_S = 0.1
OOM_FRESH_S = 1.0
ACCEPT_AGAIN_S = 1.0
STOP_MESSAGE = "the runner was asked to stop"


class EndedAttempt:
    """An ended attempt that has not been acknowledged."""

    __slots__ = ("journal", "name", "run")
    live = False

    def __init__(self, name: str, run: str, journal: Journal) -> None:
        self.name = name
        self.run = run
        self.journal = journal


class Runner:
    """State of the daemon. Everything runs in its loop's thread."""

    def __init__(
        self,
        spool: Spool,
        listener: ClientSocket,
        version: str,
        idle_s: float,
        recover: Callable[[Iterable[str] | None], RecoveredAttempts],
        now: Callable[[], float],
    ) -> None:
        self.spool = spool
        self.version = version
        self.now = now
        self.boot_id = process_tree.boot_id()
        self.loop = Loop(self._log_failure)
        self.devnull = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self.attempts: dict[str, Attempt | LostAttempt | EndedAttempt] = {}
        self.live: dict[str, Attempt | LostAttempt] = {}
        self.unreadable: dict[str, str] = {}  # attempts that are here and cannot be read, and why
        self._recover = recover
        self.connections: set[ClientConnection] = set()
        self.stopping = False
        self.preemption: str | None = None  # that the machine will be taken away, and when
        self._serve: Callable[[ClientConnection, dict[str, Any]], Answer] = lambda _connection, _message: {}
        self._listener = listener
        self._subreaper = process_tree.become_subreaper()
        self._idle_s = idle_s
        self._idle_timer: Timer | None = None
        self._tick_timer: Timer | None = None
        self._stuck_timer: Timer | None = None
        self._accepted = 0
        self._leaders: dict[int, Attempt] = {}
        self._helpers: set[int] = set()  # children that are no attempt's
        self.gpus = Gpus(self.loop, spool.folder, lambda: bool(self.connections), self._helpers)
        self.in_background = BackgroundWork(self.loop, self._helpers, self._leave_locks).run
        self._owners: dict[int, str] = {}  # strays whose attempt is known
        self._oom: tuple[float, int] = (float("-inf"), 0)
        self._unwritten: list[Journal] = []
        self._cgroups = process_tree.cgroup_base()
        self.save = DiskSync(self.loop).add
        self._files = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._raise_file_limit()
        self._slots: HostSlots | None = None
        self.spool_move = SpoolMove(spool.folder, spool.log)
        self._touch()
        self._take_over(recover(None))
        self._accepting = listener.open()
        self._is_open = True

    @property
    def slots(self) -> HostSlots:
        from .host.slots import HostSlots  # many hosts need none

        if self._slots is None:
            self._slots = HostSlots(self.loop, self.spool.folder, self.live)
        return self._slots

    def _leave_locks(self) -> None:
        """In a forked child: close locks that only the runner and the attempts may hold."""
        self.gpus.leave()
        for fd in self._slots.descriptors if self._slots is not None else ():
            os.close(fd)

    def run(self, serve: Callable[[ClientConnection, dict[str, Any]], Answer]) -> None:
        """Serve until stopped, or idle for long enough."""
        self._serve = serve
        wake = self._catch_signals()
        self.loop.watch(wake, READ, lambda _mask: self._signalled(wake))
        self.loop.watch(self._accepting.fileno(), READ, self._accept)
        self.loop.before_sleep = self._settle
        self.loop.run()
        self._listener.close()
        for connection in list(self.connections):
            connection.close()
        self.spool_move.leave()

    def _touch(self) -> None:
        self.loop.at(time.monotonic() + TOUCH_S, self._touch)
        self.gpus.touch()
        if self._slots is not None:
            self._slots.touch()

    def look_again(self) -> None:
        """Try again to read attempts that could not be read before."""
        if self.unreadable:
            self._take_over(self._recover(sorted(self.unreadable)))

    def _take_over(self, found: RecoveredAttempts) -> None:
        self.unreadable = found.unreadable
        self.attempts.update((attempt.name, attempt) for attempt in found.ended)
        for lost in found.lost:
            self.attempts[lost.name] = self.live[lost.name] = lost
            self.guard(lost, lambda one=lost: one.hand_to(self))

    def adopt(self, attempt: Attempt) -> None:
        """Register a new attempt before it is started."""
        self.attempts[attempt.name] = attempt
        self.live[attempt.name] = attempt

    def started(self, attempt: Attempt) -> None:
        self._leaders[attempt.pid] = attempt

    def ended(self, attempt: Attempt | LostAttempt) -> None:
        self.attempts[attempt.name] = EndedAttempt(attempt.name, attempt.run, attempt.journal)
        del self.live[attempt.name]
        for feed in attempt.feeds:
            feed.connection.feeds.pop(attempt.name, None)
        if attempt.journal.backlog:
            self._unwritten.append(attempt.journal)
        else:
            attempt.journal.close()

    def forget(self, name: str) -> None:
        """Drop an ended attempt that was acknowledged."""
        journal = self.attempts.pop(name).journal
        if journal in self._unwritten:
            self._unwritten.remove(journal)
        journal.close()

    def note_preemption(self, line: str) -> None:
        """The machine will be preempted: launch nothing more, and notify every controller."""
        self.preemption = line
        self.spool.log(line)
        for connection in self.connections:
            if connection.wants_notices:
                connection.send(jsontext.encode({"notice": "doomed", "doomed": line}))

    def strays(self, attempt: Attempt) -> list[int]:
        """Orphans of that attempt among this runner's children."""
        if not self._subreaper:
            return [
                found.pid
                for found in process_tree.all_pids()
                if not found.dead
                and (attempt.mark.is_on(found.pid) or process_tree.marks(found.pid, attempt.name, attempt.folder))
            ]
        found: list[int] = []
        for pid in process_tree.children(os.getpid()):
            if pid in self._leaders or pid in self._helpers:
                continue
            owner = self._owners.get(pid) or self._find_owner(pid, attempt)
            if owner == attempt.name:
                found.append(pid)
        return found

    def oom_kills(self, fresh: bool = False) -> int:
        """The number of out-of-memory kills. A value one second old is good enough for the start of an attempt."""
        now = time.monotonic()
        if fresh or now - self._oom[0] > OOM_FRESH_S:
            self._oom = (now, process_tree.oom_kills())
        return self._oom[1]

    def cgroup(self, attempt: Attempt) -> process_tree.Cgroup | None:
        """A control group with the attempt's process tree, if the host allows one."""
        if self._cgroups is None:
            return None
        spool = zlib.crc32(os.fsencode(self.spool.folder))
        group = process_tree.Cgroup("%s/evalfleet-%08x-%s" % (self._cgroups, spool, attempt.name))
        try:
            # written first: after a crash the next runner must find the group
            with open(attempt.folder + "/cgroup", "x", encoding="utf-8") as file:
                file.write(group.path)
            group.adopt(attempt.pid)
        except OSError as error:
            self.spool.log("no control groups: %s" % error)
            self._cgroups = None
            group.remove()
            return None
        return group

    def limit_files(self, pid: int) -> None:
        """Give a task the original limit of open files, not the runner's raised one."""
        try:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, self._files)
        except (ProcessLookupError, PermissionError):
            pass

    def _find_owner(self, pid: int, ending: Attempt) -> str | None:
        """The attempt that an orphan belongs to: by its mark, session, control group or environment; else the only possible one."""
        found = process_tree.stat_of(pid)
        if found is None or found.dead:
            return None
        candidates = [attempt for attempt in self.live.values() if attempt.pid]
        mark = process_tree.mark_of(pid)
        for attempt in candidates:
            if mark is not None and attempt.mark.number == mark:
                return self._owned(pid, attempt)
        for attempt in candidates:
            if found.session == attempt.pid or (attempt.cgroup and pid in attempt.cgroup.members()):
                return self._owned(pid, attempt)
        marked = process_tree.environment(pid).get(b"EVALFLEET_TASK", b"")
        for attempt in candidates:
            if marked == os.fsencode(attempt.folder + "/task.json"):
                return self._owned(pid, attempt)
        # it hid: it belongs to an attempt that was live when it started. Wait while that is ambiguous.
        age = found.age_s()
        now = time.monotonic()
        older = [attempt for attempt in candidates if now - attempt.begun >= age - 0.05]
        return self._owned(pid, ending) if not older or older == [ending] else None

    def _owned(self, pid: int, attempt: Attempt | LostAttempt) -> str:
        self._owners[pid] = attempt.name
        return attempt.name

    def _reap(self) -> None:
        """Collect every dead child."""
        swept = False
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if found is None:
                break
            pid = found.si_pid
            attempt = self._leaders.get(pid)
            if attempt is not None:
                process_tree.kill_group(pid)  # before it is reaped: until then its pid cannot be reused
            _, status, usage = os.wait4(pid, 0)
            self._helpers.discard(pid)
            if attempt is None:
                swept = True
                self._owners.pop(pid, None)
                continue
            del self._leaders[pid]
            self.guard(attempt, lambda a=attempt, s=status, u=usage: a.exited(s, u.ru_utime + u.ru_stime, u.ru_maxrss))
        if swept:
            for attempt in list(self.live.values()):
                self.guard(attempt, attempt.sweep)

    def guard(self, attempt: Attempt | LostAttempt, call: Callable[[], None]) -> None:
        """Run an action for an attempt; an error ends that attempt, not the runner."""
        try:
            call()
        except Exception as error:  # boundary: an attempt
            self._log_failure(error)
            attempt.fail("the runner failed: %r" % error)

    def _tick(self) -> None:
        self._tick_timer = None
        self.spool_move.follow()
        now = time.monotonic()
        for attempt in list(self.live.values()):
            self.guard(attempt, lambda a=attempt: a.tick(now))
        for journal in list(self._unwritten):
            if journal.flush():
                journal.sync()
                journal.close()
                self._unwritten.remove(journal)

    def stop(self) -> None:
        """End the live attempts, then the runner."""
        if self.stopping:
            return
        self.stopping = True
        self._shut()
        for attempt in list(self.live.values()):
            attempt.stop("runner_lost", STOP_MESSAGE)

    def _shut(self) -> None:
        """Accept no more clients; new ones wait for the next runner."""
        self._is_open = False
        self._listener.shut()
        self.loop.forget(self._accepting.fileno())
        try:
            while True:
                self._accepting.accept()[0].close()  # came while we shut it
        except OSError:
            pass

    def _reopen(self) -> None:
        """The disk has no space for an end record that only this runner knows: accept clients again, so that they can get it."""
        self._is_open = True
        self._listener.reopen()
        self.loop.watch(self._accepting.fileno(), READ, self._accept)
        self.spool.log("cannot end: no disk space for %d end records" % len(self._unwritten))

    def _settle(self) -> None:
        """Before each sleep: send what is queued, and set the timers."""
        for connection in list(self.connections):
            connection.flush()
        if self.live or self._unwritten:
            if self._tick_timer is None:
                now = time.monotonic()
                soonest = min((attempt.next_at() for attempt in self.live.values()), default=now + TICK_S)
                self._tick_timer = self.loop.at(max(now + 0.005, min(now + TICK_S, soonest)), self._tick)
            if self.stopping and not self.live and not self._is_open:
                self._reopen()
        elif self.stopping:
            self._leave()
            return
        if self._stuck_timer is None and any(connection.blocked for connection in self.connections):
            self._stuck_timer = self.loop.at(time.monotonic() + 5.0, self._unstick)
        self._mind_idleness()

    def _leave(self) -> None:
        # answers and last events still leave; a client that does not read cannot hold us
        if any(connection.blocked for connection in self.connections) and self._stuck_timer is None:
            self._stuck_timer = self.loop.at(time.monotonic() + 2.0, self.loop.stop)
        elif not any(connection.blocked for connection in self.connections):
            self.loop.stop()

    def _unstick(self) -> None:
        self._stuck_timer = None  # the flush that follows closes who is stuck

    def _mind_idleness(self) -> None:
        if self.connections or self.live:
            if self._idle_timer is not None:
                self._idle_timer.cancel()
                self._idle_timer = None
        elif self._idle_timer is None:
            self._idle_timer = self.loop.at(time.monotonic() + self._idle_s, self._idle)

    def _idle(self) -> None:
        if not self.connections and not self.live:
            self.spool.mark_reapable(self.now())
            self.spool.log("idle for %g s: ending" % self._idle_s)
            self.stop()

    def _accept(self, _mask: int) -> None:
        try:
            sock, _ = self._accepting.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:  # out of descriptors or memory: look again later instead of at once
            self.spool.log("cannot accept: %s" % error)
            self.loop.unwatch(self._accepting.fileno())
            self.loop.at(time.monotonic() + ACCEPT_AGAIN_S, self._accept_again)
            return
        self._accepted += 1
        self.connections.add(ClientConnection(sock, self.loop, self._serve, self._closed, self._accepted))

    def _relisten(self) -> None:
        """Listen again after the socket's folder was cleaned up, as a logout does with the runtime folder."""
        self.loop.forget(self._accepting.fileno())
        self._accepting.close()
        self._accepting = self._listener.open()
        self._accept_again()

    def _accept_again(self) -> None:
        if self._is_open:
            self.loop.forget(self._accepting.fileno())
            self.loop.watch(self._accepting.fileno(), READ, self._accept)

    def _closed(self, connection: ClientConnection) -> None:
        self.connections.discard(connection)
        if self._slots is not None:
            self._slots.leave(connection)
        if not self.connections:
            self.spool.wanted.clear()  # who comes next asks again
        for name, feed in connection.feeds.items():
            attempt = self.live.get(name)
            if attempt is not None and feed in attempt.feeds:
                attempt.feeds.remove(feed)

    def _catch_signals(self) -> int:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        # handlers, not SIG_IGN: an ignored signal would stay ignored in every task
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: None)
        return reader

    def _signalled(self, wake: int) -> None:
        numbers = os.read(wake, 4096)
        if signal.SIGHUP in numbers and not self.stopping:
            self._relisten()
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self.stop()
        self._reap()

    def _raise_file_limit(self) -> None:
        soft, hard = self._files
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 1 << 20, hard))
        except (ValueError, OSError):
            self._files = (soft, hard)

    def _log_failure(self, error: Exception) -> None:
        import traceback  # rarely needed

        self.spool.log("".join(traceback.format_exception(type(error), error, error.__traceback__)))
