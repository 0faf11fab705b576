"""MiniWoB++: 130 small web pages, each with a goal, a seed and a reward of its own.

The pages come from the package `miniwob`, of which only the HTML is used: its Python code, with gymnasium and
selenium, is never imported.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evalfleet.agents.oracle import solvable
from evalfleet.benchmarks.base import Episode, Requirement, Selection, TaskInfo, Tools
from evalfleet.config import Settings
from evalfleet.environments.browser.environment import INSTALL, NAMES, find_chromium, launched
from evalfleet.errors import InputError

PACKAGE = "miniwob==1.1.0"
MAX_STEPS = 30
TIMEOUT = "5m"


def pages() -> Path | None:
    """Return the folder with the task pages, without importing the package; None where it is not installed."""
    try:
        spec = find_spec("miniwob")
    except (ImportError, ValueError):  # something else of that name, half imported
        return None
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(place) / "html" / "miniwob"
        if folder.is_dir():
            return folder
    return None


class Miniwob:
    """Implements `Benchmark`."""

    name = "miniwob"
    title = "MiniWoB++: small tasks on web pages, in headless Chromium"
    tools = Tools(bare=(PACKAGE,))

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._chromium = settings.browser.chromium  # None: looked for on PATH

    def requirements(self) -> Sequence[Requirement]:
        configured = self._chromium
        chromium = find_chromium(configured)
        folder = pages()
        missing = f"no {configured}, which is configured" if configured else f"none of {', '.join(NAMES)} on PATH"
        return [
            Requirement(what="Chromium", present=chromium is not None, found=chromium or missing, install=INSTALL),
            Requirement(
                what=f"the package {PACKAGE}",
                present=folder is not None,
                found=str(folder) if folder else f"not installed for {sys.executable}",
                install=f"pip install {PACKAGE}",
                here=True,
            ),
        ]

    def catalogue(self) -> Sequence[TaskInfo]:
        folder = pages()
        names = sorted(page.stem for page in folder.glob("*.html")) if folder else []
        solved = solvable(self.name)
        return [TaskInfo(name=name, domain=name.partition("-")[0], oracle=name in solved) for name in names]

    def settings(self, selection: Selection) -> Mapping[str, Any]:
        from evalfleet.benchmarks.episodes import episode_settings

        return episode_settings(self.name, selection, timeout=TIMEOUT, quiet="2m")

    def tasks(self, selection: Selection) -> Sequence[Mapping[str, Any]]:
        from evalfleet.benchmarks.episodes import episode_tasks
        from evalfleet.benchmarks.selection import choose  # not on the worker: it brings what reads task files

        return episode_tasks(
            self.name,
            choose(self.name, self.catalogue(), selection),
            selection,
            self._settings,
            max_steps=MAX_STEPS,
            timeout=TIMEOUT,
            payload={"chromium": self._chromium} if self._chromium else {},
        )

    @contextmanager
    def episode(self, payload: Mapping[str, Any], folder: Path) -> Generator[Episode]:
        from evalfleet.benchmarks.miniwob.page import WINDOW, PageEpisode

        place = pages()
        if place is None:
            raise InputError(f"the package {PACKAGE} is not installed here; pip install {PACKAGE}")
        configured = payload.get("chromium")
        chromium = find_chromium(configured)
        if chromium is None:
            raise InputError(f"there is no {configured or 'Chromium'} here; {INSTALL}")
        with launched(chromium, folder, WINDOW) as browser:
            yield PageEpisode(browser.page, place / f"{payload['task']}.html", payload["seed"])
