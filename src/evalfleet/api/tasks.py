"""Tasks and settings in the words of the task file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypedDict, cast

from msgspec import Struct
from msgspec.structs import asdict

Duration = str | float | timedelta  # "15m", 900.0 or timedelta(minutes=15)
Folder = str | os.PathLike[str]


class Task(Struct, frozen=True, kw_only=True):
    """One task, with the words of the task file.

    Example:
        >>> Task(key="notepad_1", command=["python3", "agent.py"], timeout="10m").key
        'notepad_1'
    """

    key: str
    command: Sequence[str]
    domain: str | None = None
    env: Mapping[str, str] | None = None
    secrets: Sequence[str] | None = None  # names; the values come from this process's environment
    payload: Any = None
    timeout: Duration | None = None
    stall: Duration | None = None
    start_timeout: Duration | None = None
    requests: Mapping[str, int] | None = None  # gpus, gpu_memory_mb, memory_mb
    max_cost_usd: float | None = None
    gpu_env: str | None = None


class RunSettings(TypedDict, total=False):
    """What `submit` takes besides: the keys of `[run]` in the task file."""

    command: Sequence[str]
    env: Mapping[str, str]
    secrets: Sequence[str]
    payload: Any
    attempts: int
    timeout: Duration
    stall: Duration
    start_timeout: Duration
    budget_usd: float
    max_cost_usd: float
    accept: float
    exit_is_verdict: bool
    timeout_is_verdict: bool
    result: str
    progress: str
    files: Sequence[str]
    breaker: bool
    max_lost: int
    retry_base: Duration
    retry_cap: Duration
    priority: int
    distribution: str
    gpus: Sequence[int]
    gpu_pack: bool
    speculate: bool


def mapping(task: Any) -> Any:
    """The task as the task file writes it; what is no task is left for the checker to refuse."""
    if isinstance(task, Task):
        return {name: plain(value) for name, value in asdict(task).items() if value is not None}
    if isinstance(task, Mapping):
        return {word: plain(value) for word, value in cast("Mapping[Any, Any]", task).items()}
    return task


def plain(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value
