"""A study as text: what the command line reads from a file and the API from a request."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalfleet.errors import InputError
from evalfleet.tune.study import Study, study_of
from evalfleet.validation import quoted


def study_in_toml(text: str, shown: str, *, parallel: int | None = None, trials: int | None = None) -> Study:
    """The study that a TOML text describes. What is given goes before what it says.

    Raises InputError, which begins with `shown` and names the line or the part.
    """
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{shown} is not TOML: {error}") from None
    return study_in_table(table, shown, parallel=parallel, trials=trials)


def study_in_table(
    table: Mapping[str, Any], shown: str, *, parallel: int | None = None, trials: int | None = None
) -> Study:
    """Like `study_in_toml`, of what was read already."""
    wanted = {"max_parallel_experiments": parallel, "trials": trials}
    given = {name: value for name, value in wanted.items() if value is not None}
    if isinstance(table.get("study"), dict):
        table = {**table, "study": {**table["study"], **given}}
    try:
        return study_of(table)
    except InputError as error:
        raise InputError(f"{shown}: {error}") from None


def require_files(study: Study, folder: Path, shown: str) -> None:
    """Raise InputError where a file that the study's trials need is not in its folder."""
    if missing := [name for name in study.files if not (folder / name).exists()]:
        raise InputError(f"{shown}: study.files: there is no {quoted(missing[0])} in {folder}")
