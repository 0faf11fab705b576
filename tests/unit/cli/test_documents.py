"""JSON of the command line: documents that say the version of their schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalfleet.answers.base import SCHEMA
from evalfleet.answers.runs import Problem
from evalfleet.answers.summary import Reason
from evalfleet.cli import __file__ as package
from evalfleet.cli.shared.document import document

# What prints one object per line, or parameters alone; the rest are documents.
LINES = {
    "studies/show.py",
    "results/events.py",
    "results/logs.py",
    "pools/shared/multi_tail.py",
    "pools/vnc.py",
}


def test_a_document_begins_with_its_schema_and_is_one_line_of_ascii() -> None:
    text = document(Problem(severity="info", text="größer\n"))
    assert text.startswith(f'{{"schema": {SCHEMA}, ')
    assert text.isascii()
    assert "\n" not in text
    answer = json.loads(document(Reason(cause="budget", message="m")))
    assert answer == {"schema": SCHEMA, "cause": "budget", "message": "m", "usd_per_hour": None}


def test_no_command_prints_json_of_its_own() -> None:
    folder = Path(package).parent
    found = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if "json.dumps(" in path.read_text("utf-8") and path.name != "document.py"
    }
    assert found <= LINES


def test_answers_are_read_like_dictionaries_for_one_more_version() -> None:
    reason = Reason(cause="budget", message="m")
    with pytest.warns(DeprecationWarning, match="write `.cause`"):
        assert reason["cause"] == "budget"  # pyright: ignore[reportIndexIssue, reportUnknownVariableType]
    with pytest.warns(DeprecationWarning, match="other"), pytest.raises(KeyError):
        reason["other"]  # pyright: ignore[reportIndexIssue, reportUnusedExpression]
