"""A file that names tasks of a benchmark, for `run --tasks-file`.

One task name or episode key per line, with `#` before comments; or JSON: a list of names, or an object of domains with
lists of their tasks, as Windows Agent Arena writes them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, cast

from evalfleet.benchmarks.base import Benchmark
from evalfleet.benchmarks.selection import named
from evalfleet.errors import InputError
from evalfleet.validation import quoted, sentence, suggestion

_LARGEST = 16 << 20
_SHAPES = 'write one name per line, or JSON: ["name", …] or {"domain": ["name", …], …}'


def keys_in(file: str, benchmark: Benchmark) -> tuple[str, ...]:
    """Return the names and keys in the file's order; "-" is standard input.

    Raises:
        InputError: it cannot be read, is empty, or names a task that the benchmark does not have; says where.
    """
    shown = "--tasks-file" if file == "-" else f"--tasks-file {file}"
    known = {task.name for task in benchmark.catalogue()}
    keys: list[str] = []
    for where, names in _entries(_read(file, shown), shown):
        key = next((name for name in names if named(name, known)), None)
        if key is None:
            near = suggestion(names[-1], known)
            advice = near if near.endswith("?") else f"; `evalfleet benchmarks {benchmark.name}` lists the tasks"
            raise InputError(sentence(f"{where}: {benchmark.name} has no task {quoted(names[-1])}{advice}"))
        keys.append(key)
    if not keys:
        raise InputError(f"{shown}: names no task; {_SHAPES}.")
    return tuple(dict.fromkeys(keys))


def _read(file: str, shown: str) -> str:
    try:
        if file == "-":
            content = sys.stdin.buffer.read(_LARGEST + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InputError(f"{shown}: cannot be read: {reason}.") from None
    if len(content) > _LARGEST:
        raise InputError(f"{shown}: larger than {_LARGEST >> 20} MiB; {_SHAPES}.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{shown}: not UTF-8 (byte at offset {error.start}); save the file as UTF-8.") from None


def _entries(text: str, shown: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield where each entry stands, and the names that it may mean."""
    if text.lstrip().startswith(("{", "[")):
        yield from _json_entries(text, shown)
        return
    for number, line in enumerate(text.splitlines(), 1):
        name = line.partition("#")[0].strip()
        if name:
            yield f"{shown}, line {number}", (name,)


def _json_entries(text: str, shown: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(f"{shown}{place}: not valid JSON; {_SHAPES}.") from None
    by_domain = cast("dict[str, Any]", {"": value} if isinstance(value, list) else value)
    for domain, names in by_domain.items():
        where = f"{shown}, {quoted(domain)}" if domain else shown
        if not isinstance(names, list):
            _refuse(where)
        for name in cast("list[Any]", names):
            if not isinstance(name, str) or not name:
                _refuse(where)
            yield where, (f"{domain}/{name}", name) if domain else (name,)


def _refuse(where: str) -> NoReturn:
    raise InputError(f"{where}: expected a list of names in quotes; {_SHAPES}.")
