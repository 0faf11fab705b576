"""A study file, as it lies on the disk."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from evalfleet.errors import InputError
from evalfleet.schema import quoted
from evalfleet.tune.study import Study, study_of


def read_study(file: str, *, parallel: int | None = None, trials: int | None = None) -> tuple[Study, str]:
    """The study, and the folder that its commands start in. What is given goes before what the file says.

    Raises InputError, which names the file, the part and what to do.
    """
    path = Path(file)
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no study file {quoted(file)}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{quoted(file)} is not TOML: {error}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {quoted(file)}: {getattr(error, 'strerror', None) or error}") from None
    wanted = {"max_parallel_experiments": parallel, "trials": trials}
    given = {name: value for name, value in wanted.items() if value is not None}
    if isinstance(table.get("study"), dict):
        table["study"] = {**table["study"], **given}
    try:
        study = study_of(table)
    except InputError as error:
        raise InputError(f"{quoted(file)}: {error}") from None
    folder = path.absolute().parent
    if missing := [name for name in study.files if not (folder / name).exists()]:
        raise InputError(f"{quoted(file)}: study.files: there is no {quoted(missing[0])} beside it")
    return study, str(folder)


def read_places(text: str | None) -> tuple[int, ...]:
    """The GPUs that `--gpus` names, by index; () for all. Raises InputError."""
    if text is None:
        return ()
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise InputError(
            f"--gpus: {quoted(text)} is no list of indices; write such as 0,1,2,3 (`evalfleet gpus` shows them)"
        )
    return tuple(sorted({int(word) for word in words}))
