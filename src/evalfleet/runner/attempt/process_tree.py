"""Process trees: which processes belong to an attempt, and how they are killed.

A pid alone does not identify a process: pid, start time and boot id together do.
"""

from __future__ import annotations

import os
import resource
import signal
import time
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PR_SET_CHILD_SUBREAPER = 36
PF_FORKNOEXEC, PF_KTHREAD = 0x40, 0x200000
MARKED = 1 << 52  # in microseconds
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def become_subreaper() -> bool:
    """Make orphans below this process its children, so that it can find and reap them."""
    try:
        import ctypes  # not every Python has it

        return ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        return False


def read(path: str, limit: int = 1 << 20) -> bytes:
    """Read a small file of /proc or /sys; empty if it is gone or not readable."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        data = os.read(fd, limit)
        while data and len(data) < limit:
            more = os.read(fd, limit - len(data))
            if not more:
                break
            data += more
        return data
    except OSError:
        return b""
    finally:
        os.close(fd)


def boot_id() -> str:
    return read("/proc/sys/kernel/random/boot_id").decode().strip()


class ProcessStat:
    """The fields of /proc/<pid>/stat that identify a process."""

    __slots__ = ("flags", "group", "parent", "pid", "session", "start_time", "state")

    def __init__(self, pid: int, data: bytes) -> None:
        fields = data[data.rindex(b")") + 2 :].split()
        self.pid = pid
        self.state = fields[0].decode()
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.session = int(fields[3])
        self.flags = int(fields[6])
        self.start_time = int(fields[19])

    @property
    def dead(self) -> bool:
        return self.state in "ZXx"

    @property
    def is_kernel(self) -> bool:
        """Whether it is a kernel thread; those have no environment."""
        return bool(self.flags & PF_KTHREAD)

    @property
    def is_copy(self) -> bool:
        """Whether it still runs the program of its parent (forked, but not yet exec'ed)."""
        return bool(self.flags & PF_FORKNOEXEC)

    def age_s(self) -> float:
        return boottime_ns() / 1e9 - self.start_time / CLOCK_TICKS


def stat_of(pid: int) -> ProcessStat | None:
    data = read("/proc/%d/stat" % pid, 4096)
    return ProcessStat(pid, data) if data else None


def boottime_ns() -> int:
    """The clock of the kernel's process start times."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def start_time(pid: int, after_ns: int) -> int:
    """Start time, in kernel ticks, of a child that was started between `after_ns` and now; 0 if it is gone already.

    Both times are mostly in the same tick, which is then the answer without /proc: reading /proc of a process in the middle of an
    exec takes as long as starting it.
    """
    tick_ns = 1_000_000_000 // CLOCK_TICKS
    first, last = after_ns // tick_ns, boottime_ns() // tick_ns
    if first == last:
        return first
    found = stat_of(pid)
    return found.start_time if found else 0


def is_same(pid: int, start_time: int, boot: str) -> bool:
    """Whether exactly that process still runs."""
    found = stat_of(pid)
    return boot == boot_id() and found is not None and not found.dead and found.start_time == start_time


def environment(pid: int) -> dict[bytes, bytes]:
    pairs = (item.partition(b"=") for item in read("/proc/%d/environ" % pid, 4 << 20).split(b"\0"))
    return {name: value for name, _, value in pairs if name}


def marks(pid: int, attempt: str, folder: str) -> bool:
    """Whether the process carries the mark of that attempt in that spool."""
    found = environment(pid)
    return found.get(b"EVALFLEET_ATTEMPT") == attempt.encode() and found.get(b"EVALFLEET_TASK") == os.fsencode(
        folder + "/task.json"
    )


class ProcessMark:
    """A number that all descendants of a process inherit, whatever they do with their session and environment.

    It is stored in the soft limit for real-time CPU time (RLIMIT_RTTIME): above 100 years, so it has no effect, and inherited across
    fork and exec. It is derived from the attempt's folder: two spools never share one.
    """

    _before: tuple[int, int] | None = None  # our own limits, which nothing else changes

    def __init__(self, folder: str) -> None:
        name = os.fsencode(folder)
        self.number = MARKED + ((zlib.crc32(name) << 20) ^ zlib.crc32(name[::-1] + b"evalfleet")) % MARKED

    def __enter__(self) -> None:
        """Processes started inside the block carry it."""
        if ProcessMark._before is None:
            ProcessMark._before = resource.getrlimit(resource.RLIMIT_RTTIME)
        self._set(self.number, ProcessMark._before[1])

    def __exit__(self, *_: object) -> None:
        if ProcessMark._before is not None:
            self._set(*ProcessMark._before)

    def _set(self, soft: int, hard: int) -> None:
        try:
            resource.setrlimit(resource.RLIMIT_RTTIME, (soft, hard))
        except (ValueError, OSError):
            pass  # the limit is lower: then only the other marks identify it

    def is_on(self, pid: int) -> bool:
        return mark_of(pid) == self.number


def mark_of(pid: int) -> int | None:
    """The number that a process carries, if any."""
    data = read("/proc/%d/limits" % pid, 1 << 16)
    place = data.find(b"Max realtime timeout")
    word = data[place + 20 :].split(None, 1)[0] if place >= 0 else b""
    return int(word) if word.isdigit() and MARKED <= int(word) < 2 * MARKED else None


def is_ours(pid: int) -> bool:
    """Whether it runs as the same user as this process."""
    try:
        return os.stat("/proc/%d" % pid).st_uid == os.geteuid()
    except OSError:
        return False


def command_line(pid: int) -> bytes:
    return read("/proc/%d/cmdline" % pid)


def children(pid: int) -> list[int]:
    """Children of a process, including zombies."""
    path = "/proc/%d/task/%d/children" % (pid, pid)
    data = read(path)
    if data or os.path.exists(path):
        return [int(word) for word in data.split()]
    return [found.pid for found in all_pids() if found.parent == pid]


def all_pids() -> Iterable[ProcessStat]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = stat_of(int(name))
            if found is not None:
                yield found


def descendants(pid: int) -> list[int]:
    """A process and all its descendants, itself first. Children of other threads are included."""
    found = [pid]
    for parent in found:
        for thread in _threads(parent):
            found.extend(int(word) for word in read("/proc/%d/task/%s/children" % (parent, thread)).split())
    return found


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir("/proc/%d/task" % pid)
    except OSError:
        return []


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal one process; ignores one that is gone."""
    if pid <= 1:
        return  # 0 and below would mean us and many others
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def kill_group(group: int, number: int = signal.SIGKILL) -> None:
    """Signal a process group; ignores one that is gone."""
    if group <= 1:
        return
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def oom_kills() -> int:
    """The number of out-of-memory kills on this host."""
    data = read("/proc/vmstat")
    place = data.find(b"\noom_kill ")
    return int(data[place + 10 :].split(None, 1)[0]) if place >= 0 else 0


class Cgroup:
    """The control group of one attempt. Does nothing if the host does not allow control groups."""

    def __init__(self, path: str) -> None:
        self.path = path

    def adopt(self, leader: int) -> None:
        """Move a process tree into the group, until no new process appears.

        Raises:
            OSError: the group cannot be made or entered.
        """
        os.mkdir(self.path, 0o755)
        known: set[int] = set()
        for _ in range(5):
            fresh = [pid for pid in descendants(leader) if pid not in known]
            if not fresh:
                return
            for pid in fresh:
                known.add(pid)
                self._enter(pid)

    def _enter(self, pid: int) -> None:
        try:
            with open(self.path + "/cgroup.procs", "wb", buffering=0) as file:
                file.write(b"%d" % pid)
        except ProcessLookupError:
            pass

    def members(self) -> list[int]:
        found: list[int] = []
        for folder, _, _ in os.walk(self.path):
            found.extend(int(word) for word in read(folder + "/cgroup.procs").split() if word != b"0")
        return found

    def kill(self) -> None:
        try:
            with open(self.path + "/cgroup.kill", "wb", buffering=0) as file:
                file.write(b"1")
        except OSError:
            for pid in self.members():  # cgroup v1, or a kernel before 5.14
                kill(pid)

    def was_oom(self) -> bool:
        data = read(self.path + "/memory.events")
        place = data.find(b"oom_kill ")
        return place >= 0 and int(data[place + 9 :].split(None, 1)[0]) > 0

    def remove(self) -> None:
        """Remove the group; errors are ignored, because an empty group costs nothing."""
        for folder, _, _ in os.walk(self.path, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass


def cgroup_base() -> str | None:
    """The folder of this process's control group, if groups can be created in it. v2 first, then v1's freezer or pids."""
    mounts: dict[str, str] = {}
    for line in read("/proc/self/mountinfo").decode("utf-8", "replace").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2) if right.count(" ") >= 2 else ("", "", "")
        fields = left.split(" ")
        if kind == "cgroup2":
            mounts.setdefault("", fields[4])
        elif kind == "cgroup":
            for controller in options.split(","):
                mounts.setdefault(controller, fields[4])
    own: dict[str, str] = {}
    for line in read("/proc/self/cgroup").decode("utf-8", "replace").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = path
    for controller in ("", "freezer", "pids"):
        if controller in mounts and controller in own:
            folder = (mounts[controller] + own[controller]).rstrip("/")
            if os.access(folder, os.W_OK) and os.access(folder + "/cgroup.procs", os.W_OK):
                return folder
    return None
