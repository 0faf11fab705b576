"""The format `junit`: one XML file that CI systems read, a suite per domain and a case per task."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from evalfleet.answers.task_result import TaskResult
from evalfleet.report.exports.folder import error_of
from evalfleet.report.exports.source import Source

_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(source: Source, folder: Path) -> list[str]:
    """Write junit.xml."""
    domains: dict[str, list[TaskResult]] = {}
    for result in source.results:
        domains.setdefault(result.domain, []).append(result)
    summary = source.summary
    root = ElementTree.Element("testsuites", {"name": legal(summary.name or summary.run), **_sums(source.results)})
    for domain, results in domains.items():
        suite = ElementTree.SubElement(root, "testsuite", {"name": legal(domain), **_sums(results)})
        if summary.started_at is not None:
            moment = datetime.fromtimestamp(summary.started_at, UTC).replace(tzinfo=None)
            suite.set("timestamp", moment.isoformat(timespec="seconds"))
        for result in results:
            _add(suite, result)
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(folder / "junit.xml", encoding="utf-8", xml_declaration=True)
    return []


def legal(text: str) -> str:
    """Text without the characters that no XML file may hold, not even escaped."""
    return _ILLEGAL.sub("", text)


def ending(result: TaskResult) -> str | None:
    """`failure`: of the agent or task. `error`: of something else. `skipped`: not judged. None: it passed."""
    state, failure = result.state, result.failure
    if state == "done":
        return None if result.success else "failure"
    if state == "failed":
        return "failure" if failure is None or failure.blame == "task" else "error"
    return "error" if state == "held" else "skipped"


def _sums(results: Sequence[TaskResult]) -> dict[str, str]:
    endings = [ending(result) for result in results]
    return {
        "tests": str(len(results)),
        "failures": str(endings.count("failure")),
        "errors": str(endings.count("error")),
        "skipped": str(endings.count("skipped")),
        "time": f"{sum(result.duration_s or 0.0 for result in results):.3f}",
    }


def _add(suite: ElementTree.Element, result: TaskResult) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        name=legal(result.key),
        classname=legal(result.domain),
        time=f"{result.duration_s or 0.0:.3f}",
    )
    how = ending(result)
    if how == "skipped":
        ElementTree.SubElement(case, how, message=legal(error_of(result) or result.state))
    elif how is not None:
        failure = result.failure
        message = legal(error_of(result) or f"score {result.score:g}")
        mark = ElementTree.SubElement(case, how, message=message, type=failure.kind if failure else "score")
        mark.text = legal((failure and failure.evidence) or message)
    facts = {"score": result.score, "steps": result.steps, "attempts": result.attempts, "worker": result.worker}
    told = [f"{name} {value}" for name, value in facts.items() if value is not None]
    ElementTree.SubElement(case, "system-out").text = legal(", ".join(told))
