"""Whether the programs of a run's tasks are there, asked before anything is written. For runs on this machine only.

A bare name must be on the task's PATH, as the launch looks for it. A program named by a path may be made by an earlier task, so it
is missed only where no task of the run could start: then nothing can make it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from evalfleet.errors import InputError
from evalfleet.model import PYTHON, TaskSpec

_DEFAULT_PATH = (
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # the runner's own, where a task has none
)


class Programs:
    """
    Args:
        folder: where the tasks start.
        env: what they inherit.
    """

    def __init__(self, folder: str, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._env = env
        self._known: dict[tuple[str, str], bool] = {}

    def checked(self, tasks: Iterable[TaskSpec]) -> Iterator[TaskSpec]:
        """The same tasks. Raises InputError with a task whose program is not there, at the latest after the last one."""
        missing: TaskSpec | None = None
        starts = False
        for task in tasks:
            program = task.command[0]
            if program == PYTHON or self._is_there(program, task):
                starts = True
            elif "/" not in program:
                raise InputError(
                    f"task {task.key!r} starts {program!r}, and there is no such program on its PATH ({self._path(task)}). "
                    "Nothing was submitted. Install it, or correct the command; a program that another task of the run makes is "
                    "named by its path."
                )
            else:
                missing = missing or task
            yield task
        if missing is not None and not starts:
            raise InputError(
                f"task {missing.key!r} starts {missing.command[0]!r}, and there is no such file "
                f"({os.path.join(self._folder, missing.command[0])}), nor is there one for any other task. Nothing was "
                "submitted. Correct the path; it is relative to the task file's folder."
            )

    def _path(self, task: TaskSpec) -> str:
        return task.env.get("PATH", self._env.get("PATH", _DEFAULT_PATH))

    def _is_there(self, program: str, task: TaskSpec) -> bool:
        path = "" if "/" in program else self._path(task)
        found = self._known.get((program, path))
        if found is None:
            places = path.split(os.pathsep) if path else [""]
            found = any(os.path.exists(os.path.join(self._folder, place, program)) for place in places)
            self._known[program, path] = found
        return found
