"""What an attempt wrote and left, as far as it is on this machine: its output and its artifacts.

Of an attempt on another machine that is once its files are collected.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from evalfleet import config
from evalfleet.answers.attempts import ArtifactFile
from evalfleet.core.retention import Part
from evalfleet.errors import NotFound
from evalfleet.hosts.attempt_files import files_inside, open_inside
from evalfleet.layout import Home
from evalfleet.model import Attempt, Run
from evalfleet.report.removed import removal_of
from evalfleet.store.reader import StoreReader

STREAMS = ("stdout", "stderr")
_BLOCK = 1 << 16
_MOST_FILES = 100_000


def find_attempt(store: StoreReader, run: Run, key: str, number: int | None = None) -> Attempt:
    """The attempt of that number; without one the latest. Raises NotFound."""
    task = store.tasks.get(run.id, key)
    attempts = store.attempts.all(run.id, task.number)
    chosen = [attempt for attempt in attempts if number in (None, attempt.number)]
    if not chosen:
        which = f"attempt {number}; it has {len(attempts)}" if attempts else "attempt yet"
        raise NotFound(f"task {key!r} has no {which}")
    return chosen[-1]


def folder_of(home: Home, key: str, attempt: Attempt) -> Path:
    """Where the attempt's files are: in the spool while it is live, in its own folder once it is collected."""
    collected = home.attempt(attempt.run_id, key, attempt.number)
    return collected if collected.is_dir() else home.spooled(attempt.id)


class Tail(Struct):
    """Reads an attempt's output piece by piece. The spool and the collected folder hold the same bytes, so offsets stay valid."""

    home: Home
    key: str
    attempt: Attempt
    offsets: dict[str, int] = field(default_factory=dict[str, int])

    def folder(self) -> Path:
        return folder_of(self.home, self.key, self.attempt)

    def read(self, stream: str) -> Iterator[bytes]:
        """What is new since the last call."""
        descriptor = open_inside(self.folder(), f"{stream}.log")
        if descriptor is None:
            return  # nothing was written, or the file moves at this moment
        with open(descriptor, "rb") as file:
            file.seek(self.offsets.get(stream, 0))
            while block := file.read(_BLOCK):
                self.offsets[stream] = file.tell()
                yield block


def log(home: Home, key: str, attempt: Attempt, stream: str) -> str:
    """All that an attempt has written to stdout or stderr so far."""
    return b"".join(Tail(home, key, attempt).read(stream)).decode("utf-8", "replace")


def artifacts(home: Home, key: str, attempt: Attempt) -> list[ArtifactFile]:
    """The attempt's artifacts, sorted by path. A name that is not text is left out: no front end could show it."""
    found = files_inside(folder_of(home, key, attempt), "artifacts", _MOST_FILES)
    named = sorted((path, known.st_size) for path, known in found if _is_text(path))
    return [ArtifactFile(path=path, size=size) for path, size in named]


def _is_text(path: str) -> bool:
    return not any("\udc80" <= char <= "\udcff" for char in path)


def read_artifact(store: StoreReader, home: Home, key: str, attempt: Attempt, path: str) -> bytes:
    """The content of one artifact. Secrets are removed from one that is not collected yet.

    Raises NotFound; MissingSecret where the secrets are not in this process's environment.
    """
    descriptor = open_inside(folder_of(home, key, attempt), f"artifacts/{path}")
    if descriptor is None:
        removed = removal_of(store, attempt, Part.ARTIFACTS)
        raise NotFound(
            f"artifacts of attempt {attempt.number} of task {key!r} {removed}"
            if removed
            else f"attempt {attempt.number} of task {key!r} has no artifact {path!r}"
        )
    with open(descriptor, "rb") as file:
        data = file.read()
    secrets = store.tasks.get(attempt.run_id, key).spec.secrets
    if not secrets or home.attempt(attempt.run_id, key, attempt.number).is_dir():
        return data
    from evalfleet.hosts.late_redaction import cleaned

    return cleaned(data, config.secret_values(secrets))
