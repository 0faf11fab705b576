"""The benchmark `desk`, as a run sees it: its tasks, what they need, and the opening of an episode."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evalfleet.agents.oracle import solvable
from evalfleet.agents.registry import label
from evalfleet.benchmarks.base import Episode, Requirement, Selection, TaskInfo, Tools
from evalfleet.benchmarks.desk.settings import DeskSettings
from evalfleet.benchmarks.desk.task import BUILT_IN, DeskTask, load, parse
from evalfleet.config import Settings, environment
from evalfleet.environments.desktop import environment as desktop
from evalfleet.environments.desktop.vnc_server import NAME as VIEW
from evalfleet.errors import InputError, TaskFileError

MAX_STEPS = 50
TIMEOUT = "15m"
APPLICATIONS = {  # program -> Debian's package
    "mousepad": "mousepad",
    "galculator": "galculator",
    "pcmanfm": "pcmanfm",
    "xterm": "xterm",
    "soffice": "libreoffice-calc",
    "xclip": "xclip",
}
# Not looked for one by one: they make the sandbox, LibreOffice in GTK's looks, and letters that can be read.
_BESIDES = ("bubblewrap", "libreoffice-gtk3", "fonts-dejavu-core")
INSTALL = "apt-get install -y --no-install-recommends " + " ".join(
    dict.fromkeys((*desktop.PROGRAMS.values(), *APPLICATIONS.values(), *_BESIDES))
)


class Desk:
    """Implements `Benchmark`."""

    name = "desk"
    title = "Desk: everyday tasks in real applications, on a Linux desktop"
    tools = Tools()

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = settings.table("desk", DeskSettings).tasks  # a person's own tasks, None where there are none

    def requirements(self) -> Sequence[Requirement]:
        programs = [*desktop.PROGRAMS, *APPLICATIONS]
        missing = [program for program in programs if shutil.which(program) is None]
        return [
            Requirement(
                what="a desktop and its applications",
                present=not missing,
                found=f"no {', '.join(missing)} on PATH" if missing else ", ".join(programs),
                install=INSTALL,
            )
        ]

    def catalogue(self) -> Sequence[TaskInfo]:
        solved = solvable(self.name)
        return [TaskInfo(name=task.id, domain=task.domain, oracle=task.id in solved) for task in self._tasks()]

    def settings(self, selection: Selection) -> Mapping[str, Any]:
        return {
            "name": f"{self.name}-{label(selection.agent)}",
            "result": "required",
            "progress": "events",
            "timeout": TIMEOUT,
            "timeout_is_verdict": True,
            "stall": "5m",
            "start_timeout": "5m",
        }

    def tasks(self, selection: Selection) -> Sequence[Mapping[str, Any]]:
        from evalfleet.benchmarks.episodes import episode_tasks
        from evalfleet.benchmarks.selection import choose  # not on the worker: it brings what reads task files

        known = {task.id: task for task in self._tasks()}
        chosen = choose(self.name, self.catalogue(), selection)
        made = episode_tasks(self.name, chosen, selection, self._settings, max_steps=MAX_STEPS, timeout=TIMEOUT)
        for task in made:
            payload = task["payload"]
            payload |= {"domain": task["domain"], "definition": known[payload["task"]].definition}
        return made

    @contextmanager
    def episode(self, payload: Mapping[str, Any], folder: Path) -> Generator[Episode]:
        from evalfleet.benchmarks.desk.episode import DeskEpisode

        task = parse(payload["definition"], domain=payload["domain"], where=payload["task"])
        for need in self.requirements():
            if not need.present:
                raise InputError(f"desk cannot run here: {need.found}; {need.install}")
        with desktop.launched(folder, view=_view()) as fresh:
            yield DeskEpisode(fresh, task)

    def _tasks(self) -> list[DeskTask]:
        """Return the built-in tasks, then the person's own. Raises TaskFileError."""
        tasks = load(BUILT_IN)
        known = {task.id for task in tasks}
        for task in load(Path(self._folder)) if self._folder else ():
            if task.id in known:
                where = Path(self._folder or "", task.domain, f"{task.id}.json")
                raise TaskFileError(f"{where}: id: another task already has this id; rename this one.")
            known.add(task.id)
            tasks.append(task)
        return tasks


def _view() -> Path | None:
    """Where people can watch the attempt's desktop: beside its result. Outside an attempt nobody does."""
    result = environment().get("EVALFLEET_RESULT")
    return Path(result).parent / VIEW if result else None
