"""One attempt from launch to end record."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from .. import states
from ..loop import READ
from . import process_tree
from .collect import AttemptFiles, sync
from .event_file import BATCH_BYTES, BATCH_LINES, EventFile
from .limits import NEVER, AttemptLimits
from .output import OutputLog, last_lines
from .states import COLLECTING, EDGES, ENDED, ENDING, RUNNING, SAVING, SETTLING, SWEEPING, WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from ..gpu.devices import Gpus
    from ..gpu.lease import AttemptGpus
    from ..host.slots import HostSlots, SlotLease
    from ..loop import Loop
    from ..protocol import EventFeed
    from ..redact import Redactor
    from .journal import Journal
    from .spec import AttemptSpec

    class _Runner(Protocol):
        """What an attempt needs from its runner."""

        loop: Loop
        devnull: int
        boot_id: str
        now: Callable[[], float]
        gpus: Gpus

        @property
        def slots(self) -> HostSlots: ...
        def started(self, attempt: Attempt) -> None: ...
        def ended(self, attempt: Attempt) -> None: ...
        def strays(self, attempt: Attempt) -> list[int]: ...
        def oom_kills(self, fresh: bool = False) -> int: ...
        def guard(self, attempt: Attempt, call: Callable[[], None]) -> None: ...
        def cgroup(self, attempt: Attempt) -> process_tree.Cgroup | None: ...
        def limit_files(self, pid: int) -> None: ...
        def save(self, save: Callable[[], None], saved: Callable[[], None]) -> None: ...
        def in_background(
            self, work: Callable[[], dict[str, Any]], done: Callable[[dict[str, Any] | None], None], patience_s: float
        ) -> None: ...


BATCH_S = 0.25
CGROUP_AFTER_S = 1.0  # a group costs more than many a short task
SWEEP_S = 30.0
DOUBT_S = 1.0  # a shutdown signals processes one after the other: the runner may be next
MAX_BACKLOG = 256


class Attempt:
    """A live attempt: its process tree, pipes, limits and journal. Driven by the runner's loop."""

    def __init__(
        self, runner: _Runner, name: str, run: str, folder: str, spec: AttemptSpec, redactor: Redactor, journal: Journal
    ) -> None:
        self.name = name
        self.run = run
        self.folder = folder
        self.journal = journal
        self.feeds: list[EventFeed] = []
        self.pid = 0
        self.state = WAITING
        self.cgroup: process_tree.Cgroup | None = None
        self.mark = process_tree.ProcessMark(folder)
        self._runner = runner
        self._spec = spec
        self._redactor = redactor
        self._outputs: list[OutputLog] = []
        self._watched: set[int] = set()
        self._events = EventFile(folder + "/events.jsonl", redactor)
        self._begun = time.monotonic()
        self._limits = AttemptLimits(spec, self._begun)
        self._kill_at = NEVER
        self._exited_at = self._begun
        self._give_up_at = NEVER
        self._doubt_until = 0.0
        self._killed = False
        self._grouped = False
        self.slots: int | None = None  # how many the host has; None: they are not counted
        self.start_by = NEVER  # monotonic time: it does not start later than this without a connected controller
        self._slot: SlotLease | None = None
        self._lease: AttemptGpus | None = None  # of GPUs
        self._files: AttemptFiles | None = None
        self._oom_before = 0
        self._is_held = False  # the end record is in the journal
        self._is_saving = False  # it is being written to the disk
        self._end: dict[str, Any] = {
            "cause": None, "exit_code": None, "signal": None, "message": None, "errno": None, "oom": False, "disk_full": False,
            "result": None, "has_result": False, "result_error": None, "steps": None, "reported_usd": 0.0,
            "started_at": None, "ready_at": None, "ended_at": None, "duration_s": 0.0, "idle_s": 0.0, "tail": "",
            "cpu_s": None, "max_rss_mb": None, "artifacts": [],
        }  # fmt: skip

    @property
    def live(self) -> bool:
        return self.state != ENDED

    @property
    def begun(self) -> float:
        """Monotonic time of the launch."""
        return self._begun

    def _move(self, state: str) -> None:
        self.state = states.moved(EDGES, self.state, state)

    def emit(self, kind: str, fields: dict[str, Any]) -> None:
        """Journal an event, then pass it on."""
        self._pass_on(self.journal.append(kind, fields))

    def _pass_on(self, line: bytes) -> None:
        for feed in self.feeds:
            feed.push(line)

    def start(self, secrets: dict[str, str]) -> None:
        """Start the process, after waiting for a slot and GPUs if it needs them. A failure to start ends the attempt; nothing is
        raised."""
        if self.state != WAITING:
            return  # it was stopped before it began
        if self.slots is None:
            self._lease_gpus(secrets, [])
            return

        def go(lock: int) -> None:
            self._runner.guard(self, lambda: self._lease_gpus(secrets, [lock]))

        self._slot = self._runner.slots.lease(self.run, self.slots, go)
        self._slot.begin()

    def _lease_gpus(self, secrets: dict[str, str], held: list[int]) -> None:
        own = self._spec.environment(self.folder, self.name, secrets)
        if not self._spec.gpus:
            self._run(own, held)
            return

        def go(env: dict[str, str], locks: list[int]) -> None:
            self._runner.guard(self, lambda: self._run(dict(own, **env), [*held, *locks]))

        self._lease = self._runner.gpus.lease(self.name, self._spec, go, lambda why: self._unstarted("gpu_taken", why))
        self._lease.begin()

    def _free_slot(self) -> None:
        """Release the slot after the process tree is dead. A process that inherited the lock and still lives keeps the slot."""
        if self._slot is not None:
            self._slot.give_back()

    def _run(self, env: dict[str, str], inherited: list[int]) -> None:
        self._move(RUNNING)
        self._oom_before = self._runner.oom_kills()
        self._begun = time.monotonic()
        self._limits = AttemptLimits(self._spec, self._begun)
        self._end["started_at"] = round(self._runner.now(), 6)
        before_ns = process_tree.boottime_ns()
        try:
            self._spawn(env, inherited)
        except OSError as error:
            words = error.strerror or str(error)
            message = "%s: %r" % (words, os.fsdecode(error.filename)) if error.filename else words
            self._end.update(errno=error.errno, started_at=None)
            self._unstarted("launch_failed", message)
            return
        self._runner.limit_files(self.pid)
        self._runner.started(self)
        for output in self._outputs:
            self._watch(output)
        born = process_tree.start_time(self.pid, before_ns)
        self.emit("started", {"pid": self.pid, "start_time": born, "boot_id": self._runner.boot_id})

    def _unstarted(self, cause: str, message: str | None) -> None:
        """End an attempt whose process never started."""
        self._end.update(cause=cause, message=message)
        if self._lease is not None:
            self._lease.give_back()
        self._finish()

    def stop(self, cause: str, message: str | None = None) -> None:
        """Begin to end the process tree, unless that has begun."""
        if self.state == WAITING:
            self._unstarted(cause, message)
        if self.state == SWEEPING and self._doubt_until and cause == "runner_lost":
            self._doubt_until = 0.0
            self._end.update(cause=cause, message=message)  # what ended it ends us, too
        if self.state != RUNNING:
            return
        self._move(ENDING)
        now = time.monotonic()
        self._end.update(cause=cause, message=message, idle_s=round(self._limits.idle_s(now), 3))
        self._kill_at = now + self._spec.grace_s
        process_tree.kill_group(self.pid, signal.SIGTERM)
        process_tree.kill_group(self.pid, signal.SIGCONT)  # a stopped process would not hear it
        if self._spec.grace_s <= 0:
            self._kill()

    def fail(self, message: str) -> None:
        """An error in the runner itself: end the attempt with what is known."""
        if self.state in (RUNNING, ENDING) and self.pid:
            self.stop("runner_lost", message)
        elif self.state == COLLECTING and self._files is not None:
            self._close(self._files.uncollected(message))  # how it ended is known
        elif self.state == SAVING and not self._is_held:
            # its record could not be written as it is; `tick` tries again with less
            self._end.update(result=None, has_result=False, result_error=message, artifacts=[], tail="")
        elif self.state not in (SAVING, ENDED):
            self._end["cause"] = "runner_lost"
            self._end["message"] = message
            if self._lease is not None:
                self._lease.give_back()
            self._close({"result_error": message})

    def exited(self, status: int, cpu_s: float, max_rss_kb: int) -> None:
        """The leader was reaped. Its group was killed before, while its pid could not be reused."""
        now = time.monotonic()
        end = self._end
        if self.state == RUNNING:
            end["cause"] = "exited"
        if os.WIFSIGNALED(status):
            end["signal"] = os.WTERMSIG(status)
            if end["cause"] == "exited" and end["signal"] == signal.SIGTERM:
                self._doubt_until = now + DOUBT_S
        else:
            end["exit_code"] = os.WEXITSTATUS(status)
        end.update(ended_at=round(self._runner.now(), 6), duration_s=round(now - self._begun, 6))
        end.update(cpu_s=round(cpu_s, 6), max_rss_mb=round(max_rss_kb / 1024, 3))
        self._move(SWEEPING)
        self._exited_at = now
        self._give_up_at = now + SWEEP_S
        self.sweep()

    def sweep(self) -> None:
        """Kill what remains of the process tree; finish when nothing is left."""
        if self.state != SWEEPING:
            return
        strays = self._runner.strays(self)
        members = self.cgroup.members() if self.cgroup else []
        if (strays or members) and time.monotonic() < self._give_up_at:
            if self.cgroup:
                self.cgroup.kill()
            for pid in strays:
                process_tree.kill(pid)
            return
        if time.monotonic() < self._doubt_until:
            return
        if strays or members:
            left = ", ".join(str(pid) for pid in sorted({*strays, *members}))
            self._end["message"] = "could not be killed within %d s: process %s" % (SWEEP_S, left)
        if self._lease is None:
            self._finish()
            return
        self._move(SETTLING)
        self._lease.settle(lambda dirty: self._runner.guard(self, lambda: self._settled(dirty)))

    def _settled(self, dirty: list[dict[str, Any]]) -> None:
        if dirty:
            self._end["gpus_dirty"] = dirty
        self._finish()

    def tick(self, now: float) -> None:
        """Check the events file and the limits."""
        if self.state == RUNNING:
            self._follow(now)
            cause = self._limits.broken(now)
            if cause is not None:
                self.stop(cause)
            elif not self._grouped and now - self._begun >= CGROUP_AFTER_S:
                self._grouped = True
                self.cgroup = self._runner.cgroup(self)
        elif self.state == ENDING:
            if now >= self._kill_at:
                self._kill_at = NEVER
                self._kill()
        elif self.state == SWEEPING:
            self.sweep()
        elif self.state == WAITING:
            if now >= self.start_by and not self.feeds:
                self._unstarted("expired", "its controller disconnected before it could start")
        elif self.state == SAVING:
            self._hand_in()  # again, if that failed: nothing else retries it

    def next_at(self) -> float:
        """The time of the next limit."""
        return self._limits.next_at() if self.state == RUNNING else self._kill_at

    def _spawn(self, env: dict[str, str], inherited: list[int]) -> None:
        pipes: list[int] = []
        try:
            pipes += os.pipe()
            pipes += os.pipe()
            with self.mark:
                process = subprocess.Popen(
                    self._spec.words(),
                    stdin=self._runner.devnull,
                    stdout=pipes[1],
                    stderr=pipes[3],
                    cwd=self._spec.cwd or self.folder + "/work",
                    env=env,
                    pass_fds=inherited,
                    start_new_session=True,
                )
        except OSError:
            for fd in pipes:
                os.close(fd)
            raise
        os.close(pipes[1])
        os.close(pipes[3])
        self.pid = process.pid
        process.returncode = 0  # the runner reaps; Popen must not try
        self._outputs = [
            OutputLog(pipes[0], self.folder + "/stdout.log", self._redactor),
            OutputLog(pipes[2], self.folder + "/stderr.log", self._redactor),
        ]

    def _watch(self, output: OutputLog) -> None:
        def readable(_mask: int) -> None:
            count = output.read()
            if count == 0:
                self._watched.discard(output.fd)
                self._runner.loop.unwatch(output.fd)
            elif count and self._spec.output_is_progress:
                self._limits.progress(time.monotonic())

        self._watched.add(output.fd)
        self._runner.loop.watch(output.fd, READ, readable)

    def _kill(self) -> None:
        self._killed = True
        if self.cgroup:
            self.cgroup.kill()
        process_tree.kill_group(self.pid)

    def _follow(self, now: float) -> None:
        if self._events.poll(now):
            self._limits.progress(now)
            self._limits.reported(self._events.usd)
            self._note_ready(now)
        batch = self._events
        if batch.batch and (
            len(batch.batch) >= BATCH_LINES
            or batch.batch_bytes >= BATCH_BYTES
            or now - batch.batch_at >= BATCH_S - 0.05
        ):
            self._pass_lines()

    def _note_ready(self, now: float) -> None:
        if self._events.ready and self._end["ready_at"] is None:
            self._end["ready_at"] = round(self._runner.now(), 6)
            self._limits.ready(now)
            self.emit("ready", {})
            if self._lease is not None:
                self._lease.ready()

    def _pass_lines(self) -> None:
        fields = self._events.take()
        if len(self.journal.backlog) > MAX_BACKLOG:
            return  # the disk is full for long: keep the end record, let the chatter go
        lines = fields["lines"]
        for first in range(0, max(1, len(lines)), BATCH_LINES):
            self.emit("progress", dict(fields, lines=lines[first : first + BATCH_LINES]))

    def _finish(self) -> None:
        """The process tree is dead: collect its result and artifacts."""
        self._move(COLLECTING)
        self._free_slot()
        now = time.monotonic()
        for output in self._outputs:
            if output.fd in self._watched:
                self._runner.loop.unwatch(output.fd)
            if output.drain() and self._spec.output_is_progress:
                self._limits.progress(self._exited_at)
        if self._events.drain(now):
            self._limits.progress(self._exited_at)
            self._note_ready(self._exited_at)
        if self._end["cause"] == "exited":
            self._end["idle_s"] = round(self._limits.idle_s(self._exited_at), 3)
        if self._events.batch or self._events.dropped:
            self._pass_lines()
        files = AttemptFiles(self.folder, self._redactor)
        self._end.update(files.verdict())  # first: nothing that happens to its files may take its verdict
        self._files = files
        if not files.heavy():
            self._close(files.collect())
            return

        def done(record: dict[str, Any] | None) -> None:
            if self.state == COLLECTING:  # else it failed meanwhile, and its end is known
                self._close(files.uncollected("the files could not be collected") if record is None else record)

        try:
            self._runner.in_background(files.collect, done, files.patience_s())
        except OSError:  # no process to be had
            done(None)

    def _close(self, collected: dict[str, Any]) -> None:
        """Write the end record; it is sent once it is on disk."""
        self._free_slot()
        end = self._end
        end.update(collected)
        if self._files is not None:
            self._files.close()
        end.update(steps=self._events.step, reported_usd=round(self._events.usd, 9))
        if end["ended_at"] is None:
            end["ended_at"] = round(self._runner.now(), 6)
        tails = [output.tail() for output in reversed(self._outputs)]
        end["tail"] = last_lines(next((tail for tail in tails if tail.strip()), b""))
        end["disk_full"] = self.journal.disk_full or any(output.disk_full for output in self._outputs)
        end["oom"] = self._was_oom()
        self._move(SAVING)
        self._hand_in()

    def _hand_in(self) -> None:
        """Save the end record, unless that is in progress. May be called again after it raised."""
        if not self._is_held:
            self.journal.hold("ended", self._end)
            self._is_held = True
        if not self._is_saving:
            self._runner.save(self._save, self._saved)
            self._is_saving = True

    def _save(self) -> None:
        self.journal.sync()
        sync(self.folder)

    def _saved(self) -> None:
        self._move(ENDED)
        line = self.journal.release()
        self._runner.ended(self)  # first: whatever goes wrong after it keeps nothing alive
        self._pass_on(line)
        if self.cgroup:
            self.cgroup.remove()

    def _was_oom(self) -> bool:
        if self.cgroup and self.cgroup.was_oom():
            return True
        # 137 is how a shell passes on that its child was killed
        shot = self._end["signal"] == signal.SIGKILL or self._end["exit_code"] == 128 + signal.SIGKILL
        return bool(shot and not self._killed and self._runner.oom_kills(fresh=True) > self._oom_before)
