"""The files of attempts as one home sees them: in its own folder, and where `[files] url` is set, in that place.

What was collected lies in the home's folder until it is stored. A place that is set later does not hide what is in the folder: an
attempt is looked for there first.
"""

from __future__ import annotations

import threading
from pathlib import Path

from evalfleet import config
from evalfleet.config.core_tables import FilesSettings
from evalfleet.files.base import EVERY, AttemptFiles, AttemptKey, FileFacts, FileStore, OpenFile
from evalfleet.files.folder import FolderFiles, FolderStore
from evalfleet.layout import Home

_LARGEST = 16 << 20  # bytes of a file in the cache

_opened: dict[tuple[Path, FilesSettings], HomeFiles] = {}
_mutex = threading.Lock()


class HomeFiles:
    def __init__(self, home: Home, storage: FileStore | None) -> None:
        """
        Args:
            storage: None: all files stay in the home.
        """
        self.folders = FolderStore(home.path / "runs")
        self.storage = storage

    def get(self, run: str, key: str, number: int) -> AttemptFiles | None:
        """The files of an attempt, None where there are none. Raises FilesUnreachable."""
        where = AttemptKey.of(run, key, number)
        here = self.folders.get(where)
        if self.storage is None:
            return here
        there = self.storage.get(where) if here is None else None
        return there if here is None else _Moving(here, self.storage, where)

    def folder(self, run: str, key: str, number: int) -> Path:
        """Where the attempt's files are before they are stored elsewhere."""
        return self.folders.folder(AttemptKey.of(run, key, number))


class _Moving:
    """Files in the home that may be moved to the storage while they are read. Implements `AttemptFiles`."""

    def __init__(self, here: FolderFiles, storage: FileStore, key: AttemptKey) -> None:
        self._here = here
        self._storage = storage
        self._key = key

    @property
    def where(self) -> str:
        return self._now().where

    def list(self, below: str = "", most: int = EVERY) -> list[FileFacts]:
        found = self._here.list(below, most)
        return found if self._here.folder.is_dir() else self._now().list(below, most)

    def open(self, name: str) -> OpenFile | None:
        found = self._here.open(name)
        return self._now().open(name) if found is None and not self._here.folder.is_dir() else found

    def _now(self) -> AttemptFiles:
        return self._here if self._here.folder.is_dir() else self._storage.get(self._key) or self._here


def home_files(home: Path) -> HomeFiles:
    """The files of a home, as the settings say that this process loaded. Raises ConfigError."""
    settings = config.files_of.get(home, FilesSettings())
    with _mutex:
        found = _opened.get((home, settings))
        if found is None:
            storage = None if settings.url is None else storage_of(home, settings.url, settings)
            found = _opened[home, settings] = HomeFiles(Home(home), storage)
        return found


def storage_of(home: Path, url: str, settings: FilesSettings) -> FileStore:
    """Raises ConfigError."""
    from evalfleet.files.cache import Cache
    from evalfleet.files.objects import ObjectStorage

    folder = Home(home).cache if settings.cache is None else Path(settings.cache)
    return ObjectStorage(url, Cache(folder, settings.cache_mb << 20, largest=_LARGEST))
