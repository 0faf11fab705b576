"""The task file: a public contract. TOML, or JSON Lines with one task per line.

Everything is checked before `load` returns, so that a submission starts with input that is known to be good. JSON
Lines are read twice, once to check and once when `Submission.tasks` is iterated, and never lie in memory as a
whole: a hundred thousand tasks cost no more than ten.

A JSON Lines file may begin with the line ``{"run": {…}}``, which holds what `[run]` holds in TOML.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
import weakref
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Protocol, cast

import msgspec
from msgspec import Struct

from evalfleet.errors import TaskFileError
from evalfleet.model import Policy, TaskSpec
from evalfleet.taskfile import row
from evalfleet.validation import quoted, sentence, suggestion

LONGEST_LINE = 1 << 20
LARGEST_TOML = 64 << 20
LARGEST_STREAM = 4 << 30
_JSON_LINES = frozenset({".jsonl", ".ndjson", ".json"})
_BOM = b"\xef\xbb\xbf"


class Tasks(Protocol):
    """The tasks of a submission, in order. May be iterated several times, one iteration at a time."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[TaskSpec]: ...


class Submission(Struct, frozen=True, kw_only=True):
    """What a person wants to be run, checked."""

    name: str
    policy: Policy
    tasks: Tasks
    folder: str  # where local attempts start: the task file's folder
    secrets: tuple[str, ...]  # names that any task asks for, sorted


def load(path: str | os.PathLike[str], stdin: BinaryIO | None = None) -> Submission:
    """Read and check a task file.

    Args:
        path: a file; "-" reads `stdin` and takes the current folder as the tasks' folder.
        stdin: bytes to read for "-"; the process's own where it is None.

    Raises:
        TaskFileError: names the file, the line or the task and field, what is wrong and what to do.
    """
    if os.fspath(path) == "-":
        file = _spooled(stdin or sys.stdin.buffer, "standard input")
        return _read(file, "standard input", "stdin", os.getcwd(), suffix="")
    place = Path(path)
    shown = str(place)
    folder = place.absolute().parent
    try:
        file = place.open("rb")
        if not file.seekable():  # a pipe, as in <(generate tasks); where it lies says nothing
            folder = Path.cwd()
            with file:
                file = _spooled(file, shown)
    except FileNotFoundError:
        raise TaskFileError(
            f"{shown}: there is no such file. Check the path, or write '-' for standard input."
        ) from None
    except IsADirectoryError:
        raise TaskFileError(f"{shown}: is a folder; name the task file in it.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise TaskFileError(f"{quoted(shown)}: cannot be read: {reason}.") from None
    return _read(file, shown, place.stem or "run", str(folder), suffix=place.suffix.lower())


def from_mappings(
    tasks: Iterable[Mapping[str, Any]],
    run: Mapping[str, Any] | None = None,
    *,
    folder: str,
    name: str,
    shown: str = "tasks",
) -> Submission:
    """Check tasks and run settings that are plain mappings with the keys of the task file.

    Raises:
        TaskFileError: as `load`; `shown` stands for the file's name.
    """
    settings = _settings(run, name, f"{shown}, [run]")
    given = row.defaults(run)
    specs: list[TaskSpec] = []
    numbers: dict[str, int] = {}
    for number, task in enumerate(tasks, 1):
        try:
            spec = row.from_mapping(task, given)
        except row.Problem as problem:
            key: Any = task.get("key") if isinstance(task, Mapping) else None  # pyright: ignore[reportUnnecessaryIsInstance] - it is from outside
            named = quoted(key) if isinstance(key, str) and key else f"number {number}"
            raise TaskFileError(f"{shown}, task {named}: {sentence(str(problem))}") from None
        size = len(msgspec.json.encode(spec))
        if size > LONGEST_LINE:
            raise TaskFileError(
                f"{shown}, task {quoted(spec.key)}: {size:,} bytes long as JSON, and {LONGEST_LINE:,} (1 MiB) is the most; "
                "put large data into a file and name it in the payload."
            )
        first = numbers.setdefault(spec.key, number)
        if first != number:
            raise TaskFileError(
                f"{shown}, task {quoted(spec.key)}: the key is used twice, by tasks number {first} and {number}; "
                "keys must differ within a run."
            )
        specs.append(spec)
    if not specs:
        _refuse_empty(shown)
    secrets = {secret for spec in specs for secret in spec.secrets}
    return Submission(name=settings[0], policy=settings[1], tasks=specs, folder=folder, secrets=tuple(sorted(secrets)))


def from_toml(text: str, *, folder: str, name: str, shown: str) -> Submission:
    """Check a task file that is a text already. Raises TaskFileError, as `load`; `shown` stands for the file's name."""
    return _read_toml(BytesIO(text.encode("utf-8", "replace")), shown, name, folder)


def _read(file: BinaryIO, shown: str, name: str, folder: str, *, suffix: str) -> Submission:
    json_lines = suffix in _JSON_LINES or (suffix != ".toml" and _looks_like_json(file))
    if json_lines and _is_list(file):
        with file:
            return _read_json_list(file, shown, name, folder)
    if json_lines:
        return _read_json_lines(file, shown, name, folder)
    with file:
        return _read_toml(file, shown, name, folder)


def _spooled(stream: BinaryIO, shown: str) -> BinaryIO:
    """Copy a stream to a nameless file that can be read twice."""
    from tempfile import TemporaryFile

    file = cast("BinaryIO", TemporaryFile())  # noqa: SIM115 - the caller owns it
    while block := stream.read(1 << 18):
        file.write(block)
        if file.tell() > LARGEST_STREAM:
            file.close()
            raise TaskFileError(f"{shown}: more than {LARGEST_STREAM >> 30} GiB; split the tasks over several runs.")
    file.seek(0)
    return file


def _looks_like_json(file: BinaryIO) -> bool:
    start = file.read(4096).removeprefix(_BOM).lstrip()
    file.seek(0)
    return re.match(rb"\{|\[\s*\{", start) is not None


def _is_list(file: BinaryIO) -> bool:
    """Whether it begins as one JSON list, as other programs write it, and not as a line per task."""
    start = file.read(4096).removeprefix(_BOM).lstrip()
    file.seek(0)
    return start.startswith(b"[")


def _read_json_list(file: BinaryIO, shown: str, name: str, folder: str) -> Submission:
    content = file.read(LARGEST_TOML + 1)
    if len(content) > LARGEST_TOML:
        raise TaskFileError(
            f"{shown}: a list larger than {LARGEST_TOML >> 20} MiB; write one task per line (jq -c '.[]' does it)."
        )
    try:
        rows: Any = json.loads(content.removeprefix(_BOM), object_pairs_hook=row.single)
    except row.Doubled as problem:
        raise TaskFileError(f"{shown}: {problem}.") from None
    except UnicodeDecodeError as error:
        raise TaskFileError(f"{shown}: not UTF-8 (byte at offset {error.start}); save the file as UTF-8.") from None
    except json.JSONDecodeError as error:
        raise TaskFileError(
            f"{shown}, line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}."
        ) from None
    except RecursionError:
        raise TaskFileError(f"{shown}: nested too deeply.") from None
    run = rows[0].get("run") if rows and isinstance(rows[0], dict) and rows[0].keys() == {"run"} else None
    return from_mappings(rows if run is None else rows[1:], run, folder=folder, name=name, shown=shown)


def _refuse_empty(shown: str) -> NoReturn:
    raise TaskFileError(f"{shown}: there are no tasks; write at least one [[task]] (TOML) or one line (JSON Lines).")


def _settings(run: Any, name: str, where: str) -> tuple[str, Policy]:
    try:
        given, policy = row.policy(run)
    except row.Problem as problem:
        raise TaskFileError(f"{where}: {sentence(str(problem))}") from None
    return given or name, policy


# --- TOML


def _read_toml(file: BinaryIO, shown: str, name: str, folder: str) -> Submission:
    content = file.read(LARGEST_TOML + 1)
    if len(content) > LARGEST_TOML:
        raise TaskFileError(
            f"{shown}: larger than {LARGEST_TOML >> 20} MiB; write the tasks as JSON Lines (.jsonl) instead."
        )
    document = _parse_toml(content.removeprefix(_BOM), shown)
    for key in document:
        if key not in ("run", "task"):
            advice = "; write it under [run]" if key in row.RUN_KEYS else suggestion(key, ("run", "task"))
            if "study" in document and key in ("study", "parameters", "trial"):
                raise TaskFileError(f"{shown}: is a study, not a task file: `evalfleet tune {shown}`.")
            raise TaskFileError(f"{shown}: unknown key {quoted(key)} at the top{advice}.")
    if isinstance(document.get("run"), list):
        raise TaskFileError(f"{shown}: [[run]] stands in double brackets; write [run], once.")
    tasks = document.get("task", [])
    if isinstance(tasks, dict):
        raise TaskFileError(f"{shown}: [task] stands in single brackets; write [[task]] above each task.")
    if not isinstance(tasks, list):
        raise TaskFileError(f"{shown}: task: expected [[task]] tables.")
    return from_mappings(cast("list[Any]", tasks), document.get("run"), folder=folder, name=name, shown=shown)


def _parse_toml(content: bytes, shown: str) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{content[error.start]:02x} at offset {error.start}"
        raise TaskFileError(f"{shown}, line {line}: not UTF-8 ({found}); save the file as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        match = re.fullmatch(r"(.*?) \(at (?:line (\d+), column (\d+)|(.*))\)", str(error), re.DOTALL)
        text, line, column, place = match.groups() if match else (str(error), None, None, None)
        where = f"line {line}, column {column}" if line else place or "somewhere"
        raise TaskFileError(f"{shown}, {where}: not valid TOML: {text}.") from None
    except RecursionError:
        raise TaskFileError(f"{shown}: not usable TOML: nested too deeply.") from None


# --- JSON Lines


class _JsonLines:
    """Tasks of a checked JSON Lines file, decoded anew on each iteration."""

    def __init__(self, file: BinaryIO, shown: str, *, header: int, given: row.Defaults) -> None:
        self._file = file
        self._given = given
        self._shown = shown
        self._header = header  # number of the line with the run's settings, or 0
        self._seen = _stamp(file)
        self._count = 0
        self.secrets: set[str] = set()
        weakref.finalize(self, file.close)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[TaskSpec]:
        for _, spec in self._numbered():
            yield spec
        if _stamp(self._file) != self._seen:
            raise TaskFileError(
                f"{self._shown}: changed while it was read; nothing was submitted. Run the command again."
            )

    def check(self) -> None:
        """Read all lines once. Raises what is wrong with the first bad one."""
        hashes: set[int] = set()  # of the keys, which themselves would take several times the memory
        for number, spec in self._numbered(closely=True):
            digest = hash(spec.key)
            if digest in hashes:
                self._refuse_duplicate(spec.key, number)
            hashes.add(digest)
            self.secrets.update(spec.secrets)
        self._count = len(hashes)
        if not hashes:
            _refuse_empty(self._shown)

    def _numbered(self, *, closely: bool = False) -> Iterator[tuple[int, TaskSpec]]:
        decode = row.decode_line_closely if closely else row.decode_line
        for number, line in _lines(self._file, self._shown):
            if number == self._header:
                continue
            try:
                yield number, decode(line, self._given)
            except (row.Problem, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                _refuse_line(self._shown, number, line, error)

    def _refuse_duplicate(self, key: str, number: int) -> None:
        first = next((n for n, spec in self._numbered() if spec.key == key), number)
        if first < number:
            raise TaskFileError(
                f"{self._shown}, line {number}: the task key {quoted(key)} is used twice, "
                f"on lines {first} and {number}; keys must differ within a run."
            )


def _read_json_lines(file: BinaryIO, shown: str, name: str, folder: str) -> Submission:
    try:
        header, run = _header(file, shown)
        settings = _settings(run, name, f"{shown}, line {header}, run")
        tasks = _JsonLines(file, shown, header=header, given=row.defaults(run))
        tasks.check()
    except BaseException:
        file.close()
        raise
    return Submission(
        name=settings[0], policy=settings[1], tasks=tasks, folder=folder, secrets=tuple(sorted(tasks.secrets))
    )


def _header(file: BinaryIO, shown: str) -> tuple[int, Any]:
    """Return the number and content of a first line with the run's settings, else 0 and None."""
    number, line = next(_lines(file, shown), (0, b""))
    if b'"run"' not in line:
        return 0, None
    try:
        content: Any = msgspec.json.decode(line)
        row.refuse_doubles(line, content)
    except (row.Problem, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _refuse_line(shown, number, line, error)
    if not isinstance(content, dict) or "run" not in content:
        return 0, None
    settings = cast("dict[str, Any]", content)
    others = sorted(settings.keys() - {"run"})
    if others:
        raise TaskFileError(
            f'{shown}, line {number}: {quoted(others[0])} stands beside "run"; '
            "write the run's settings on a line of their own."
        )
    return number, settings["run"]


def _lines(file: BinaryIO, shown: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers, from the start of the file."""
    file.seek(0)
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            size = len(line)
            while not line.endswith(b"\n") and (line := file.readline(LONGEST_LINE)):
                size += len(line)
            raise TaskFileError(
                f"{shown}, line {number}: {size:,} bytes long, and {LONGEST_LINE:,} (1 MiB) is the most; "
                "put large data into a file that the task reads."
            )
        if number == 1:
            line = line.removeprefix(_BOM)
        if not line.isspace() and line:
            yield number, line


def _refuse_line(shown: str, number: int, line: bytes, error: Exception) -> NoReturn:
    where = f"{shown}, line {number}"
    try:
        line.decode()
    except UnicodeDecodeError as bad:
        found = f"byte 0x{line[bad.start]:02x} at offset {bad.start} of the line"
        raise TaskFileError(f"{where}: not UTF-8 ({found}); save the file as UTF-8.") from None
    if isinstance(error, row.Problem):
        key = None if isinstance(error, row.Doubled) else _key_of(line)
        raise TaskFileError(f"{where}{f' (task {quoted(key)})' if key else ''}: {error}.") from None
    if isinstance(error, RecursionError):
        raise TaskFileError(f"{where}: nested too deeply.") from None
    text = str(error).removeprefix("JSON is malformed: ")
    if b"\0" in line:
        text = "it has a NUL byte"
    elif "surrogate" in text:
        text = "it has half of a surrogate pair (\\ud800 to \\udfff), which is not a character"
    elif "truncated" in text:
        text = "the object does not end on this line; write each task on one line"
    raise TaskFileError(f"{where}: not valid JSON: {text}.") from None


def _key_of(line: bytes) -> str | None:
    try:
        content: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    key = cast("dict[str, Any]", content).get("key") if isinstance(content, dict) else None
    return key if isinstance(key, str) else None


def _stamp(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns
