"""The format `evalfleet`: everything that is known of a run."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import asdict

from evalfleet.layout import task_folder_name
from evalfleet.report import text
from evalfleet.report.exports.folder import write_json, write_json_lines
from evalfleet.report.exports.source import Source, copy_files
from evalfleet.report.terminal.events import event_row


def write(source: Source, folder: Path) -> list[str]:
    """Write summary.json, results.jsonl, events.jsonl, and the collected files of every ended attempt under tasks/."""
    write_json(folder / "summary.json", source.summary)
    rows = ({**asdict(result), "folder": f"tasks/{task_folder_name(result.key)}"} for result in source.results)
    write_json_lines(folder / "results.jsonl", rows)
    write_json_lines(folder / "events.jsonl", map(event_row, source.events()))
    missing = 0
    for attempt in source.attempts:
        key, number = attempt["key"], attempt["number"]
        collected = source.files(key, number) if attempt["state"] == "ended" else None
        if collected is None:
            missing += 1
        else:
            copy_files(collected, folder / "tasks" / task_folder_name(key) / str(number))
    return [f"{text.count(missing, 'attempt')} without collected files"] if missing else []
