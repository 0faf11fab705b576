"""Writes what an attempt tells where the runner and people look for it, and remembers what the verdict needs."""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from evalfleet.benchmarks.waa.trajectory import RESULT, TRAJECTORY, Raised, Step, event_line, read_line


class Recorder:
    """May be used by several threads: the model's proxy tells from its own."""

    def __init__(self, events: Path, artifacts: Path) -> None:
        self._events = events
        self._artifacts = artifacts
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        self._goal: str | None = None
        self.last = deque[str](maxlen=1)  # the last line that run.py printed
        self.steps = 0
        self.tokens = 0
        self.raised: Raised | None = None

    def ready(self, task: str, goal: str | None, container: str) -> None:
        self._goal = goal
        self._event({"ready": True, "note": f"{goal or task} (in {container})"})
        self._line({"benchmark": "waa", "task": task, "goal": goal})

    def printed(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self.last.extend(line.strip() for line in text.splitlines() if line.strip())

    def file(self, name: str, data: str, offset: int = 0) -> None:
        """Keep a file, or the next part of one that grows."""
        path = self._artifacts / name
        if path.is_relative_to(self._artifacts) and ".." not in path.parts:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab" if offset else "wb") as file:
                file.write(base64.b64decode(data))

    def trajectory(self, line: str) -> None:
        """Keep a line of the trajectory at once: nothing more may come."""
        with (self._artifacts / TRAJECTORY).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        match read_line(line):
            case Step() as step:
                self.steps = max(self.steps, step.number)
                self._event(event_line(step))
                self._line(event_line(step))
                if self._goal is None and step.goal:
                    self._goal = step.goal
                    self._line({"goal": step.goal})
            case Raised() as raised:
                self.raised = raised
                self.note(raised.words)
            case None:
                self.note("a line of traj.jsonl that cannot be read")

    def note(self, text: str) -> None:
        self._event({"note": text})

    def spent(self, note: str, *, tokens: int, cost_usd: float) -> None:
        """One call of the model."""
        self.tokens += tokens
        cost = {"cost_usd": cost_usd} if cost_usd else {}
        self._event({"note": note, **cost, **({"tokens": tokens} if tokens else {})})

    def verdict(self, score: float) -> None:
        self.note(f"score {score:g}")
        self._line({"score": score, "success": score == 1.0})

    def result(self) -> str | None:
        """What `result.txt` holds; None where there is none, or an empty one."""
        with suppress(OSError):
            return (self._artifacts / RESULT).read_text("utf-8", "replace").strip() or None
        return None

    def task_log(self) -> str:
        """What WAA logged of the task."""
        logs = sorted((self._artifacts / "logs").glob("task-*.log"))
        return "\n".join(path.read_text("utf-8", "replace") for path in logs)

    def _event(self, line: dict[str, Any]) -> None:
        with self._lock, self._events.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _line(self, line: dict[str, Any]) -> None:
        with self._lock, (self._artifacts / "trajectory.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at_s": round(time.monotonic() - self._begun, 3), **line}) + "\n")
