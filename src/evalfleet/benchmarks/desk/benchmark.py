"""The benchmark `desk`, as a run sees it: its tasks, what they need, and the opening of an episode."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import asdict

from evalfleet.agents.oracle import solvable
from evalfleet.benchmarks.base import Episode, ReadinessCheck, Requirement, Selection, TaskInfo, Tools, check_of
from evalfleet.benchmarks.desk.settings import DeskSettings
from evalfleet.benchmarks.desk.task import BUILT_IN, DeskTask, load, parse
from evalfleet.config import Settings, environment
from evalfleet.core.readiness import Update
from evalfleet.environments.desktop import environment as desktop
from evalfleet.environments.desktop.base import WindowedDesktop
from evalfleet.environments.desktop.vnc_server import NAME as VIEW
from evalfleet.environments.vm.settings import VmSettings
from evalfleet.errors import InputError, TaskFileError

MAX_STEPS = 50
TIMEOUT = "15m"
START_S = 300.0
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

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        table = settings.table("desk", DeskSettings)
        self._folder = table.tasks  # a person's own tasks, None where there are none
        self._vm = settings.table("vm", VmSettings) if table.environment == "vm" else None  # None: desktops
        self.tools = Tools(settings=self._tables()) if self._vm else Tools()

    def _tables(self) -> dict[str, Any]:
        """The settings that hosts need to make themselves ready."""
        return {"desk": {"environment": "vm"}, "vm": to_builtins(asdict(self._vm)) if self._vm else {}}

    def prepare(
        self, tell: Callable[[ReadinessCheck], None], say: Callable[[Update], None], _secrets: Mapping[str, str]
    ) -> list[ReadinessCheck]:
        if self._vm is not None:
            from evalfleet.environments.vm import checks

            return checks.prepare(self._vm, tell, say)
        found = [check_of(need) for need in self.requirements()]
        for check in found:
            tell(check)
        return found

    def recheck(self, _restarted: Collection[str]) -> list[ReadinessCheck]:
        if self._vm is not None:
            from evalfleet.environments.vm import checks

            return checks.recheck(self._vm)
        return [check_of(need) for need in self.requirements()]

    def requirements(self) -> Sequence[Requirement]:
        if self._vm is not None:
            from evalfleet.environments.vm import checks

            found, _ = checks.image_check(self._vm)
            return [Requirement(what=found.name, present=found.holds, found=found.seen, install=checks.INSTALL)]
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
        from evalfleet.benchmarks.episodes import episode_settings

        settings = episode_settings(self.name, selection, timeout=TIMEOUT, quiet="5m")
        # The first attempt on a host may have to boot the image.
        return settings | {"start_timeout": self._vm.boot_timeout_s + START_S if self._vm else START_S}

    def tasks(self, selection: Selection) -> Sequence[Mapping[str, Any]]:
        from evalfleet.benchmarks.episodes import episode_tasks
        from evalfleet.benchmarks.selection import choose  # not on the worker: it brings what reads task files

        known = {task.id: task for task in self._tasks()}
        chosen = choose(self.name, self.catalogue(), selection)
        made = episode_tasks(self.name, chosen, selection, self._settings, max_steps=MAX_STEPS, timeout=TIMEOUT)
        for task in made:
            payload = task["payload"]
            payload |= {"domain": task["domain"], "definition": known[payload["task"]].definition}
            if self._vm is not None:
                payload["vm"] = to_builtins(self._vm)
                task["requests"] = {"memory_mb": self._vm.request_mb}
        return made

    @contextmanager
    def episode(self, payload: Mapping[str, Any], folder: Path) -> Generator[Episode]:
        from evalfleet.benchmarks.desk.episode import DeskEpisode

        task = parse(payload["definition"], domain=payload["domain"], where=payload["task"])
        with self._opened(payload, folder) as fresh:
            yield DeskEpisode(fresh, task)

    def _opened(self, payload: Mapping[str, Any], folder: Path) -> AbstractContextManager[WindowedDesktop]:
        """A fresh desktop: in a guest where the payload describes one, else on this machine."""
        if "vm" in payload:
            from evalfleet.environments.vm import environment as vm

            return vm.launched(convert(payload["vm"], VmSettings), view=_view(), evidence=_artifacts())
        for need in self.requirements():
            if not need.present:
                raise InputError(f"desk cannot run here: {need.found}; {need.install}")
        return desktop.launched(folder, view=_view())

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


def _artifacts() -> Path | None:
    """Where the attempt leaves files for people."""
    folder = environment().get("EVALFLEET_ARTIFACTS")
    return Path(folder) if folder else None
