"""The task files of desk: those that come with it, what is refused, and the checks. No desktop is needed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import wait_for

from evalfleet.agents.oracle import solvable
from evalfleet.benchmarks.desk import sheets
from evalfleet.benchmarks.desk.checks import CHECKS
from evalfleet.benchmarks.desk.task import BUILT_IN, load, parse, read
from evalfleet.environments.desktop.idle import any_process_busy, wait_for_rest
from evalfleet.errors import TaskFileError

GOOD: dict[str, Any] = {
    "id": "a-task",
    "instruction": "Make a folder.",
    "config": [{"type": "create_folder", "parameters": {"path": "Documents"}}],
    "evaluator": {
        "func": "exact_match",
        "result": {"type": "folder_list", "path": "Documents"},
        "expected": {"type": "rule", "rules": {"expected": ["new/"]}},
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the good task with one member changed, or left out where the value is None."""
    task = json.loads(json.dumps(GOOD))
    *way, last = path.split(".")
    inner: Any = task
    for step in way:
        inner = inner[int(step) if step.isdigit() else step]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return task


def test_there_are_tasks_and_the_oracle_solves_them_all():
    tasks = load(BUILT_IN)
    assert len(tasks) >= 24
    assert {task.id for task in tasks} == solvable("desk")
    assert {task.domain for task in tasks} == {"mousepad", "galculator", "pcmanfm", "xterm", "calc", "several"}
    assert all(task.setups and task.points for task in tasks)


def test_a_definition_survives_the_way_to_the_worker():
    for task in load(BUILT_IN):
        assert parse(json.loads(json.dumps(task.definition)), domain=task.domain, where=task.id) == task


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("id", None, '"id" is missing'),
        ("id", "A Task", "id: use lower-case letters, digits, dots and hyphens, at most 80 characters"),
        ("instruction", " ", "instruction: is empty; write what the agent should do"),
        ("instruction", 7, "instruction: expected text in quotes, got a whole number"),
        ("snapshot", "base", 'unknown key "snapshot"; known here: '),
        ("evaluator", None, '"evaluator" is missing'),
        ("evaluator.result", None, 'evaluator: "result" is missing'),
        ("evaluator.conj", "xor", 'evaluator.conj: must be "and" or "or", got "xor"'),
        ("evaluator.func", "exact_mach", 'evaluator.func: there is no "exact_mach"; did you mean "exact_match"?'),
        (
            "evaluator.func",
            ["exact_match", "contains"],
            "evaluator: func, result and expected must have the same length",
        ),
        ("evaluator.func", [], "evaluator.func: is empty"),
        ("evaluator.result.type", None, 'evaluator.result: "type" is missing'),
        ("evaluator.result.type", "folder", 'evaluator.result.type: there is no "folder"; did you mean "folder_list"?'),
        ("evaluator.result.pth", "x", 'evaluator.result: unknown key "pth"; did you mean "path"?'),
        ("evaluator.result.path", "/etc/passwd", "evaluator.result.path: must be relative to the home folder"),
        ("evaluator.expected.type", "cloud_file", 'evaluator.expected.type: must be "rule", got "cloud_file"'),
        ("evaluator.expected.rules", {}, 'evaluator.expected.rules: "expected" is missing'),
        ("config", {}, "config: expected a list of steps such as"),
        ("config.0.type", "mkdir", 'config[0].type: there is no "mkdir"; known here: create_folder, execute, launch'),
        ("config.0.parameters.path", None, 'config[0].parameters: "path" is missing'),
        ("config.0.parameters.path", "a/../../b", "config[0].parameters.path: must be relative to the home folder"),
        ("config.0.parameters.path", 3, "config[0].parameters.path: expected text in quotes, got a whole number"),
    ],
)
def test_a_bad_task_is_told_with_its_key(path: str, value: Any, said: str):
    with pytest.raises(TaskFileError) as caught:
        parse(changed(path, value), domain="d", where="my.json")
    assert str(caught.value).startswith(f"my.json: {said}")
    assert "\n" not in str(caught.value)


def test_a_check_that_an_untouched_state_could_pass_is_refused():
    definition = changed("evaluator.func", "contains")
    definition["evaluator"]["expected"]["rules"] = {"exclude": ["x"]}
    with pytest.raises(TaskFileError, match=r"evaluator\.expected\.rules\.include: name at least one item"):
        parse(definition, domain="d", where="my.json")


def test_files_that_are_no_tasks(tmp_path: Path):
    folder = tmp_path / "editor"
    folder.mkdir()
    with pytest.raises(TaskFileError, match="contains no tasks; a task is a file"):
        load(tmp_path)
    with pytest.raises(TaskFileError, match="there is no such folder"):
        load(tmp_path / "none")
    path = folder / "other.json"
    path.write_text(json.dumps(GOOD))
    with pytest.raises(TaskFileError, match=r'other\.json: id: must be "other", like the name of the file'):
        read(path)
    path.write_text("{")
    with pytest.raises(TaskFileError, match=r"other\.json: is not valid JSON: "):
        read(path)


# Checks


@pytest.mark.parametrize(
    ("func", "rules", "found", "holds"),
    [
        ("exact_match", {"expected": "a"}, "a", True),
        ("exact_match", {"expected": "a"}, "a\n", False),
        ("exact_match", {"expected": ["a", 1]}, ["a", 1.0], True),
        ("exact_match", {"expected": ["a"]}, ["a", "b"], False),
        ("exact_match", {"expected": 1}, True, False),
        ("exact_match", {"expected": ""}, None, False),
        ("text_match", {"expected": "a\nb"}, "a \r\nb\n\n", True),
        ("text_match", {"expected": "a\nb"}, "a\n\nb", False),
        ("text_match", {"expected": ""}, None, False),
        ("contains", {"include": ["SUM"], "exclude": ["1022"]}, "of:=SUM([.B2:.B5])", True),
        ("contains", {"include": ["a"], "exclude": ["b"]}, ["a", "b"], False),
        ("contains", {"include": ["a"]}, None, False),
        ("number_match", {"expected": 42}, " 42\n", True),
        ("number_match", {"expected": 42, "tolerance": 0.5}, 42.4, True),
        ("number_match", {"expected": 42}, "42 lines", False),
        ("number_match", {"expected": 42}, "nan", False),
        ("number_match", {"expected": 0}, None, False),
        ("number_match", {"expected": 0}, "", False),
    ],
)
def test_checks(func: str, rules: dict[str, Any], found: Any, holds: bool):
    assert CHECKS[func](**rules).holds(found) is holds


# Spreadsheets


def cells(data: bytes, suffix: str, area: str, sheet: int = 1) -> list[list[Any]]:
    return [[cell.value for cell in row] for row in sheets.read(data, suffix, sheet, sheets.area(area))]


def test_what_is_written_can_be_read():
    data = sheets.write_ods([["Item", "Price & more"], ["Tea", 2.5], ["", 1e6]])
    assert cells(data, ".ods", "A1:B4") == [["Item", "Price & more"], ["Tea", 2.5], ["", 1000000.0], ["", ""]]
    assert cells(data, ".ods", "B2") == [[2.5]]


def test_ods_rows_and_cells_may_stand_for_many():
    content = (
        '<d xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
        ' xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"'
        ' xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><table:table>'
        '<table:table-row table:number-rows-repeated="1000000"><table:table-cell table:number-columns-repeated="16384"'
        ' office:value-type="float" office:value="3" table:formula="of:=1+2"/></table:table-row></table:table></d>'
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("content.xml", content)
    found = sheets.read(buffer.getvalue(), ".ods", 1, sheets.area("C5:D6"))
    assert found == [[sheets.Cell(value=3.0, formula="of:=1+2")] * 2] * 2


def test_xlsx_and_csv():
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("xl/sharedStrings.xml", f"<sst {main}><si><t>Tea</t></si></sst>")
        archive.writestr(
            "xl/worksheets/sheet1.xml",
            f'<worksheet {main}><c r="A1" t="s"><v>0</v></c><c r="B1"><f>SUM(C1:C2)</f><v>5</v></c></worksheet>',
        )
    assert cells(buffer.getvalue(), ".xlsx", "A1:B1") == [["Tea", 5.0]]
    assert sheets.read(buffer.getvalue(), ".xlsx", 1, sheets.area("B1"))[0][0].formula == "SUM(C1:C2)"
    assert cells(b"a,007\n1.50,-2\n", ".csv", "A1:B2") == [["a", "007"], [1.5, -2.0]]


@pytest.mark.parametrize("suffix", sheets.SUFFIXES)
def test_a_file_that_is_no_spreadsheet(suffix: str):
    with pytest.raises(sheets.Unreadable):
        sheets.read(b"\xff\xfe\x00PK", suffix, 1, sheets.area("A1"))


@pytest.mark.parametrize("text", ["", "a1", "A0", "B2:A1", "A1:", "A1:B2:C3"])
def test_areas_that_are_none(text: str):
    with pytest.raises(ValueError, match=r"is not a cell such as B2|ends before it begins"):
        sheets.area(text)


# Rest


def test_rest_is_several_quiet_looks_in_a_row():
    looks = iter([True, False, True, False, False, False, False])
    assert wait_for_rest(lambda: next(looks), 60)
    assert next(looks, None) is None


def test_rest_is_not_waited_for_without_end():
    assert not wait_for_rest(lambda: True, 0.05)


def test_a_tree_is_busy_when_one_of_it_has_work():
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.stdin.readline()])"
    for work, busy in (("while True: pass", True), ("import time; print('up', flush=True); time.sleep(600)", False)):
        with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, start_new_session=True) as top:
            assert top.stdin is not None
            assert top.stdout is not None
            try:
                top.stdin.write(f"{work}\n".encode())
                top.stdin.close()
                if busy:
                    wait_for(lambda pid=top.pid: any_process_busy(pid), "the child to be busy")
                    assert not wait_for_rest(lambda pid=top.pid: any_process_busy(pid), 0.2)
                else:
                    assert top.stdout.readline() == b"up\n"
                    assert wait_for_rest(lambda pid=top.pid: any_process_busy(pid), 60)
            finally:
                os.killpg(top.pid, signal.SIGKILL)
