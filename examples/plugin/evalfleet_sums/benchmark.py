"""The benchmark `sums`: a screen shows a sum, and the agent types what it comes to."""

import random
import struct
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evalfleet.agents.base import Action, Box, Element, Observation, Point, Press, Write
from evalfleet.benchmarks.base import Episode, Requirement, Selection, TaskInfo
from evalfleet.benchmarks.episodes import episode_tasks
from evalfleet.benchmarks.selection import choose
from evalfleet.config import Settings
from evalfleet.model import Verdict
from evalfleet_sums.settings import SumsSettings

MAX_STEPS = 3
SMALL = 9
TASKS = {"two-small": 2, "two-large": 2, "five-small": 5, "five-large": 5}  # how many numbers
WIDTH, HEIGHT = 160, 40


class Sums:
    """Implements `Benchmark`."""

    name = "sums"
    title = "Sums: read some numbers, type what they come to"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sums = settings.table("sums", SumsSettings)

    def requirements(self) -> Sequence[Requirement]:
        return []  # nothing but Python

    def catalogue(self) -> Sequence[TaskInfo]:
        return [TaskInfo(name=name, domain=name.partition("-")[0], oracle=False) for name in TASKS]

    def settings(self, selection: Selection) -> Mapping[str, Any]:
        return {
            "name": f"{self.name}-{selection.agent}",
            "result": "required",
            "progress": "events",
            "timeout": self._sums.timeout_s,
            "timeout_is_verdict": True,
        }

    def tasks(self, selection: Selection) -> Sequence[Mapping[str, Any]]:
        chosen = choose(self.name, self.catalogue(), selection)
        tasks = episode_tasks(
            self.name, chosen, selection, self._settings, max_steps=MAX_STEPS, timeout=f"{self._sums.timeout_s}s"
        )
        # What the episode needs travels in the payload: a worker has no configuration file.
        return [{**task, "payload": {**task["payload"], "largest": self._sums.largest}} for task in tasks]

    @contextmanager
    def episode(self, payload: Mapping[str, Any], folder: Path) -> Generator[Episode]:
        yield SumEpisode(
            payload["task"], payload["seed"], payload["largest"]
        )  # a browser or the like would be started and ended here


class SumEpisode:
    """Implements `Episode`."""

    goal = "Type the sum of the numbers on the screen, then press Enter."

    def __init__(self, task: str, seed: int, largest: int = 999) -> None:
        chance = random.Random(f"{task} {seed}")  # the same seed is the same episode
        most = largest if task.endswith("large") else SMALL
        self._numbers = [chance.randint(1, most) for _ in range(TASKS[task])]
        self._typed = ""
        self._entered = False

    def observe(self, step: int) -> Observation:
        shown = Element(
            index=0,
            parent=None,
            tag="p",
            text=" + ".join(map(str, self._numbers)),
            value=None,
            checked=None,
            focused=False,
            box=Box(x=0, y=0, width=WIDTH, height=HEIGHT),
            point=Point(x=WIDTH / 2, y=HEIGHT / 2),
        )
        return Observation(
            step=step, goal=self.goal, screenshot=white(WIDTH, HEIGHT), width=WIDTH, height=HEIGHT, elements=(shown,)
        )

    def perform(self, action: Action) -> None:
        if isinstance(action, Write):
            self._typed += action.text
        elif isinstance(action, Press) and action.key == "Enter":
            self._entered = True

    def verdict(self) -> Verdict | None:
        if not self._entered:
            return None
        right = self._typed == str(sum(self._numbers))
        return Verdict(score=float(right), success=right)

    def finish(self) -> Verdict | None:
        return self.verdict()


def white(width: int, height: int) -> bytes:
    """Return a white PNG: this benchmark has no real screen."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xff" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
