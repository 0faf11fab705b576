"""The format `waa`: what tools for Windows Agent Arena read.

Here `succeeded` and `failed` follow the verdict's success, as in those tools; `no_verdict` tells how many of the failed
were never judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from evalfleet.answers.task_result import TaskResult
from evalfleet.layout import task_folder_name
from evalfleet.model import JsonObject
from evalfleet.report import text
from evalfleet.report.exports.folder import error_of, write_json
from evalfleet.report.exports.source import Source, copy_files

_TREE = Path("pyautogui", "a11y_tree")  # action space, observation; below them are model and trial
_NO_MODEL = "evalfleet"
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")  # safe as a folder's name on every system
_ID = re.compile(r"[A-Z0-9-]+-WOS(?:-[0-9]+)?", re.IGNORECASE)
_TRIAL = re.compile(r"(?P<id>.+-WOS(?:-[0-9]+)?)_(?P<trial>[0-9]{1,9})", re.IGNORECASE)
_IMAGES = (".png", ".jpg", ".jpeg", ".webp")
_RESULT = "result.txt"
AGGREGATED = "aggregated_results.json"


def tree_of(model: str | None) -> Path:
    """Where the first trial of a model lies. `show_result.py --use_model` takes the name of the folder."""
    name = _NOT_PLAIN.sub("_", model or "").strip("._-")[:100]
    return _TREE / (name or _NO_MODEL) / "0"


def write(source: Source, folder: Path) -> list[str]:
    """Write aggregated_results.json, worker-<name>.json, and the tree of result.txt that WAA's own scripts read.

    A task whose key does not name a place in that tree has its artifacts under artifacts/.
    """
    tree = tree_of(source.model)
    places: dict[Path, str] = {}
    tasks: list[JsonObject] = []
    for result in source.results:
        place = _place(result, tree)
        if place is None or place in places:
            place = Path("artifacts", task_folder_name(result.key))
        places[place] = result.key
        tasks.append(_task(source, result, folder, place))
    write_json(folder / AGGREGATED, aggregated(tasks))
    _write_workers(source, tasks, folder)
    outside = sum(place.parts[0] == "artifacts" for place in places)
    if not outside:
        return []
    return [f"{text.count(outside, 'task')} without a place in the result tree: no key like domain/id"]


def write_aggregated(results: Iterable[TaskResult], folder: Path) -> None:
    """Write aggregated_results.json alone, of a run that has ended."""
    write_json(folder / AGGREGATED, aggregated([_row(result, []) for result in results]))


def aggregated(tasks: Sequence[JsonObject]) -> JsonObject:
    overall = _sums(tasks)
    by_domain = {domain: _sums(found) for domain, found in _grouped(tasks, "domain").items()}
    return {"total_tasks": overall.pop("total"), **overall, "tasks": tasks, "by_domain": by_domain}


def _place(result: TaskResult, tree: Path) -> Path | None:
    """The task's folder in the tree; None if its key names none, or would lead elsewhere."""
    key: str = result.key
    domain, slash, name = key.partition("/")
    if not slash and _ID.fullmatch(key):
        domain, name = result.domain, key
    again = _TRIAL.fullmatch(name)  # a further trial of the same task
    if again:
        tree, name = tree.with_name(again["trial"]), again["id"]
    return tree / domain / name if _PLAIN.fullmatch(domain) and _PLAIN.fullmatch(name) else None


def _task(source: Source, result: TaskResult, folder: Path, place: Path) -> JsonObject:
    """Write the task's own files, and return its row."""
    key, images = result.key, list[str]()
    if place.is_relative_to(_TREE):
        # One without a verdict has the folder alone: WAA's scripts then list it as missing.
        (folder / place).mkdir(parents=True)
    if key in source.decided_by:
        decided = source.files(key, source.decided_by[key])
        copied = copy_files(decided, folder / place, below="artifacts", but=_RESULT)
        images = [f"{place.as_posix()}/{path}" for path in copied if path.lower().endswith(_IMAGES)]
    if result.state == "done" and place.is_relative_to(_TREE):
        (folder / place / _RESULT).write_text(f"{result.score}\n", "utf-8")
    return _row(result, images)


def _row(result: TaskResult, images: list[str]) -> JsonObject:
    return {
        "task_id": result.key,
        "domain": result.domain,
        "worker": result.worker,
        "success": bool(result.success),
        "score": result.score,
        "num_steps": result.steps,
        "duration_seconds": result.duration_s,
        "error": error_of(result),
        "screenshots": images,
    }


def _sums(tasks: Sequence[JsonObject]) -> JsonObject:
    succeeded = sum(task["success"] for task in tasks)
    return {
        "total": len(tasks),
        "succeeded": succeeded,
        "failed": len(tasks) - succeeded,
        "success_rate": succeeded / len(tasks) if tasks else 0.0,
        "no_verdict": sum(task["score"] is None for task in tasks),
    }


def _grouped(tasks: Iterable[JsonObject], name: str) -> dict[str, list[JsonObject]]:
    groups: dict[str, list[JsonObject]] = {}
    for task in tasks:
        groups.setdefault(task[name], []).append(task)
    return groups


def _write_workers(source: Source, tasks: Iterable[JsonObject], folder: Path) -> None:
    ends: dict[str, float | None] = {}
    for attempt in source.attempts:
        known, ended = ends.get(attempt["worker"]), attempt["ended_at"]
        ends[attempt["worker"]] = known if ended is None else max(ended, known or 0.0)
    by_worker = _grouped((task for task in tasks if task["worker"] is not None), "worker")
    for worker, ended in ends.items():
        own = by_worker.get(worker, [])
        sums = _sums(own)
        del sums["no_verdict"]
        name = worker if _PLAIN.fullmatch(worker) else task_folder_name(worker)
        row = {
            "worker_name": worker,
            "run_id": source.summary.run,
            "completed_at": None if ended is None else datetime.fromtimestamp(ended, UTC).isoformat(),
            "tasks": [{key: task[key] for key in task if key not in ("domain", "worker")} for task in own],
            "summary": sums,
        }
        write_json(folder / f"worker-{name}.json", row)
