"""Recovers the attempts of a runner that died."""

from __future__ import annotations

import os
import time

from .. import jsontext
from ..attempt import process_tree
from ..attempt.collect import AttemptFiles, sync
from ..attempt.journal import Journal
from ..attempt.output import TAIL_BYTES, last_lines
from ..redact import Redactor
from ..runner import EndedAttempt
from ..safe_files import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    from ..protocol import EventFeed
    from .spool import Spool

    class _Runner(Protocol):
        """What a lost attempt needs from its new runner."""

        def ended(self, attempt: LostAttempt) -> None: ...
        def save(self, save: Callable[[], None], saved: Callable[[], None]) -> None: ...
        def in_background(
            self, work: Callable[[], dict[str, Any]], done: Callable[[dict[str, Any] | None], None], patience_s: float
        ) -> None: ...


KILL_S = 20.0
AGAIN_S = 1.0  # between two tries to end a lost attempt
UNCLEAR_S = 1.0  # how long a process that is becoming another program may hide what it is
MESSAGE = "the runner died under the attempt"


class RecoveredAttempts:
    """The attempts found in a spool."""

    def __init__(self) -> None:
        self.ended: list[EndedAttempt] = []
        self.lost: list[LostAttempt] = []
        self.unreadable: dict[str, str] = {}  # attempts that cannot be read now, and why; their folders are kept


class LostAttempt:
    """An attempt without an end record: its processes are dead, and its files are still to be collected.

    A few files are collected at once; many are collected while the runner already serves, because that may take longer than a client
    waits for a runner to start. The attempt is live until its end is on disk.
    """

    live = True
    pid = 0  # none of its processes lives

    def __init__(
        self, name: str, folder: str, lines: list[dict[str, Any]], size: int, now: Callable[[], float]
    ) -> None:
        self.name = name
        self.folder = folder
        self.feeds: list[EventFeed] = []
        self.begun = time.monotonic()
        self._now = now
        self._runner: _Runner | None = None
        self._is_collecting = False
        self._end: dict[str, Any] | None = None  # held in the journal
        self._is_saving = False
        self._again_at = 0.0
        self.run = str(lines[0].get("run"))
        self.secret_names: list[str] = lines[0].get("secrets") or []
        spec = jsontext.as_object(lines[0].get("spec")) or {}
        self.gpus: list[str] = [gpu["uuid"] for gpu in jsontext.as_list(spec.get("gpus")) or []]
        self.dirty: list[dict[str, Any]] = []
        self.secrets: dict[str, str] = {}
        self.journal = Journal(folder + "/journal.jsonl", name, now, len(lines), size)
        found = {line.get("type"): line for line in lines}
        self.started: dict[str, Any] = found.get("started") or {}
        self.ready: dict[str, Any] = found.get("ready") or {}
        self.progress: dict[str, Any] = found.get("progress") or {}
        self.mark = process_tree.ProcessMark(folder)
        self.first_at = float(lines[0].get("at") or 0.0)
        self.last_at = float(lines[-1].get("at") or 0.0)
        group = _group_in(folder + "/cgroup")
        # In a copy of a spool these are the original's: its processes live under another runner, which alone may end them.
        self.named = isinstance(
            lines[0].get("file"), list
        )  # the journals of older runners do not say which file they are
        self.copied = self.named and _is_copy(lines[0]["file"], self.journal.path)
        ours = not self.copied and "/evalfleet-" in group and group.endswith("-" + name)
        self.cgroup = process_tree.Cgroup(group) if ours else None

    # What the runner asks of whatever is live

    def tick(self, now: float) -> None:
        """Continue with what is left to do. May be called again after it raised."""
        if now < self._again_at or self._runner is None:
            return
        self._again_at = now + AGAIN_S
        if self._end is None and not self._is_collecting:
            self._collect(self._runner)
        elif self._end is not None and not self._is_saving:
            self._runner.save(self._save, self._saved)
            self._is_saving = True

    def next_at(self) -> float:
        return self._again_at

    def sweep(self) -> None:
        """Nothing to do: its processes are dead."""

    def stop(self, _cause: str, _message: str | None = None) -> None:
        """It is over."""

    def fail(self, message: str) -> None:
        """`tick` tries again."""

    def hand_to(self, runner: _Runner) -> None:
        """Give it to this runner, which ends it at once if that is quick."""
        self._runner = runner
        files = AttemptFiles(self.folder, Redactor(self.secrets))
        if files.heavy():
            files.close()
            return
        verdict = files.verdict(self._is_in_doubt)
        self._close(files, dict(verdict, **files.collect(self._is_in_doubt)))
        self._save()
        self._saved()

    # Its processes

    def leads(self, found: process_tree.ProcessStat, boot: str) -> bool:
        """Whether a process is in the session or group of the process in the journal."""
        leader = self.started.get("pid")
        if leader not in (found.group, found.session) or self.started.get("boot_id") != boot or self.copied:
            return False
        first = found if found.pid == leader else process_tree.stat_of(int(leader))
        if first is None or first.start_time != self.started.get("start_time"):
            return False
        marked = None if self.named else process_tree.environment(first.pid).get(b"EVALFLEET_TASK")
        return marked is None or marked == os.fsencode(self.folder + "/task.json")

    def learn_secrets(self, pid: int) -> None:
        """Read the secrets from a living process of the attempt; they are stored nowhere else."""
        known = process_tree.environment(pid)
        for name in self.secret_names:
            if name.encode() in known and name not in self.secrets:
                self.secrets[name] = known[name.encode()].decode("utf-8", "surrogateescape")

    # Its end

    @property
    def _is_in_doubt(self) -> bool:
        """Whether it had secrets that are no longer known."""
        return any(name not in self.secrets for name in self.secret_names)

    def _collect(self, runner: _Runner) -> None:
        files = AttemptFiles(self.folder, Redactor(self.secrets))
        verdict = files.verdict(self._is_in_doubt)

        def done(record: dict[str, Any] | None) -> None:
            self._is_collecting = False
            why = "the files could not be collected"
            self._close(files, dict(verdict, **(files.uncollected(why) if record is None else record)))

        runner.in_background(lambda: files.collect(self._is_in_doubt), done, files.patience_s())
        self._is_collecting = True

    def _close(self, files: AttemptFiles, record: dict[str, Any]) -> None:
        now = self._now()
        begun = self.started.get("at")
        end: dict[str, Any] = {
            "cause": "runner_lost", "exit_code": None, "signal": None, "message": MESSAGE, "errno": None, "oom": False, "disk_full": False,
            "steps": self.progress.get("step"), "reported_usd": self.progress.get("cost_usd") or 0.0,
            "started_at": begun, "ready_at": self.ready.get("at"), "ended_at": round(now, 6),
            "duration_s": round(max(0.0, now - begun), 3) if begun else 0.0,
            "idle_s": round(max(0.0, now - self.last_at), 3),
            "tail": Redactor(self.secrets).text(_tail(self.folder)), "cpu_s": None, "max_rss_mb": None,
        }  # fmt: skip
        end.update(record)
        files.close()
        if self.dirty:
            end["gpus_dirty"] = self.dirty
        self.journal.resume()
        self.journal.hold("ended", end)
        self._end = end
        self._again_at = 0.0

    def _save(self) -> None:
        self.journal.sync()
        sync(self.folder)

    def _saved(self) -> None:
        line = self.journal.release()
        self.live = False
        if self._runner is not None:
            self._runner.ended(self)
        for feed in self.feeds:
            feed.push(line)
        if self.cgroup:
            self.cgroup.remove()


def recover(spool: Spool, now: Callable[[], float], names: Iterable[str] | None = None) -> RecoveredAttempts:
    """Find the attempts of the spool, and end the processes of those whose runner died. `now` is the runner's clock.

    One bad attempt never makes it fail. An attempt that cannot be read may have ended well: its folder is not touched.

    Args:
        names: look at these only.
    """
    found = RecoveredAttempts()
    for name in sorted(os.listdir(spool.attempts) if names is None else names):
        try:
            one = _load(name, spool.attempt(name), now)
        except OSError as error:
            spool.log("cannot read attempt %s, which is kept: %s" % (name, error))
            found.unreadable[name] = str(error)
            continue
        if one is None:
            spool.log("removing %s: it was never launched" % name)
            spool.discard(name)
        elif isinstance(one, LostAttempt):
            spool.log("attempt %s: %s" % (name, MESSAGE))
            found.lost.append(one)
        else:
            found.ended.append(one)
    ours = [attempt for attempt in found.lost if not attempt.copied]
    if ours:
        _kill(ours, now() - min(attempt.first_at for attempt in ours))
        _free_gpus(ours, spool)
    return found


def _is_copy(file: list[int], path: str) -> bool:
    """Whether a journal is a copy: it is not the file that it names."""
    found = os.stat(path)
    return file != [found.st_dev, found.st_ino]


def _group_in(path: str) -> str:
    """The recorded path of the control group; empty if there is none."""
    try:
        with open(open_regular(path), "rb") as file:
            return file.read(4096).decode("utf-8", "replace")
    except OSError:
        return ""


def _load(name: str, folder: str, now: Callable[[], float]) -> EndedAttempt | LostAttempt | None:
    """Load an attempt; None if it was never launched.

    Raises:
        OSError: it cannot be read.
    """
    path = folder + "/journal.jsonl"
    try:
        with open(open_regular(path), "rb") as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    lines, size = _good_lines(data)
    if not lines:
        return None
    if lines[-1].get("type") == "ended":
        return EndedAttempt(name, str(lines[0].get("run")), Journal(path, name, now, int(lines[-1]["event"]) + 1, size))
    return LostAttempt(name, folder, lines, size, now)


def _good_lines(data: bytes) -> tuple[list[dict[str, Any]], int]:
    """The events before the first incomplete or damaged line, and their size in bytes.

    For an ended attempt, only the first and the last event are read.
    """
    raw = data.split(b"\n")
    if len(raw) > 2 and not raw[-1]:
        first, last = _event(raw[0]), _event(raw[-2])
        if first and last and last.get("type") == "ended" and last.get("event") == len(raw) - 2:
            return [first, last], len(data)
    lines: list[dict[str, Any]] = []
    size = 0
    for line in raw[:-1]:
        event = _event(line)
        if event is None or event.get("event") != len(lines):
            break
        lines.append(event)
        size += len(line) + 1
    return lines, size


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        return jsontext.as_object(jsontext.parse_own(line))
    except ValueError:
        return None


def _kill(lost: list[LostAttempt], age_s: float) -> None:
    """Kill until a scan of all processes finds none of theirs. `age_s`: how long ago the first of them was launched."""
    begun = time.monotonic()
    for attempt in lost:
        if attempt.cgroup:
            for pid in attempt.cgroup.members():
                attempt.learn_secrets(pid)
            attempt.cgroup.kill()
    while time.monotonic() < begun + KILL_S:
        found, unclear = _survivors(lost, age_s)
        if not found and (not unclear or time.monotonic() > begun + UNCLEAR_S):
            return
        for pid, attempt in found:
            attempt.learn_secrets(pid)
            process_tree.kill(pid)
        time.sleep(0.01)


def _free_gpus(lost: list[LostAttempt], spool: Spool) -> None:
    """Kill processes that still hold the lock of a lost attempt's GPU, and record those that cannot be killed."""
    for attempt in lost:
        for uuid in attempt.gpus:
            from ..gpu.locks import end_orphans  # few hosts have GPUs

            left = end_orphans(spool.folder, uuid, KILL_S / 4)
            if left is not None:
                reason = "it is locked by %s" % left.words
                attempt.dirty.append({"uuid": uuid, "index": None, "reason": reason, "pids": left.pids})


def _survivors(lost: list[LostAttempt], age_s: float) -> tuple[list[tuple[int, LostAttempt]], bool]:
    """Living processes of lost attempts, and whether there may be more. Scans each process once, however many attempts were lost."""
    boot = process_tree.boot_id()
    leaders = {attempt.started.get("pid"): attempt for attempt in lost}
    tasks = {os.fsencode(attempt.folder + "/task.json"): attempt for attempt in lost}
    marks = {attempt.mark.number: attempt for attempt in lost}
    alive: list[tuple[int, LostAttempt]] = []
    unclear = False
    for found in process_tree.all_pids():
        if found.dead or found.pid == os.getpid():
            continue
        owner = marks.get(process_tree.mark_of(found.pid) or 0)
        if owner is None:
            owner = leaders.get(found.session) or leaders.get(found.group)
            owner = owner if owner is not None and owner.leads(found, boot) else None
        if owner is None:
            known = process_tree.environment(found.pid)
            owner = tasks.get(known.get(b"EVALFLEET_TASK", b""))
            if owner is None or not process_tree.marks(found.pid, owner.name, owner.folder):
                unclear = unclear or _may_become_one(found, known, age_s)
                continue
        alive.append((found.pid, owner))
    return alive, unclear


def _may_become_one(found: process_tree.ProcessStat, known: dict[bytes, bytes], age_s: float) -> bool:
    """Whether a process without a mark may be about to get one.

    During an exec the environment of a process cannot be read; and a child of the dead runner that has not exec'ed its command yet
    still looks like that runner.
    """
    if found.is_kernel or found.age_s() > age_s + 1.0 or not process_tree.is_ours(found.pid):
        return False
    left_behind = found.is_copy and found.parent != os.getpid()
    return not known or (left_behind and process_tree.command_line(found.pid) == process_tree.command_line(os.getpid()))


def _tail(folder: str) -> str:
    for name in ("stderr.log", "stdout.log"):
        try:
            with open(open_regular(os.path.join(folder, name)), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
                data = file.read(TAIL_BYTES)
        except OSError:
            continue
        if data.strip():
            return last_lines(data)
    return ""
