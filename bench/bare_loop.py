"""MiniWoB++ tasks in a bare loop, without evalfleet's engine: the floor for `make bench`.

    python bench/bare_loop.py playwright|cdp CHROMIUM FOLDER TASK...

One process, one task after the other: a fresh browser, the oracle, a screenshot per step on disk, the page's verdict. The
page, its waits and the oracle are those of evalfleet, so that both sides do the same work; what differs is who drives.
"playwright" is the Python library of that name; "cdp" is evalfleet's own browser, called directly. Exits 1 if a task does
not get the full score.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from evalfleet.actions import Action, Click, Drag, Move, Press, Scroll, Wait, Write
from evalfleet.agents.base import Decision, Observation, TaskPrompt
from evalfleet.agents.oracle import Oracle
from evalfleet.benchmarks.miniwob.benchmark import MAX_STEPS, pages
from evalfleet.benchmarks.miniwob.page import WINDOW, PageEpisode
from evalfleet.environments.browser import environment as cdp

Launch = Callable[[Path], AbstractContextManager[Any]]


class PlaywrightPage:
    """What `PageEpisode` needs of a browser, by Playwright."""

    def __init__(self, page: Any) -> None:
        self._page = page

    def open(self, url: str) -> None:
        self._page.goto(url)

    def evaluate(self, expression: str) -> Any:
        return self._page.evaluate(expression)

    def screenshot(self, size: Any) -> bytes:
        return self._page.screenshot(clip={"x": 0, "y": 0, "width": size.width, "height": size.height})

    def perform(self, action: Action) -> None:
        mouse, keyboard = self._page.mouse, self._page.keyboard
        match action:
            case Click():
                for key in action.held:
                    keyboard.down(key)
                mouse.click(action.x, action.y, click_count=action.count)
                for key in action.held:
                    keyboard.up(key)
            case Move():
                mouse.move(action.x, action.y)
            case Drag():
                mouse.move(action.x, action.y)
                mouse.down()
                mouse.move(action.to_x, action.to_y, steps=5)
                mouse.up()
            case Scroll():
                mouse.move(action.x, action.y)
                mouse.wheel(action.dx, action.dy)
            case Write():
                keyboard.type(action.text)
            case Press():
                for _ in range(action.times):
                    keyboard.press("+".join((*action.held, action.key)))
            case Wait():
                time.sleep(action.seconds)


@contextmanager
def playwright(chromium: str) -> Iterator[Launch]:
    """Start Playwright's driver once; its browsers are launched with the flags of ours, less those of the pipe."""
    api: Any = import_module("playwright.sync_api")
    own = ("--remote-debugging-pipe", "--no-startup-window", "--headless")
    flags = [flag for flag in cast("tuple[str, ...]", getattr(cdp, "_FLAGS")) if flag not in own]  # noqa: B009 - it is private

    with api.sync_playwright() as driver:

        @contextmanager
        def launch(_folder: Path) -> Iterator[PlaywrightPage]:
            browser = driver.chromium.launch(executable_path=chromium, args=flags)
            try:
                size = {"width": WINDOW.width, "height": WINDOW.height}
                yield PlaywrightPage(browser.new_page(viewport=size, locale="en-US", timezone_id="UTC"))
            finally:
                browser.close()

        yield launch


@contextmanager
def direct(chromium: str) -> Iterator[Launch]:
    @contextmanager
    def launch(folder: Path) -> Iterator[Any]:
        with cdp.launched(chromium, folder, WINDOW) as browser:
            yield browser.page

    yield launch


def solve(launch: Launch, task: str, folder: Path) -> float:
    """Play one episode, and return its score."""
    place = pages()
    assert place is not None
    folder.mkdir(parents=True)
    with launch(folder) as browser:
        episode = PageEpisode(browser, place / f"{task}.html", 0)
        agent = Oracle(TaskPrompt(benchmark="miniwob", task=task, goal=episode.goal, seed=0))
        verdict, step = None, 0
        while verdict is None and step < MAX_STEPS:
            step += 1
            observation = episode.observe(step)
            decision = agent.act(observation)
            _keep(folder / f"step_{step}.png", observation)
            verdict = _performed(episode, decision)
        _keep(folder / "final.png", episode.observe(step + 1))
        verdict = episode.verdict()
    return verdict.score if verdict else 0.0


def _performed(episode: PageEpisode, decision: Decision) -> Any:
    for action in decision.actions:
        episode.perform(action)
        verdict = episode.verdict()
        if verdict is not None:
            return verdict
    return None


def _keep(path: Path, observation: Observation) -> None:
    path.write_bytes(observation.screenshot)


def main() -> int:
    driver, chromium, folder, *tasks = sys.argv[1:]
    with (playwright if driver == "playwright" else direct)(chromium) as launch:
        failed = [task for task in tasks if solve(launch, task, Path(folder) / task) != 1.0]
    if failed:
        print(f"bare_loop: no full score for {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
