"""Runs as files: what each format holds, that hostile keys lead nowhere, and that a folder is there whole or not at all."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.support.report_builders import RunBuilder, mixed_run

from evalfleet.cli.results import export as cli
from evalfleet.errors import InputError
from evalfleet.layout import Home, task_folder_name
from evalfleet.model import Blame, Kind, TaskState
from evalfleet.report.exports import native, tables, waa
from evalfleet.report.exports.folder import FORMATS, Exported, export
from evalfleet.report.exports.junit import legal
from evalfleet.report.exports.tables import cell

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "exports.md").read_text("utf-8")
WAA_IDS = [
    "366de66e-cbae-4d72-b042-26390db2b145-WOS",
    "INF-0d95d28a-9587-433b-a805-1fbe5467d598-wos",
    "28b91a24-5d97-WOS-2",
]
HOSTILE = [
    "../../etc/passwd", "/etc/passwd", "..", ".", "a/..", "../x_1", "a/../../b", "a/b/c", "a\\b", "notepad/.hidden", "-rf",
    "=cmd|'/C calc'!A0_1", "+1_1", "@x_1", "x" * 300 + "_1", "é/ü", "\x1b[31m\n\u202e\x07_1", "<&>\"']]>_1", "artifacts/x",
    "pyautogui/a11y_tree", "notepad/" + "y" * 200, "a,b\r\n\"c\"_1", "C:/x",
]  # fmt: skip


@pytest.fixture
def mixed(home: Path) -> Iterator[RunBuilder]:
    builder = mixed_run(home)
    yield builder
    builder.close()


def leave(builder: RunBuilder, key: str, number: int = 1, **files: str) -> Path:
    """Files of an attempt, as its runner would have left them. Names have `__` for a slash, and `_` for a dot."""
    folder = Home(builder.home).attempt(builder.run.id, key, number)
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def exported(builder: RunBuilder, to: Path, format: str) -> Exported:
    return export(builder.store, builder.run, builder.home, str(to), format)


def below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def test_the_command_offers_the_formats_that_are_there():
    assert list(cli._FORMATS) == list(FORMATS)
    assert re.findall(r"^## `(\w+)`$", PAGE, re.MULTILINE) == list(FORMATS)


def test_everything(mixed: RunBuilder, tmp_path: Path):
    leave(mixed, "pad_1", artifacts__a_png="png", stdout_log="hello")
    leave(mixed, "sheet_1", 2, result_json="{}")
    out = tmp_path / "out"
    done = exported(mixed, out, "evalfleet")
    pad, sheet = task_folder_name("pad_1"), task_folder_name("sheet_1")
    wanted = {"summary.json", "results.jsonl", "events.jsonl"}
    wanted |= {f"tasks/{pad}/1/artifacts/a.png", f"tasks/{pad}/1/stdout.log", f"tasks/{sheet}/2/result.json"}
    assert below(out) == wanted
    assert (done.files, done.unfinished, done.to) == (6, 1, str(out))
    assert done.notes == ["4 attempts without collected files"]
    summary = read_json(out / "summary.json")
    assert (summary["tasks"]["total"], summary["results"]) == (6, None)
    results = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [one["key"] for one in results] == ["pad_1", "pad_2", "sheet_1", "sheet_2", "web_1", "web_2"]
    assert results[0]["folder"] == f"tasks/{pad}"
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    assert [one["number"] for one in events] == [event.number for event in mixed.store.events.of_run(mixed.run.id)]


def test_links_and_devices_are_not_copied(mixed: RunBuilder, tmp_path: Path):
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("secret")
    folder = leave(mixed, "pad_1", artifacts__a_txt="a")
    (folder / "artifacts" / "link").symlink_to(tmp_path / "private" / "key")
    (folder / "artifacts" / "folder").symlink_to(tmp_path / "private")
    os.mkfifo(folder / "artifacts" / "pipe")
    other = leave(mixed, "pad_2", stdout_log="x")
    (other / "artifacts").symlink_to(tmp_path / "private")
    for name in ("evalfleet", "waa"):
        exported(mixed, tmp_path / name, name)
        copied = [path for path in below(tmp_path / name) if "artifacts" in path]
        assert [Path(path).name for path in copied] == ["a.txt"]


def test_tables(mixed: RunBuilder, tmp_path: Path):
    exported(mixed, tmp_path / "out", "csv")
    assert below(tmp_path / "out") == {"tasks.csv", "attempts.csv"}
    tasks = {row["key"]: row for row in rows(tmp_path / "out" / "tasks.csv")}
    assert tasks["sheet_1"]["cost_usd"] == "0.15"
    assert (tasks["pad_1"]["success"], tasks["pad_2"]["success"], tasks["web_1"]["success"]) == ("true", "false", "")
    assert (tasks["web_1"]["state"], tasks["web_1"]["kind"], tasks["web_1"]["blame"]) == ("held", "preempted", "pool")
    attempts = rows(tmp_path / "out" / "attempts.csv")
    assert [(row["key"], row["number"], row["outcome"]) for row in attempts[2:4]] == [
        ("sheet_1", "1", "lost"),
        ("sheet_1", "2", "ok"),
    ]
    raw = (tmp_path / "out" / "tasks.csv").read_bytes()
    assert raw.count(b"\r\n") == raw.count(b"\n") == 7
    for name, table in (("tasks.csv", tasks["pad_1"]), ("attempts.csv", attempts[0])):
        (told,) = re.findall(rf"^\| `{name}` .*$", PAGE, re.MULTILINE)
        assert re.findall(r"`(\w+)`", told) == list(table)


@pytest.mark.parametrize("value", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1"])
def test_no_cell_is_a_formula(value: str):
    assert cell(value) == f"'{value}"


def test_other_cells_stay():
    assert [cell(value) for value in ("a=1", -1.5, None, True, "")] == ["a=1", -1.5, None, "true", ""]


def test_junit(mixed: RunBuilder, tmp_path: Path):
    exported(mixed, tmp_path / "out", "junit")
    root = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "6", "failures": "2", "errors": "1", "skipped": "1", "time": "50.000",
    }  # fmt: skip
    assert [suite.get("name") for suite in root] == ["pad", "sheet", "web"]
    ends = {case.get("name"): [part.tag for part in case if part.tag != "system-out"] for case in root.iter("testcase")}
    assert ends == {
        "pad_1": [], "pad_2": ["failure"], "sheet_1": [], "sheet_2": ["failure"], "web_1": ["error"], "web_2": ["skipped"],
    }  # fmt: skip
    failure = root.find(".//testcase[@name='sheet_2']/failure")
    assert failure is not None
    assert (failure.get("type"), failure.text) == ("timeout", "no end after 15m")


def test_text_that_xml_cannot_hold_is_removed():
    assert legal("a\x00\x1b[31m\ufffe\ud800b\t\n é😀") == "a[31mb\t\n é😀"


@pytest.fixture
def arena(home: Path) -> Iterator[RunBuilder]:
    keys = [*(f"notepad/{one}" for one in WAA_IDS), "vlc/1-WOS", "settings_1"]
    builder = RunBuilder(home, keys).begin()
    builder.attempt(keys[0], 1.0)
    builder.attempt(keys[1], 0.5, worker="local-2")
    builder.attempt(keys[2], kind=Kind.TIMEOUT, then=TaskState.FAILED, evidence="no end")
    builder.attempt(keys[3], kind=Kind.PREEMPTED, blame=Blame.POOL, then=TaskState.HELD)
    builder.attempt(keys[4], 0.0)
    yield builder.complete()
    builder.close()


def shown_by_waa(tree: Path) -> tuple[dict[str, list[float]], dict[str, list[str]]]:
    """Read a tree as WAA's show_result.py does: the scores and the missing tasks of each domain."""
    scores: dict[str, list[float]] = {}
    missing: dict[str, list[str]] = {}
    for domain in sorted(os.listdir(tree)):
        for example in sorted(os.listdir(tree / domain)):
            result = tree / domain / example / "result.txt"
            if result.exists():
                scores.setdefault(domain, []).append(float(result.read_text()))
            else:
                missing.setdefault(domain, []).append(example)
    return scores, missing


def test_waa(arena: RunBuilder, tmp_path: Path):
    first = f"notepad/{WAA_IDS[0]}"
    leave(arena, first, artifacts__step_1_png="png", artifacts__traj_jsonl="{}")
    leave(arena, f"notepad/{WAA_IDS[2]}", artifacts__result_txt="1.0")  # the task's own word, which was not its verdict
    leave(arena, "vlc/1-WOS", artifacts__result_txt__x="1.0")
    leave(arena, "settings_1", artifacts__a_PNG="png")
    out = tmp_path / "out"
    done = exported(arena, out, "waa")
    assert done.notes == ["1 task without a place in the result tree: no key like domain/id"]
    assert shown_by_waa(out / waa.tree_of(None)) == (
        {"notepad": [1.0, 0.5]},
        {"notepad": [WAA_IDS[2]], "vlc": ["1-WOS"]},
    )
    found = read_json(out / "aggregated_results.json")
    assert {name: found[name] for name in ("total_tasks", "succeeded", "failed", "success_rate", "no_verdict")} == {
        "total_tasks": 5, "succeeded": 1, "failed": 4, "success_rate": 0.2, "no_verdict": 2,
    }  # fmt: skip
    assert sum(one["total"] for one in found["by_domain"].values()) == 5
    tasks = {task["task_id"]: task for task in found["tasks"]}
    assert tasks[first]["screenshots"] == [f"{waa.tree_of(None).as_posix()}/{first}/step.1.png"]
    (picture,) = tasks["settings_1"]["screenshots"]
    assert picture == f"artifacts/{task_folder_name('settings_1')}/a.PNG"
    assert all((out / path).is_file() for task in found["tasks"] for path in task["screenshots"])
    assert (tasks["vlc/1-WOS"]["score"], tasks["vlc/1-WOS"]["error"]) == (None, "preempted: it broke")
    worker = read_json(out / "worker-local-2.json")
    assert set(worker) == {"worker_name", "run_id", "completed_at", "tasks", "summary"}
    assert worker["summary"] == {"total": 1, "succeeded": 0, "failed": 1, "success_rate": 0.0}
    assert set(worker["tasks"][0]) == {
        "task_id", "success", "score", "num_steps", "duration_seconds", "error", "screenshots",
    }  # fmt: skip
    assert read_json(out / "worker-local-1.json")["summary"]["total"] == 4


@pytest.mark.parametrize(
    ("model", "folder"),
    [("gpt-4o", "gpt-4o"), ("openai/gpt 4o", "openai_gpt_4o"), (None, "evalfleet"), ("../..", "evalfleet")],
)
def test_the_tree_of_waa_is_named_for_the_model(model: str | None, folder: str):
    assert waa.tree_of(model) == Path("pyautogui/a11y_tree") / folder / "0"


def test_ids_of_waa_are_enough_with_a_domain(home: Path, tmp_path: Path):
    builder = RunBuilder(home, WAA_IDS[:1]).begin()
    builder.attempt(WAA_IDS[0], 1.0)
    exported(builder, tmp_path / "out", "waa")
    # The builder's domain is the key itself.
    assert (tmp_path / "out" / waa.tree_of(None) / WAA_IDS[0] / WAA_IDS[0] / "result.txt").read_text() == "1.0\n"
    builder.close()


@pytest.mark.parametrize("format", FORMATS)
def test_hostile_keys_stay_inside(home: Path, tmp_path: Path, format: str):
    builder = RunBuilder(home, HOSTILE, name="../../<evil>\x00".replace("\x00", "\x01")).begin()
    for key in HOSTILE:
        builder.attempt(key, 1.0, worker="../w")
        leave(builder, key, artifacts__shot_png="png")
    builder.complete()
    place = tmp_path / "place"
    (place / "beside").mkdir(parents=True)
    done = exported(builder, place / "out", format)
    assert {path.name for path in place.iterdir()} == {"beside", "out"}
    assert list((place / "beside").iterdir()) == []
    files = below(place / "out")
    assert done.files == len(files)
    if format in ("evalfleet", "waa"):
        assert sum(name.endswith("shot.png") for name in files) == len(HOSTILE)
    if format == "csv":
        keys = [row["key"] for row in rows(place / "out" / "tasks.csv")]
        assert [key.removeprefix("'") for key in keys] == HOSTILE
        assert not [key for key in keys if key.startswith(tables._FORMULA)]
    if format == "junit":
        root = ElementTree.parse(place / "out" / "junit.xml").getroot()
        # A reader of XML makes one line end of CR LF, unless it is written as a reference.
        assert [case.get("name") for case in root.iter("testcase")] == [legal(key) for key in HOSTILE]
    builder.close()


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_without_attempts(home: Path, tmp_path: Path, format: str):
    builder = RunBuilder(home)
    done = exported(builder, tmp_path / "out", format)
    assert (done.state, done.unfinished) == ("queued", 2)
    builder.close()


def test_an_empty_folder_is_filled_and_parents_are_made(mixed: RunBuilder, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    assert exported(mixed, tmp_path / "link", "csv").to == str(tmp_path / "empty")
    assert below(tmp_path / "empty") == {"tasks.csv", "attempts.csv"}
    exported(mixed, tmp_path / "new" / "er", "csv")


def test_what_is_there_is_never_overwritten(mixed: RunBuilder, tmp_path: Path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "other.partial").mkdir()
    (tmp_path / "other.partial" / "mine").write_text("mine")
    for to, words in (
        (tmp_path / "full", "is not empty"),
        (tmp_path / "full" / "mine", "is not a folder"),
        (tmp_path / "other", "is there already, and no export made it"),
        (mixed.home / "runs" / mixed.run.id / "x", "among the home's own files"),
        ("", "no folder is named"),
    ):
        with pytest.raises(InputError, match=words):
            export(mixed.store, mixed.run, mixed.home, str(to), "csv")
    assert below(tmp_path / "full") == {"mine"}
    assert not (tmp_path / "other").exists()
    assert below(tmp_path / "other.partial") == {"mine"}


def test_what_a_killed_export_left_does_not_block_the_next(mixed: RunBuilder, tmp_path: Path):
    killed = (
        "import os, sys; from pathlib import Path; from evalfleet.layout import Home;"
        "from evalfleet.report.exports.folder import _new_folder;"
        "folder = _new_folder(sys.argv[1], Home(Path(sys.argv[2]))); _, partial = folder.__enter__();"
        "(partial / 'tasks').mkdir(); (partial / 'tasks' / 'half').write_text('x'); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", killed, str(tmp_path / "out"), str(mixed.home)], check=False)
    assert done.returncode == -9
    assert (tmp_path / "out.partial" / "tasks" / "half").exists()
    assert exported(mixed, tmp_path / "out", "csv").files == 2
    assert below(tmp_path / "out") == {"tasks.csv", "attempts.csv"}
    assert not (tmp_path / "out.partial").exists()


def test_two_exports_to_one_folder(mixed: RunBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def second(_source: Any, _folder: Path) -> list[str]:
        with pytest.raises(InputError, match=r"another export to .*/out is at work"):
            exported(mixed, tmp_path / "out", "csv")
        return []

    monkeypatch.setattr(native, "write", second)
    exported(mixed, tmp_path / "out", "evalfleet")
    assert below(tmp_path / "out") == set()


def test_a_failure_leaves_nothing(mixed: RunBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = native.write

    def full(source: Any, folder: Path) -> list[str]:
        real(source, folder)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(native, "write", full)
    with pytest.raises(OSError, match="No space left"):
        exported(mixed, tmp_path / "out", "evalfleet")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("out")]


def test_a_folder_that_was_filled_meanwhile_is_left_alone(
    mixed: RunBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def slow(_source: Any, _folder: Path) -> list[str]:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "mine").write_text("mine")
        return []

    monkeypatch.setattr(native, "write", slow)
    with pytest.raises(OSError, match="not empty"):
        exported(mixed, tmp_path / "out", "evalfleet")
    assert below(tmp_path / "out") == {"mine"}
    assert not (tmp_path / "out.partial").exists()
