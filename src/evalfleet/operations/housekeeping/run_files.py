"""The files of runs, as housekeeping sees them: how much there is of each part of a run, and removing a part.

They are folders of the home. A place that keeps them elsewhere is a second class with these methods.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from evalfleet.core.retention import Part, Size
from evalfleet.layout import Home

_LOGS = frozenset({"stdout.log", "stderr.log", "events.jsonl"})  # of attempts
_RUN_LOG = "controller.log"  # and what was rotated
_ARTIFACTS, _MACHINES = "artifacts", "machines"


class RunFiles:
    def __init__(self, home: Path) -> None:
        self._home = Home(home)

    def used(self) -> int:
        """Bytes of the files of all runs."""
        return sum(size for _, size in _files(self._home.path / "runs"))

    def sizes(self, run_id: str) -> dict[Part, Size]:
        found = {part: [0, 0] for part in Part}
        for path, size in _files(self._home.run(run_id)):
            counted = found[_part(path)]
            counted[0] += 1
            counted[1] += size
        return {part: Size(*counted) for part, counted in found.items()}

    def remove(self, run_id: str, part: Part, stop: Callable[[], bool]) -> Size:
        """Remove a part, as far as it is there; links are not followed. Returns what went, which is not all where `stop` said so."""
        folder = self._home.run(run_id)
        files = freed = 0
        for path, size in _files(folder):
            if stop():
                return Size(files, freed)
            if part in (Part.RUN, _part(path)):
                with suppress(FileNotFoundError):  # another process was faster
                    _unlink(folder / path)
                    files, freed = files + 1, freed + size
        if part is Part.RUN:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            _remove_empty(folder, _ARTIFACTS if part is Part.ARTIFACTS else _MACHINES)
        return Size(files, freed)


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Whatever is no folder, by its path below that one, and its size."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        for entry in _entries(folder / below):
            path = os.path.join(below, entry.name)
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                else:
                    yield path, entry.stat(follow_symlinks=False).st_size


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What a folder holds, also where its task took the right to look into it; nothing where it is gone."""
    try:
        return list(os.scandir(folder))
    except PermissionError:
        os.chmod(folder, 0o700)
        return list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _part(path: str) -> Part:
    """Which part a file belongs to: `<task>/<attempt>/artifacts/…`, `<task>/<attempt>/stdout.log`, `machines/…`, `controller.log`."""
    parts = path.split("/")
    if len(parts) > 3 and parts[2] == _ARTIFACTS:
        return Part.ARTIFACTS
    is_log = len(parts) == 3 and parts[2] in _LOGS
    is_run_log = len(parts) == 1 and path.startswith(_RUN_LOG)
    return Part.LOGS if is_log or is_run_log or (len(parts) > 1 and parts[0] == _MACHINES) else Part.RUN


def _unlink(path: Path) -> None:
    try:
        path.unlink()
    except PermissionError:
        os.chmod(path.parent, 0o700)
        path.unlink()


def _remove_empty(folder: Path, name: str) -> None:
    """Folders of that name, with what is empty below them."""
    for place in (folder / name, *folder.glob(f"*/*/{name}")):
        for below, _, _ in os.walk(place, topdown=False):
            with suppress(OSError):
                os.rmdir(below)
