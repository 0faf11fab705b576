"""What an attempt wrote and left: its output and its artifacts.

Of an attempt on another machine that is known once its files are collected.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from evalfleet import config
from evalfleet.answers.attempts import ArtifactFile
from evalfleet.core.retention import Part
from evalfleet.errors import NotFound
from evalfleet.files import base
from evalfleet.files.base import AttemptFiles
from evalfleet.files.folder import FolderFiles
from evalfleet.files.home import home_files
from evalfleet.layout import Home
from evalfleet.model import Attempt, AttemptState, Run
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


def collected(home: Home, key: str, attempt: Attempt) -> AttemptFiles | None:
    """The attempt's files where they are kept, None as long as they are not collected. Raises FilesUnreachable."""
    files = home_files(home.path)
    if attempt.state in (AttemptState.COLLECTING, AttemptState.ENDED):
        return files.get(attempt.run_id, key, attempt.number)
    return files.folders.get(base.AttemptKey.of(attempt.run_id, key, attempt.number))  # just moved there


def files_of(home: Home, key: str, attempt: Attempt) -> AttemptFiles:
    """The attempt's files: in the spool while it is live, later where they are kept. Raises FilesUnreachable."""
    return collected(home, key, attempt) or FolderFiles(home.spooled(attempt.id))


class Tail(Struct):
    """Reads an attempt's output piece by piece. The spool and the collected folder hold the same bytes, so offsets stay valid."""

    home: Home
    key: str
    attempt: Attempt
    offsets: dict[str, int] = field(default_factory=dict[str, int])

    def where(self) -> str:
        """A folder, or an address."""
        return files_of(self.home, self.key, self.attempt).where

    def read(self, stream: str) -> Iterator[bytes]:
        """What is new since the last call."""
        found = files_of(self.home, self.key, self.attempt).open(f"{stream}.log")
        if found is None:
            return  # nothing was written, or the file moves at this moment
        with found:
            while block := found.read(self.offsets.get(stream, 0), _BLOCK):
                self.offsets[stream] = self.offsets.get(stream, 0) + len(block)
                yield block


def log(home: Home, key: str, attempt: Attempt, stream: str) -> str:
    """All that an attempt has written to stdout or stderr so far."""
    return b"".join(Tail(home, key, attempt).read(stream)).decode("utf-8", "replace")


def artifacts(home: Home, key: str, attempt: Attempt) -> list[ArtifactFile]:
    """The attempt's artifacts, sorted by path. A name that is not text is left out: no front end could show it."""
    found = files_of(home, key, attempt).list("artifacts", _MOST_FILES)
    return [ArtifactFile(path=one.path, size=one.size) for one in found if one.is_text]


def read_artifact(store: StoreReader, home: Home, key: str, attempt: Attempt, path: str) -> Iterator[bytes]:
    """The content of one artifact, a piece at a time. Secrets are removed from one that is not collected yet.

    Raises NotFound; MissingSecret where the secrets are not in this process's environment; FilesUnreachable.
    """
    kept = collected(home, key, attempt)
    found = (kept or FolderFiles(home.spooled(attempt.id))).open(f"artifacts/{path}")
    if found is None:
        removed = removal_of(store, attempt, Part.ARTIFACTS)
        raise NotFound(
            f"artifacts of attempt {attempt.number} of task {key!r} {removed}"
            if removed
            else f"attempt {attempt.number} of task {key!r} has no artifact {path!r}"
        )
    with found:
        secrets = store.tasks.get(attempt.run_id, key).spec.secrets
        if not secrets or kept is not None:
            yield from base.blocks(found)
            return
        from evalfleet.hosts.late_redaction import cleaned

        yield cleaned(found.read(0, found.size), config.secret_values(secrets))
