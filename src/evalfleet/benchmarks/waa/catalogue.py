"""Which tasks there are: the 154 of WAA's `test_all.json`, or a list of the user's; and the task files of a checkout."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from evalfleet.benchmarks.base import TaskInfo
from evalfleet.errors import InputError

ALL = "test_all.json"
FOLDER = "evaluation_examples_windows"
_INDEX = Path(__file__).with_name("index.json")
_PLACES = (f"src/win-arena-container/client/{FOLDER}", f"client/{FOLDER}", FOLDER, ".")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", re.ASCII)  # safe as a folder's and a file's name

Domains = Mapping[str, Sequence[str]]


def index() -> Domains:
    """All tasks that WAA has, by domain, in its order."""
    return json.loads(_INDEX.read_text("utf-8"))


def infos(domains: Domains) -> list[TaskInfo]:
    return [
        TaskInfo(name=f"{domain}/{task}", domain=domain, oracle=False)
        for domain, ids in domains.items()
        for task in ids
    ]


def parse_list(text: str, where: str) -> Domains:
    """Read a list of tasks, `{domain: [id, …]}`. Raises InputError."""
    found = _json(text, where)
    if not isinstance(found, dict):
        raise InputError(f'{where}: expected an object such as {{"notepad": ["<id>"]}}.')
    domains = cast("dict[str, Any]", found)
    for domain, ids in domains.items():
        if not isinstance(ids, list) or not all(isinstance(one, str) for one in cast("list[Any]", ids)):
            raise InputError(f"{where}: {domain!r} must hold a list of ids.")
        for name in (domain, *cast("list[str]", ids)):
            if not _NAME.fullmatch(name):
                raise InputError(f"{where}: {name!r} cannot be the name of a domain or task.")
        twice = {one for one in cast("list[str]", ids) if cast("list[str]", ids).count(one) > 1}
        if twice:
            raise InputError(f"{where}: {domain}/{min(twice)} is listed twice; remove one.")
    if not any(domains.values()):
        raise InputError(f"{where}: names no tasks.")
    return domains


class Checkout:
    """A user's copy of WAA: its lists and task files."""

    def __init__(self, root: str) -> None:
        """Raises InputError: there is no such folder, or it is not WAA."""
        place = Path(root).expanduser().absolute()
        if not place.is_dir():
            raise InputError(f"option checkout: there is no folder {root}.")
        found = next((place / way for way in _PLACES if (place / way / "examples").is_dir()), None)
        if found is None:
            raise InputError(
                f"option checkout: {root} is not a checkout of WindowsAgentArena: it has no {FOLDER}/examples."
            )
        self._folder = found

    def domains(self, name: str) -> Domains:
        """The tasks of a list. Raises InputError."""
        if not _NAME.fullmatch(name):
            raise InputError(f"option list: {name!r} is not the name of a file in {FOLDER}, such as test_small.json.")
        path = self._folder / name
        if not path.is_file():
            known = ", ".join(sorted(each.name for each in self._folder.glob("*.json"))) or "none"
            raise InputError(f"option list: there is no {name} in {self._folder}; there: {known}.")
        return parse_list(_text(path), str(path))

    def instruction(self, task: str) -> str:
        """What the agent is told to do. Raises InputError: the task's file is missing or broken."""
        path = self._folder / "examples" / f"{task}.json"
        if not path.is_file():
            raise InputError(
                f"task {task}: there is no {path}; the list and the task files of the checkout do not match."
            )
        found = _json(_text(path), str(path))
        said = cast("dict[str, Any]", found).get("instruction") if isinstance(found, dict) else None
        if not isinstance(said, str) or not said.strip():
            raise InputError(f'{path}: expected an object with "instruction", a text.')
        return said


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at offset {error.start}.") from None


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{where}: not valid JSON: {error}.") from None
