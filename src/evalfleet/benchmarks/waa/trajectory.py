"""What WAA writes about one task: `traj.jsonl` and `result.txt`. Pure."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from typing import Any, cast

from msgspec import Struct

from evalfleet.benchmarks.waa.task_log import plain
from evalfleet.model import Kind

RESULT = "result.txt"
TRAJECTORY = "traj.jsonl"
_LONGEST_NOTE = 500
_WORDS = {"True": 1.0, "False": 0.0}  # some checkers return a truth value, which is written as it is

# Where in WAA's client an exception came from, and what says that a model's endpoint and not the agent failed.
_AGENTS = re.compile(r"[/\\]mm_agents[/\\]")
# What the agent's code raises where Windows gave it no picture, no tree, or no answer.
_GUEST = re.compile(
    r"^(?:[\w.]+\.)?(?:ParseError|XMLSyntaxError|UnidentifiedImageError)\b"
    r"|^requests\.exceptions\.\w+: .*(?:port=5000|Connection aborted|Connection broken)",
    re.MULTILINE,
)
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*: .+")  # as it stands in the last lines of a traceback
_SERVICE = re.compile(
    r"\b(?:RateLimitError|APIConnectionError|APITimeoutError|APIStatusError|InternalServerError|AuthenticationError"
    r"|PermissionDeniedError|ServiceUnavailable\w*|insufficient_quota|invalid_api_key)\b"
    r"|api\.openai\.com|openai\.azure\.com|\bstatus(?:[ _]code)?:? ?(?:401|403|429|5\d\d)\b",
    re.IGNORECASE,
)


class Step(Struct, frozen=True, kw_only=True):
    """One line of the trajectory. Number 0 is the world as the agent found it."""

    number: int
    screenshot: str | None  # name of a file beside the trajectory: what followed the action
    action: str | None
    at: float | None  # when, by the container's clock
    goal: str | None = None  # what the agent was told to do


class Raised(Struct, frozen=True, kw_only=True):
    """The exception that ended a task in WAA."""

    words: str
    traceback: str

    @property
    def kind(self) -> Kind:
        """Whose it is. Only what happened in the agent's own code, with a whole observation, counts against it."""
        if not _AGENTS.search(self.traceback) or _GUEST.search(self.traceback):
            return Kind.ENVIRONMENT_FAILED
        from evalfleet.core.failures.signatures import recognise

        known = recognise(self.traceback)
        if known is not None and known.kind is Kind.SERVICE_REFUSED:
            return Kind.SERVICE_REFUSED
        return Kind.SERVICE_FAILED if _SERVICE.search(f"{self.words}\n{self.traceback}") else Kind.TASK_ERROR


def read_line(line: str) -> Step | Raised | None:
    """Read one line; None for one that is half written or of another kind."""
    try:
        found: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    row = cast("dict[str, Any]", found)
    if "Exception" in row or "Error" in row:
        traceback = str(row.get("Traceback") or "")
        lines = [text for text in plain(traceback).splitlines() if text.strip()]
        last = next(filter(_EXCEPTION.match, reversed(lines)), lines[-1] if lines else "")
        said = last.strip() or plain(str(row.get("Exception") or row.get("Error")))
        return Raised(words=said, traceback=traceback)
    number = row.get("step_num")
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        return None
    shown, action = row.get("screenshot"), row.get("action")
    return Step(
        number=number,
        screenshot=re.split(r"[/\\]", shown)[-1] or None if isinstance(shown, str) else None,
        action=None if action is None else str(action)[:_LONGEST_NOTE],
        at=_moment(row.get("action_timestamp")),
        goal=row["instruction"] if isinstance(row.get("instruction"), str) else None,
    )


def _moment(text: Any) -> float | None:
    try:
        return datetime.strptime(text, "%Y%m%d@%H%M%S").replace(tzinfo=UTC).timestamp()
    except (TypeError, ValueError):
        return None


def read_trajectory(text: str) -> tuple[list[Step], Raised | None]:
    """All steps, and the last exception if there is one."""
    found = [read_line(line) for line in text.splitlines()]
    raised = [one for one in found if isinstance(one, Raised)]
    return [one for one in found if isinstance(one, Step)], raised[-1] if raised else None


def event_line(step: Step) -> dict[str, Any]:
    """The step as an event line of the task contract."""
    shown: dict[str, Any] = {"step": step.number}
    if step.screenshot:
        shown["screenshot"] = step.screenshot
    if step.action:
        shown["note"] = step.action
    return shown


def read_score(text: str) -> float:
    """The score that `result.txt` holds. Raises ValueError: it is not a number from 0 to 1; the message says what it is."""
    word = text.strip()
    try:
        score = _WORDS[word] if word in _WORDS else float(word)
    except ValueError:
        score = math.nan
    if not 0.0 <= score <= 1.0:
        raise ValueError(f"{RESULT} holds {word[:40]!r}, which is not a number from 0 to 1")
    return score
