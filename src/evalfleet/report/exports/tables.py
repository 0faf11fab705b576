"""The format `csv`: tasks.csv and attempts.csv, by RFC 4180, in UTF-8."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evalfleet.answers.task_result import TaskResult
from evalfleet.report.exports.source import Source

# What a spreadsheet takes for a formula, whoever wrote it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

_TASK = ("key", "domain", "state", "score", "success", "steps", "duration_s", "attempts", "worker")
_FAILURE = ("kind", "blame", "evidence")
_ATTEMPT = (
    "key", "number", "state", "outcome", "host", "worker", "claimed_at", "started_at", "ended_at", "duration_s", "step",
    "cost_usd", "score", "success", *_FAILURE,
)  # fmt: skip


def write(source: Source, folder: Path) -> list[str]:
    """Write one row per task and one per attempt."""
    spent: dict[str, float] = {}
    for attempt in source.attempts:
        spent[attempt["key"]] = spent.get(attempt["key"], 0.0) + attempt["cost_usd"]
    heads = (*_TASK, "cost_usd", *_FAILURE, "reason", "metrics")
    _write(folder / "tasks.csv", heads, (_task(result, spent) for result in source.results))
    attempts = ([one[name] for name in _ATTEMPT] for one in map(_truths, source.attempts))
    _write(folder / "attempts.csv", _ATTEMPT, attempts)
    return []


def cell(value: Any) -> Any:
    """A value as a cell: no formula, truths in lower case, nothing for None."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def _write(path: Path, heads: tuple[str, ...], rows: Iterable[list[Any]]) -> None:
    with path.open("x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(heads)
        writer.writerows([cell(value) for value in row] for row in rows)


def _task(result: TaskResult, spent: dict[str, float]) -> list[Any]:
    metrics = result.metrics
    return [
        *(getattr(result, name) for name in _TASK),
        round(spent.get(result.key, 0.0), 6),
        *(getattr(result.failure, name, None) for name in _FAILURE),
        result.reason,
        json.dumps(metrics) if metrics else None,
    ]


def _truths(attempt: dict[str, Any]) -> dict[str, Any]:
    success = attempt["success"]
    return {**attempt, "success": None if success is None else bool(success)}
