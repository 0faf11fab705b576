"""What the API tells of one task and one attempt, and of the files that it left or is just writing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from evalfleet.errors import NotFound
from evalfleet.layout import Home
from evalfleet.model import LIVE_ATTEMPT_STATES, Attempt, JsonObject, Run, Task
from evalfleet.report.film import Film, film_of
from evalfleet.report.summary import task_row
from evalfleet.store.base import StoreReader

STREAMS = ("stdout", "stderr")
_MOST_FILES = 2000
_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One attempt, and where its files lie now."""

    run: Run
    task: Task
    attempt: Attempt
    folder: Path

    @property
    def is_live(self) -> bool:
        return self.attempt.state in LIVE_ATTEMPT_STATES

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"


def place(store: StoreReader, home: Home, text: str, task_number: int, number: int) -> Place:
    """Raises NotFound."""
    run = store.find_run(text)
    task = store.task_at(run.id, task_number)
    for attempt in store.attempts(run.id, task_number):
        if attempt.number == number:
            collected = home.attempt(run.id, task.key, number)
            folder = collected if collected.is_dir() else home.spooled(attempt.id)
            return Place(run=run, task=task, attempt=attempt, folder=folder)
    raise NotFound(f"task {task.key!r} of run {run.id} has no attempt {number}; it has {task.attempts}")


def task(store: StoreReader, home: Home, text: str, number: int) -> JsonObject:
    with store.snapshot():
        run = store.find_run(text)
        found = store.task_at(run.id, number)
        rows = store.tasks_page(run.id, after=number - 1, limit=1)
        attempts = store.attempts(run.id, number)
    spec = cast("JsonObject", msgspec.to_builtins(found.spec))
    film = None
    if attempts:
        film = film_of(place(store, home, run.id, number, attempts[-1].number).folder)
    return {
        "number": number,
        **task_row(rows[0]),
        "spec": {name: value for name, value in spec.items() if name not in ("key", "domain")},
        "instruction": _instruction(found.spec.payload, film),
        "not_before": found.not_before,
        "hold_asked": found.hold_asked,
        "expected_s": found.expected_s,
        "consumed": found.consumed,
        "lost": found.lost,
        "attempt_list": [_attempt(one) for one in attempts],
    }


def attempt(store: StoreReader, home: Home, text: str, task_number: int, number: int) -> JsonObject:
    with store.snapshot():
        found = place(store, home, text, task_number, number)
    film = film_of(found.folder)
    flagged = {str(one.get("path")) for one in (found.attempt.end or {}).get("artifacts", ()) if one.get("secret")}
    files = [{"path": path, "size": size, "secret": path in flagged} for path, size in _files(found.artifacts)]
    return {
        **_attempt(found.attempt),
        "key": found.task.key,
        "run": found.run.id,
        "task_state": str(found.task.state),
        "end": found.attempt.end,
        "film": _film(film),
        "artifacts": files,
        "logs": {stream: _size(found.folder / f"{stream}.log") for stream in STREAMS},
        "desktop": {
            "vnc": found.is_live and vnc_socket(found) is not None,
            "screenshot": newest_picture(found) is not None,
        },
    }


def log(found: Place, stream: str, offset: int | None, limit: int, tail: int | None) -> JsonObject:
    """A piece of what an attempt wrote."""
    path = found.folder / f"{stream}.log"
    size = _size(path)
    begin = max(0, size - tail) if tail is not None else min(offset or 0, size)
    data = _read(path, begin, limit)
    return {
        "stream": stream,
        "offset": begin,
        "next": begin + len(data),
        "size": size,
        "live": found.is_live,
        "text": data.decode("utf-8", "replace"),
    }


def newest_picture(found: Place) -> Path | None:
    """The last screenshot that the attempt made: the film's, else the newest picture among its files."""
    film = film_of(found.folder)
    named = [frame.picture for frame in film.frames if frame.picture] if film else []
    for name in reversed(named):
        path = inside(found.artifacts, name)
        if path is not None:
            return path
    pictures = [found.artifacts / path for path, _ in _files(found.artifacts) if path.lower().endswith(_PICTURES)]
    newest = max(pictures, key=_changed_at, default=None)
    return None if newest is None else inside(found.artifacts, str(newest.relative_to(found.artifacts)))


def vnc_socket(found: Place) -> Path | None:
    """Where the desktop of a live attempt on this machine lets itself be watched: a socket beside its files."""
    path = found.folder / "vnc.sock"
    try:
        return path if stat.S_ISSOCK(path.lstat().st_mode) else None
    except OSError:
        return None


def inside(folder: Path, name: str) -> Path | None:
    """The regular file `name` below `folder`; None if there is none, or if a link leads elsewhere."""
    try:
        path = (folder / name).resolve(strict=True)
        if not path.is_relative_to(folder.resolve(strict=True)) or not stat.S_ISREG(path.lstat().st_mode):
            return None
    except (OSError, ValueError, RuntimeError):  # missing, a NUL in the name, a ring of links
        return None
    return path


def _attempt(one: Attempt) -> JsonObject:
    return {
        "id": one.id,
        "task": one.task_number,
        "number": one.number,
        "state": str(one.state),
        "outcome": one.outcome,
        "host": one.host,
        "worker": one.worker,
        "claimed_at": one.claimed_at,
        "started_at": one.started_at,
        "ready_at": one.ready_at,
        "ended_at": one.ended_at,
        "duration_s": one.duration_s,
        "step": one.step,
        "cost_usd": one.cost_usd,
        "reported_usd": one.reported_usd,
        "verdict": one.verdict,
        "failure": one.failure,
        "live": one.state in LIVE_ATTEMPT_STATES,
    }


def _film(film: Film | None) -> Any:
    return None if film is None else msgspec.to_builtins(film)


def _instruction(payload: Any, film: Film | None) -> str | None:
    if film is not None and film.goal:
        return film.goal
    if isinstance(payload, dict):
        words = cast("dict[str, Any]", payload)
        for name in ("instruction", "goal", "prompt"):
            if isinstance(words.get(name), str):
                return words[name]
    return None


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Regular files below, by path; links are not followed, and a task that leaves a million is cut off."""
    found: list[tuple[str, int]] = []
    folders = [folder]
    while folders and len(found) < _MOST_FILES:
        here = folders.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    elif entry.is_file(follow_symlinks=False):
                        path = str(Path(entry.path).relative_to(folder))
                        found.append((path, entry.stat(follow_symlinks=False).st_size))
        except OSError:
            continue
    yield from ((path, size) for path, size in sorted(found)[:_MOST_FILES] if _is_text(path))


def _is_text(path: str) -> bool:
    """Whether the name can stand in JSON: a task may have written any bytes."""
    return not any("\udc80" <= char <= "\udcff" for char in path)


def _size(path: Path) -> int:
    try:
        found = path.lstat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _changed_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _read(path: Path, offset: int, limit: int) -> bytes:
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError:
        return b""  # nothing was written, or the file moves at this moment
    try:
        return os.pread(descriptor, limit, offset) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    finally:
        os.close(descriptor)
