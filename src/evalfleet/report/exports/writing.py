"""Writing an export: the folder is there whole, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict

from evalfleet.errors import InputError
from evalfleet.layout import Home
from evalfleet.model import JsonObject, Run
from evalfleet.report.exports.source import Source, read
from evalfleet.store.base import StoreReader

FORMATS = {"evalfleet": "native", "csv": "tables", "junit": "junit", "waa": "waa"}
"""The name of each format, and its module, with `write(source, folder)` that returns what is worth telling."""


class Exported(TypedDict):
    run: str
    state: str
    format: str
    to: str
    files: int
    bytes: int
    unfinished: int
    notes: list[str]


def export(store: StoreReader, run: Run, home: Path, to: str, format: str) -> Exported:
    """Write a run as it stands to the new folder `to`, and nothing outside of it.

    Raises:
        InputError: `to` exists and is not an empty folder, lies among the home's own files, or another export to it is
            at work or was killed.
        OSError: it cannot be written; nothing is left.
    """
    write: Callable[[Source, Path], list[str]] = import_module(f"evalfleet.report.exports.{FORMATS[format]}").write
    source = read(store, run, home)
    with _new_folder(to, Home(home)) as (target, partial):
        notes = write(source, partial)
        sizes = [path.lstat().st_size for path in partial.rglob("*") if path.is_file()]
    tasks = source.summary["tasks"]
    return {
        "run": run.id,
        "state": source.summary["state"],
        "format": format,
        "to": str(target),
        "files": len(sizes),
        "bytes": sum(sizes),
        "unfinished": tasks["queued"] + tasks["running"],
        "notes": notes,
    }


def write_json(path: Path, value: Any) -> None:
    import json

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def write_json_lines(path: Path, objects: Any) -> None:
    import json

    with path.open("x", encoding="utf-8") as file:
        file.writelines(json.dumps(one) + "\n" for one in objects)


def error_of(result: JsonObject) -> str | None:
    """Why a task has no verdict, in a line; None if it has one."""
    if result["state"] == "succeeded":
        return None
    failure = result["failure"]
    return result["reason"] or (f"{failure['kind']}: {failure['evidence']}" if failure else result["state"])


@contextmanager
def _new_folder(to: str, home: Home) -> Generator[tuple[Path, Path]]:
    """The folder that is wanted, and the one to write to, which becomes it at the end."""
    target = _checked(to, home)
    partial = target.with_name(f"{target.name}.partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        partial.mkdir()
    except FileExistsError:
        raise InputError(
            f"--to: {partial} is there already: another export is at work, or was killed; if none is, remove it"
        ) from None
    try:
        yield target, partial
        os.rename(partial, target)  # also onto an empty folder; one that was filled meanwhile is an error
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


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
