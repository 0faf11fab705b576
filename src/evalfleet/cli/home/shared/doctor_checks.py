"""The checks of `evalfleet doctor` other than processes: this Python, the home, its database and its disks.

No check writes or raises, since doctor is run when things are broken.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from evalfleet.answers.home import Check, Level
from evalfleet.config import Settings
from evalfleet.errors import ConfigError, FilesUnreachable, StoreCorrupt, StoreError, StoreForeign
from evalfleet.report import text
from evalfleet.store.database.file import FILE
from evalfleet.store.home import identity, place
from evalfleet.store.reader import StoreReader

PYTHON = (3, 11)
RUNNER_PYTHON = (3, 8)
SQLITE_FIXED = (3, 51, 3)
_CHECK_S = 0.4
_PYTHON_S = 5.0
_MIB, _GIB = 1 << 20, 1 << 30
_LEAST_FILES = 4096
_AHEAD_S = 5.0
_NEWEST = 20
_NETWORK = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "ncpfs",
        "afs",
        "9p",
        "ceph",
        "lustre",
        "gpfs",
        "beegfs",
        "glusterfs",
        "orangefs",
    }
)
_REMOTE_FUSE = (
    "fuse.sshfs",
    "fuse.s3fs",
    "fuse.gcsfuse",
    "fuse.rclone",
    "fuse.glusterfs",
    "fuse.blobfuse",
    "fuse.juicefs",
)


def warning(name: str, message: str, remedy: str) -> Check:
    return Check(name=name, level=Level.WARNING, message=message, remedy=remedy)


def problem(name: str, message: str, remedy: str) -> Check:
    return Check(name=name, level=Level.PROBLEM, message=message, remedy=remedy)


def check_python() -> Check:
    shown = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < PYTHON:
        return problem("python", f"{shown} is too old", "install evalfleet with Python 3.11 or newer")
    return Check(name="python", message=shown)


def check_sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> Check:
    shown = ".".join(map(str, version))
    if version >= SQLITE_FIXED:
        return Check(name="sqlite", message=shown)
    return warning(
        "sqlite",
        f"{shown} has a bug that can damage a database to which several programs write at the same moment (fixed in "
        "3.51.3). evalfleet's own processes take turns by a lock, so they are safe",
        f"let nothing but evalfleet write to {FILE}; a Python with SQLite 3.51.3 or newer removes the danger",
    )


def check_runner_python(python: str) -> Check:
    """Start it as the runner would be started, with what the runner loads."""
    program = (
        "import sys, fcntl, hashlib, json, resource, selectors, socket, zipimport, zlib; print(*sys.version_info[:3])"
    )
    name, remedy = (
        "runner python",
        "name one that works: EVALFLEET_RUNNER_PYTHON, or python under [local] in config.toml",
    )
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=_PYTHON_S, check=False
        )
        version = tuple(int(word) for word in done.stdout.split()) if done.returncode == 0 else ()
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else f"no answer: {error}"
        return problem(name, f"{python} cannot be used: {reason}", remedy)
    if not version:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return problem(name, f"{python} cannot be used: {text.printable(last)}", remedy)
    if version < RUNNER_PYTHON:
        return problem(name, f"{python} is Python {'.'.join(map(str, version))}; the runner needs 3.8", remedy)
    return Check(name=name, message=f"{'.'.join(map(str, version))} ({python})")


def check_open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _LEAST_FILES:
        return warning(
            "open files",
            f"at most {hard:,}; a runner needs about 4 per running task",
            f"raise the hard limit to {_LEAST_FILES:,} or more (ulimit -Hn, limits.conf), or use fewer workers",
        )
    return Check(name="open files", message=f"{_limit(soft)} at once, {_limit(hard)} for the runner")


def _limit(count: int) -> str:
    return "any number" if count == resource.RLIM_INFINITY else f"{count:,}"


# The home and its disks


def check_home(home: Path) -> Check:
    remedy = "choose another home (--home DIR or EVALFLEET_HOME), or make this one yours and writable"
    try:
        if home.is_dir():
            if os.access(home, os.R_OK | os.W_OK | os.X_OK):
                return Check(name="home", message=str(home))
            return problem("home", f"{home} cannot be written", remedy)
        if os.path.lexists(home):
            return problem("home", f"{home} is not a folder", remedy)
        parent = standing(home)
        if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
            return Check(name="home", message=f"{home} does not exist yet; the first run makes it")
        return problem("home", f"{home} cannot be made: {parent} cannot be written", remedy)
    except (OSError, ValueError) as error:
        return problem("home", f"{home} cannot be used: {getattr(error, 'strerror', None) or error}", remedy)


def standing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    while path != path.parent:
        try:
            path.stat()
        except (OSError, ValueError):
            path = path.parent
        else:
            return path
    return path


def check_file_system(home: Path, mounts: str | None = None) -> Check:
    """`mounts` is the text of /proc/mounts."""
    try:
        found = _file_system(standing(home).resolve(), Path("/proc/mounts").read_text() if mounts is None else mounts)
    except OSError as error:
        found = f"unknown ({error.strerror})"
    if found in _NETWORK or found.startswith(_REMOTE_FUSE):
        return warning(
            "file system",
            f"the home lies on a network file system ({found}), where locks and SQLite's shared memory are not reliable",
            "use a home on a disk of this machine: --home DIR or EVALFLEET_HOME",
        )
    return Check(name="file system", message=found)


def _file_system(path: Path, mounts: str) -> str:
    """The type of the file system that the path lies on: of the last mount at its longest prefix."""
    best, kind = "", "unknown"
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[1])  # a space is written \040
        inside = path == Path(point) or Path(point) in path.parents
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def check_disks(*folders: Path) -> Iterator[Check]:
    """Space and inodes on the file systems of the folders, each once."""
    seen: set[int] = set()
    for folder in map(standing, folders):
        try:
            device, free = folder.stat().st_dev, os.statvfs(folder)
        except OSError as error:
            yield warning("disk", f"{folder} cannot be asked: {error.strerror}", f"check {folder}")
            continue
        if device in seen:
            continue
        seen.add(device)
        yield _disk(folder, free.f_bavail * free.f_frsize, free.f_favail if free.f_files else None)


def _disk(folder: Path, space: int, inodes: int | None) -> Check:
    left = f"{space / _GIB:,.1f} GiB" if space >= _GIB else f"{space / _MIB:,.0f} MiB"
    shown = f"{left} free" + ("" if inodes is None else f" and {inodes:,} inodes") + f" at {folder}"
    remedy = f"free some on the disk of {folder}; runs keep their files under runs/ in the home"
    if space < 100 * _MIB or (inodes is not None and inodes < 1000):
        return problem("disk", f"only {shown}", remedy)
    if space < 2 * _GIB or (inodes is not None and inodes < 50_000):
        return warning("disk", f"only {shown}", remedy)
    return Check(name="disk", message=shown)


def check_files(settings: Settings) -> Iterator[Check]:
    """The place of `[files] url`: a small object is written, read and deleted."""
    if settings.files.url is None:
        return
    from evalfleet.files.objects import ObjectStorage

    try:
        storage = ObjectStorage(settings.files.url)
        began = time.monotonic()
        storage.probe()
        took_s = time.monotonic() - began
    except (FilesUnreachable, ConfigError) as error:
        yield problem(
            "files", str(error), "correct [files] url, or the credentials in the environment; attempts wait meanwhile"
        )
    else:
        message = f"{storage.where}: a small object was written, read and deleted in {took_s:.2f} s"
        yield Check(name="files", message=message)


# The database


def check_database(home: Path, broken: StoreError | None) -> Check:
    """`broken` is the error from opening it."""
    path = home / FILE
    if isinstance(broken, StoreCorrupt):
        message, _, remedy = str(broken).rpartition(": ")
        return problem("database", message, f"copy the home first (cp -a {home} {home}.copy), then {remedy}")
    if broken is not None:
        message, _, remedy = str(broken).rpartition("; ")
        if isinstance(broken, StoreForeign):
            message += _contents(path)
        return problem("database", message or remedy, remedy if message else "restore a backup, or use --home DIR")
    if (url := place.pointed(home)) is not None:
        return Check(name="database", message=f"on a server: {url}")
    if not path.exists():
        return Check(name="database", message="none yet; the first run makes it")
    found, version = _quick_check(path)
    size = f"{path.stat().st_size / _MIB:,.1f} MiB, schema {version}"
    if found is None:
        return Check(
            name="database", message=f"{size}; too large to be checked whole in a moment, no damage found so far"
        )
    if found != "ok":
        return problem(
            "database",
            f"{path} is damaged: {text.printable(found)}",
            f"copy the home first (cp -a {home} {home}.copy), then restore a backup, or rescue with `sqlite3 {path} .recover`",
        )
    kept = sorted(one.name for one in home.glob(f"{FILE}.schema-*"))
    return Check(name="database", message=f"whole, {size}" + (f"; as it was before: {', '.join(kept)}" if kept else ""))


def _contents(path: Path) -> str:
    """What can be said about a database with another schema version."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as reader:
        runs, tasks = (reader.execute(f"select count(*) from {one}").fetchone()[0] for one in ("run", "task"))
        return f" ({text.count(runs, 'run')} and {text.count(tasks, 'task')} in it; their files are in {path.parent / 'runs'})"
    return ""


def _quick_check(path: Path) -> tuple[str | None, int]:
    """What SQLite says of every page, "ok" or the first damage, None if there was no time; and the schema's version."""
    version = 0
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_CHECK_S)) as connection:
            version = connection.execute("pragma user_version").fetchone()[0]
            deadline = time.monotonic() + _CHECK_S
            connection.set_progress_handler(lambda: int(time.monotonic() > deadline), 1000)
            return str(connection.execute("pragma quick_check(1)").fetchone()[0]), version
    except sqlite3.Error as error:
        slow = getattr(error, "sqlite_errorcode", 0) in (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_BUSY)
        return None if slow else str(error), version


def check_identity(home: Path) -> Check:
    """Whether the home, which was opened, is a copy of another one."""
    words = identity.seen.get(home)
    if words is None:
        return Check(name="identity", message="this home is the original")
    return problem(
        "identity",
        words,
        "use the original; or, where that is gone for good: evalfleet doctor --adopt   lets this home take its place",
    )


def check_clock(store: StoreReader) -> Check:
    """Events in the future: the clock was set back, and timers wait longer."""
    events = [store.events.last(run.id) for run in store.runs.newest(_NEWEST)]
    ahead_s = max((event.at for event in events if event is not None), default=0.0) - store.now()
    if ahead_s > _AHEAD_S:
        return warning(
            "clock",
            f"an event was written {text.span(ahead_s)} in the future: this machine's clock went back",
            "check the time (timedatectl); leases and retries wait until the clock has caught up",
        )
    return Check(name="clock", message="no event is in the future")
