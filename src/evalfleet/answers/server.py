"""What a server is and offers, what became of a request, and what an export wrote."""

from __future__ import annotations

from evalfleet.answers.base import Answer
from evalfleet.model import JsonObject, Role, RunState


class Me(Answer, frozen=True, kw_only=True):
    """Whose token asks, and what server this is."""

    role: Role
    name: str
    user: str  # "": without a token
    version: str
    drives: bool
    home: str
    now: float
    event: int


class RequestAnswer(Answer, frozen=True, kw_only=True):
    number: int
    answer: JsonObject | None


class BenchmarkRow(Answer, frozen=True, kw_only=True):
    name: str
    title: str
    ready: bool
    broken: str | None
    tasks: int
    domains: list[str]
    agents: list[str]


class BenchmarkList(Answer, frozen=True, kw_only=True):
    benchmarks: list[BenchmarkRow]


class Exported(Answer, frozen=True, kw_only=True):
    """What an export wrote."""

    run: str
    state: RunState
    format: str
    to: str
    files: int
    bytes: int
    unfinished: int
    notes: list[str]
