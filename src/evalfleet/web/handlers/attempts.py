"""What the API tells of one task and one attempt, and of the files that it left or is just writing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import Struct, field

from evalfleet import config
from evalfleet.answers import attempts as answers
from evalfleet.core.retention import Part
from evalfleet.core.secret_names import masked
from evalfleet.errors import FilesUnreachable, MissingSecret, NotFound
from evalfleet.files.base import AttemptFiles, OpenFile
from evalfleet.files.folder import FolderFiles
from evalfleet.hosts import late_redaction
from evalfleet.hosts.access import ReachableHost, UnavailableHost
from evalfleet.hosts.attempt_files import open_socket
from evalfleet.hosts.local.backend import HOST as HERE
from evalfleet.layout import Home
from evalfleet.model import LIVE_ATTEMPT_STATES, Attempt, Run, Task
from evalfleet.operations.runs.attempt_files import collected
from evalfleet.pools.kinds import registry
from evalfleet.report.removed import removal_of
from evalfleet.report.summary import task_result
from evalfleet.report.trajectory import film_of
from evalfleet.store.reader import StoreReader

STREAMS = ("stdout", "stderr")
Stream = Literal["stdout", "stderr"]
_MOST_FILES = 2000
_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")


class Place(Struct, frozen=True, kw_only=True):
    """One attempt, and where its files are now."""

    run: Run
    task: Task
    attempt: Attempt
    files: AttemptFiles
    folder: Path  # of this machine, where it lets itself be watched while it is live
    away: ReachableHost | UnavailableHost | None = None  # the machine that has them, if it is not this one
    is_raw: bool = False  # its runner has not taken secrets out of them yet
    problem: str | None = None  # why the place of its files cannot be reached

    @property
    def is_live(self) -> bool:
        return self.attempt.state in LIVE_ATTEMPT_STATES


class SeenFile(Struct, frozen=True, kw_only=True):
    """An artifact on another machine, as it was when we looked."""

    path: str
    size: int
    changed_at: float


class Seen(Struct, frozen=True, kw_only=True):
    """How far an attempt on another machine is."""

    film: AttemptFiles  # what its film is made of, as far as it was brought here
    files: tuple[SeenFile, ...] = ()
    logs: dict[str, int] = field(default_factory=dict[str, int])  # bytes by stream
    socket: bool = False  # a desktop of its own can be watched
    port: int | None = None  # of the machine, on which it shows what the attempt does
    problem: str | None = None  # why nothing could be seen

    @property
    def has_screen(self) -> bool:
        return self.socket or self.port is not None


def place(store: StoreReader, home: Home, text: str, task_number: int, number: int) -> Place:
    """Raises NotFound."""
    run = store.runs.find(text)
    task = store.tasks.at(run.id, task_number)
    for attempt in store.attempts.all(run.id, task_number):
        if attempt.number == number:
            folder = home.spooled(attempt.id)
            try:
                kept = collected(home, task.key, attempt)
            except FilesUnreachable as error:
                nothing = FolderFiles(folder)
                return Place(run=run, task=task, attempt=attempt, files=nothing, folder=folder, problem=str(error))
            if kept is not None:
                return Place(run=run, task=task, attempt=attempt, files=kept, folder=folder)
            away = None if attempt.host == HERE else _host(store, run, attempt.host)
            files, is_raw = FolderFiles(folder), bool(task.spec.secrets)
            return Place(run=run, task=task, attempt=attempt, files=files, folder=folder, away=away, is_raw=is_raw)
    raise NotFound(f"task {task.key!r} of run {run.id} has no attempt {number}; it has {task.attempts}")


def _host(store: StoreReader, run: Run, name: str) -> ReachableHost | UnavailableHost | None:
    """How the machine is reached that an attempt ran on: as its pool says."""
    if run.policy.pool is None:
        return None
    gone = UnavailableHost(pool=run.policy.pool, name=name, slots=0, why="no longer belongs to the pool")
    try:
        pools = registry.with_members(store, store.pools.get(run.policy.pool))
        hosts = [host for one in pools for host in registry.kind_of(one).reachable(one, store.hosts.of_pool(one.name))]
    except NotFound:
        return gone
    return next((host for host in hosts if host.name == name), gone)


def task(store: StoreReader, home: Home, text: str, number: int) -> answers.TaskFacts:
    with store.snapshot():
        run = store.runs.find(text)
        found = store.tasks.at(run.id, number)
        rows = store.tasks.page(run.id, after=number - 1, limit=1)
        attempts = store.attempts.all(run.id, number)
    film = None
    if attempts:
        last = place(store, home, run.id, number, attempts[-1].number)
        film = _shown_film(last, last.files)
    return answers.TaskFacts.copy_of(
        task_result(rows[0]),
        found,
        spec=answers.ShownSpec.copy_of(found.spec, env=masked(found.spec.env)),
        instruction=_instruction(found.spec.payload, film),
        attempt_list=[_attempt(one) for one in attempts],
    )


def attempt(
    store: StoreReader, home: Home, text: str, task_number: int, number: int, seen: Seen | None = None
) -> answers.AttemptFacts:
    """
    Args:
        seen: what its machine told of it, if that is not this one.
    """
    found = place(store, home, text, task_number, number)
    if found.away is None or seen is None:
        seen, picture = _seen_here(found)
    else:
        picture = newest_of(film_of(seen.film), seen.files)
    flagged = {str(one.get("path")) for one in (found.attempt.end or {}).get("artifacts", ()) if one.get("secret")}
    return answers.AttemptFacts.copy_of(
        _attempt(found.attempt),
        found.attempt,
        key=found.task.key,
        run=found.run.id,
        task_state=found.task.state,
        film=_shown_film(found, seen.film),
        artifacts=[answers.Artifact(path=one.path, size=one.size, secret=one.path in flagged) for one in seen.files],
        logs=answers.LogSizes(stdout=seen.logs.get("stdout", 0), stderr=seen.logs.get("stderr", 0)),
        desktop=answers.DesktopFacts(vnc=found.is_live and seen.has_screen, screenshot=picture is not None),
        problem=seen.problem or _removed(store, found.attempt, seen),
    )


def _removed(store: StoreReader, attempt: Attempt, seen: Seen) -> str | None:
    """What retention removed of its files."""
    artifacts = None if seen.files else removal_of(store, attempt, Part.ARTIFACTS)
    output = None if any(seen.logs.values()) else removal_of(store, attempt, Part.LOGS)
    told = [f"{name} {words}" for name, words in (("Artifacts", artifacts), ("Output and steps", output)) if words]
    return ". ".join(told) or None


def _seen_here(found: Place) -> tuple[Seen, str | None]:
    """What there is, and its newest picture."""
    try:
        seen = Seen(
            film=found.files,
            files=tuple(_files(found.files)),
            logs={stream: _read(found.files, f"{stream}.log", 0, 0)[1] for stream in STREAMS},
            socket=_has_desktop(found),
            problem=found.problem,
        )
        return seen, newest_picture(found)
    except FilesUnreachable as error:
        return Seen(film=FolderFiles(found.folder), problem=str(error)), None


class Wanted(Struct, frozen=True, kw_only=True):
    """The requested piece of a log."""

    stream: Stream
    offset: int | None
    limit: int
    tail: int | None  # the last bytes, in the place of an offset

    def begin(self, size: int) -> int:
        return max(0, size - self.tail) if self.tail is not None else min(self.offset or 0, size)


def log(found: Place, wanted: Wanted) -> answers.LogPiece:
    """A piece of what an attempt wrote, or writes here."""
    name = f"{wanted.stream}.log"
    _, size = _read(found.files, name, 0, 0)
    data, _ = _read(found.files, name, wanted.begin(size), wanted.limit)
    return log_row(found, wanted, size, data)


def log_row(found: Place, wanted: Wanted, size: int, data: bytes) -> answers.LogPiece:
    begin = wanted.begin(size)
    return answers.LogPiece(
        stream=wanted.stream,
        offset=begin,
        next=begin + len(data),
        size=size,
        live=found.is_live,
        text=data.decode("utf-8", "replace"),
    )


def cleaned(found: Place, data: bytes) -> bytes:
    """What a task with secrets is just writing, without them.

    Raises MissingSecret: this server does not know them.
    """
    return late_redaction.cleaned(data, config.secret_values(found.task.spec.secrets)) if found.is_raw else data


def _shown_film(found: Place, files: AttemptFiles) -> answers.Film | None:
    try:
        return film_of(files, lambda data: cleaned(found, data))
    except (MissingSecret, FilesUnreachable):
        return None  # it is shown once it ended, or can be reached


def opened(found: Place, name: str) -> OpenFile | None:
    """Open one of its artifacts; None where there is none of that name. The caller closes it. Raises FilesUnreachable."""
    if found.problem is not None:
        raise FilesUnreachable(found.problem)
    return found.files.open(f"artifacts/{name}")


def newest_picture(found: Place) -> str | None:
    """Name the last screenshot that the attempt made."""
    film = film_of(found.files)
    for frame in reversed(film.frames if film else ()):
        file = opened(found, frame.picture) if frame.picture else None
        if file is not None:
            file.close()
            return frame.picture
    return newest_of(None, tuple(_files(found.files)))


def newest_of(film: answers.Film | None, files: Sequence[SeenFile]) -> str | None:
    """The last screenshot that an attempt made: the film's, else the newest picture among its files."""
    known = {one.path for one in files}
    named = [frame.picture for frame in film.frames if frame.picture] if film else []
    for name in reversed(named):
        if name in known:
            return name
    pictures = [one for one in files if one.path.lower().endswith(_PICTURES)]
    newest = max(pictures, key=lambda one: one.changed_at, default=None)
    return None if newest is None else newest.path


def vnc_socket(found: Place) -> int | None:
    """Open the way to the desktop of an attempt on this machine, which lets itself be watched by a socket beside its files."""
    return open_socket(found.folder, "vnc.sock")


def _has_desktop(found: Place) -> bool:
    descriptor = vnc_socket(found)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


def _attempt(one: Attempt) -> answers.AttemptRow:
    return answers.AttemptRow.copy_of(one, task=one.task_number, live=one.state in LIVE_ATTEMPT_STATES)


def _instruction(payload: Any, film: answers.Film | None) -> str | None:
    if film is not None and film.goal:
        return film.goal
    if isinstance(payload, dict):
        words = cast("dict[str, Any]", payload)
        for name in ("instruction", "goal", "prompt"):
            if isinstance(words.get(name), str):
                return words[name]
    return None


def _files(files: AttemptFiles) -> Iterator[SeenFile]:
    """Artifacts by path; a task that leaves a million is cut off."""
    for one in files.list("artifacts", _MOST_FILES):
        if one.is_text:
            yield SeenFile(path=one.path, size=one.size, changed_at=one.changed_at)


def _read(files: AttemptFiles, name: str, offset: int, limit: int) -> tuple[bytes, int]:
    """A piece of a file of an attempt, and how large the file is. Nothing where it is not there, or moves at this moment."""
    found = files.open(name)
    if found is None:
        return b"", 0
    with found:
        return found.read(offset, limit) if limit else b"", found.size
