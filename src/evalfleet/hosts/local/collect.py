"""Collects the files of an ended attempt from the spool of this machine.

Usually this is one rename of the whole folder. For an attempt with secrets, only the files that its runner checked are moved, one
by one, into a folder beside the destination, which is then renamed. After a kill, the next call continues there.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from evalfleet.hosts.late_redaction import redact
from evalfleet.hosts.protocol.manifest import manifest_of
from evalfleet.runner.attempt.collect import FILES, MAX_DEPTH
from evalfleet.runner.safe_files import FOLDER_FLAGS, READ_FLAGS, enter, open_folder, open_regular, parts_of, walk

_EVERY = 1 << 30


def collect_files(source: Path, destination: Path, secrets: Mapping[str, str], *, listed_only: bool) -> None:
    """Collect the files. Does nothing if an earlier controller has collected them all.

    Args:
        secrets: removed from the files that are moved.
        listed_only: move the files that every attempt has and the artifacts that the end record lists, and nothing else.

    Raises OSError.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    if not listed_only and not secrets:
        _move_folder(source, destination)
        return
    partial = destination.with_name(f"{destination.name}.partial")
    try:
        here = open_folder(str(source))
    except FileNotFoundError:
        if partial.is_dir():  # all but the last step was done
            _complete(partial, destination, secrets)
        return
    try:
        listed = _listed(here, partial, destination)
        if listed is None:
            return
        _move_files(here, partial, listed)
    finally:
        os.close(here)
    _complete(partial, destination, secrets)


def _complete(partial: Path, destination: Path, secrets: Mapping[str, str]) -> None:
    if secrets:
        redact(partial, secrets)
    partial.rename(_free(destination))


def _free(destination: Path) -> Path:
    """A free name for the folder. The files of a lost attempt may be there already when its end arrives late; both are kept."""
    return destination.with_name(f"{destination.name}.late") if destination.exists() else destination


def _listed(here: int, partial: Path, destination: Path) -> list[str] | None:
    """The files to collect, as paths in the attempt's folder; None if all of them have been collected.

    The journal comes last: while it is there, the runner reports the attempt.

    Raises OSError: its end is not known.
    """
    try:
        journal = open_regular("journal.jsonl", here)
    except FileNotFoundError:
        if not partial.is_dir() and destination.is_dir():
            return None
        journal = open_regular(str(partial / "journal.jsonl"))  # an earlier try moved it
    try:
        manifest = manifest_of(journal)
    finally:
        os.close(journal)
    kept = [name for name in reversed(FILES) if name not in manifest.unclean]
    wanted = {path for path, _ in manifest.artifacts}
    if not wanted:
        return kept
    try:
        artifacts = open_folder("artifacts", here)
    except OSError:
        return kept
    try:
        files, _ = walk(artifacts, _EVERY, MAX_DEPTH)
    finally:
        os.close(artifacts)
    return [*(f"artifacts/{path}" for path, _ in files if _shown(path) in wanted), *kept]


def _shown(path: str) -> str:
    """The path as the end record lists it: a file name may not be valid UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _move_folder(source: Path, destination: Path) -> None:
    """Use one rename, so that either all files arrive or none."""
    try:
        source.rename(destination)
    except FileNotFoundError:
        return
    except OSError as error:
        destination = _free(destination)
        if error.errno == errno.EXDEV:
            _copy_folder(source, destination)
            return
        _open_up(source)
        source.rename(destination)


def _copy_folder(source: Path, destination: Path) -> None:
    """Copy the folder. Files in `partial` from an earlier try exist nowhere else and are kept."""
    partial = destination.with_name(f"{destination.name}.partial")
    _open_up(source)
    here = open_folder(str(source))
    try:
        files, _ = walk(here, _EVERY, _EVERY)
        _move_files(here, partial, (path for path, _ in files))
    finally:
        os.close(here)
    partial.rename(destination)


def _move_files(here: int, partial: Path, paths: Iterable[str]) -> None:
    (partial / "artifacts").mkdir(parents=True, exist_ok=True)
    there = open_folder(str(partial))
    try:
        for path in paths:
            *above, name = parts_of(path)
            opened: list[int] = []
            try:
                opened.append(enter(here, above))
                opened.append(enter(there, above, make=True))
                _move_file(opened[0], opened[1], name)
            except FileNotFoundError:
                continue  # no attempt has all of them, and an earlier try moved some
            finally:
                for fd in opened:
                    os.close(fd)
    finally:
        os.close(there)


def _move_file(here: int, there: int, name: str) -> None:
    if not stat.S_ISREG(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
        return
    try:
        os.rename(name, name, src_dir_fd=here, dst_dir_fd=there)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_file(here, there, name)
    if not stat.S_ISREG(os.stat(name, dir_fd=there, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=there)  # it was swapped for a link, or the like


def _copy_file(here: int, there: int, name: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with (
        open(os.open(name, READ_FLAGS, dir_fd=here), "rb") as file,
        open(os.open(name, flags, 0o600, dir_fd=there), "wb") as copy,
    ):
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            shutil.copyfileobj(file, copy, 1 << 20)


def _open_up(folder: Path) -> None:
    """Restore access to folders whose permissions the task removed. Follows no links."""
    _open_up_below(os.open(folder, os.O_PATH | FOLDER_FLAGS))


def _open_up_below(folder: int) -> None:
    """Takes ownership of the descriptor, which may have been opened with O_PATH."""
    try:
        os.chmod(f"/proc/self/fd/{folder}", 0o700)
        here = os.open(".", FOLDER_FLAGS, dir_fd=folder)
        try:
            for name in os.listdir(here):
                if stat.S_ISDIR(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
                    _open_up_below(os.open(name, os.O_PATH | FOLDER_FLAGS, dir_fd=here))
        finally:
            os.close(here)
    finally:
        os.close(folder)
