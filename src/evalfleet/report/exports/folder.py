"""Writing an export: the folder is there whole, or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import json

from evalfleet.answers.server import Exported
from evalfleet.answers.task_result import TaskResult
from evalfleet.errors import InputError
from evalfleet.layout import Home
from evalfleet.model import Run
from evalfleet.report.exports.source import Source, read
from evalfleet.store.reader import StoreReader

FORMATS = {"evalfleet": "native", "csv": "tables", "junit": "junit", "waa": "waa"}
"""The name of each format, and its module, with `write(source, folder)` that returns what is worth telling."""


_MARK = ".evalfleet-export"  # in the folder while it is written: what is left with it may be removed


def export(store: StoreReader, run: Run, home: Path, to: str, format: str) -> Exported:
    """Write a run as it stands to the new folder `to`, and nothing outside of it.

    Raises:
        InputError: `to` exists and is not an empty folder, lies among the home's own files, or another export to it is
            at work.
        OSError: it cannot be written; nothing is left.
    """
    write: Callable[[Source, Path], list[str]] = import_module(f"evalfleet.report.exports.{FORMATS[format]}").write
    source = read(store, run, home)
    with _new_folder(to, Home(home)) as (target, partial):
        notes = write(source, partial)
        sizes = [path.lstat().st_size for path in partial.rglob("*") if path.is_file() and path.name != _MARK]
    tasks = source.summary.tasks
    return Exported(
        run=run.id,
        state=source.summary.state,
        format=format,
        to=str(target),
        files=len(sizes),
        bytes=sum(sizes),
        unfinished=tasks.queued + tasks.running,
        notes=notes,
    )


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(json.format(json.encode(value), indent=2) + b"\n")


def write_json_lines(path: Path, objects: Any) -> None:
    with path.open("xb") as file:
        file.writelines(json.encode(one) + b"\n" for one in objects)


def error_of(result: TaskResult) -> str | None:
    """Why a task has no verdict, in a line; None if it has one."""
    if result.state == "done":
        return None
    failure = result.failure
    return result.reason or (f"{failure.kind}: {failure.evidence}" if failure else result.state)


@contextmanager
def _new_folder(to: str, home: Home) -> Generator[tuple[Path, Path]]:
    """The folder that is wanted, and the one to write to, which becomes it at the end."""
    target = _checked(to, home)
    partial = target.with_name(f"{target.name}.partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = _claimed(partial)
    try:
        yield target, partial
        (partial / _MARK).unlink()
        os.rename(partial, target)  # also onto an empty folder; one that was filled meanwhile is an error
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def _claimed(partial: Path) -> int:
    """Make the folder, empty but for our mark, and lock it; what a killed export left there goes. Returns the lock."""
    refused = InputError(
        f"--to: {partial} is there already, and no export made it; remove it, or choose another folder"
    )
    with suppress(FileExistsError):
        partial.mkdir()
    try:
        lock = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        raise refused from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gone = not os.path.samestat(os.fstat(lock), partial.lstat())
        except (BlockingIOError, FileNotFoundError):
            gone = True
        if gone:
            raise InputError(
                f"--to: another export to {partial.with_suffix('')} is at work; wait for its end"
            ) from None
        left = {path.name for path in partial.iterdir()}
        if left and _MARK not in left:
            raise refused
        for name in left:
            path = partial / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif name != _MARK:
                path.unlink()
        (partial / _MARK).touch()
    except BaseException:
        os.close(lock)
        raise
    return lock


def _checked(to: str, home: Home) -> Path:
    if not to:
        raise InputError("--to: no folder is named")
    target = Path(to).resolve()
    for own in (home.path / "runs", home.spool):
        if target.is_relative_to(own.resolve()):
            raise InputError(f"--to: {target} lies among the home's own files; choose another folder")
    if target.is_dir():
        if any(target.iterdir()):
            raise InputError(f"--to: {target} is not empty; choose a new folder, or empty it")
    elif target.exists():
        raise InputError(f"--to: {target} is not a folder")
    return target
