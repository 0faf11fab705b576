"""Every example runs, and gives what its comments say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import Fleet

from evalfleet import taskfile

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
SUBMITTED = sorted([*EXAMPLES.glob("*.toml"), *EXAMPLES.glob("*.jsonl")])


@pytest.fixture(autouse=True)
def _python3_is_ours(fleet: Fleet) -> None:
    # `python3` on a developer's PATH may be a version manager's slow stub.
    fleet.env["PATH"] = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    node = shutil.which("node")
    if node:
        fleet.env["PATH"] += f":{Path(node).parent}"


def run(fleet: Fleet, name: str, *args: str, **env: str) -> dict[str, Any]:
    fleet.env.update(env)
    return fleet.json("run", str(EXAMPLES / name), *args)


def results(summary: dict[str, Any]) -> dict[str, Any]:
    return {row["key"]: row for row in summary["results"]}


def files(fleet: Fleet, summary: dict[str, Any], key: str, attempt: int = 1) -> Path:
    """The folder of an attempt."""
    return Path(fleet.json("logs", summary["run"], key, "--attempt", str(attempt))["folder"])


def test_every_example_has_a_test():
    here = Path(__file__).read_text("utf-8")
    untested = [path.name for path in SUBMITTED if f'run(fleet, "{path.name}"' not in here]
    assert untested == ["demo.jsonl"]  # which test_demo.py runs


@pytest.mark.parametrize("path", SUBMITTED, ids=lambda path: path.name)
def test_every_task_file_is_good_input(path: Path):
    assert len(taskfile.load(path).tasks) > 0


def test_hello(fleet: Fleet):
    summary = run(fleet, "01_hello.toml", "--workers", "2")
    assert summary["scores"]["strict"] == 1.0
    assert set(summary["by_domain"]) == {"hello", "files"}
    assert fleet.command("logs", "latest", "hello_2").stdout == "good day from attempt 1\n"
    assert (files(fleet, summary, "files_1") / "artifacts" / "when.txt").read_text().strip()
    told = (ROOT / "docs" / "reference" / "layout.md").read_text("utf-8")
    there = {path.name for path in [*fleet.home.iterdir(), *(fleet.home / "spool").iterdir()]}
    there |= {path.name for path in files(fleet, summary, "hello_2").iterdir()}
    assert [name for name in there if re.sub(r"runner-\w+\.pyz", "runner-<version>.pyz", name) not in told] == []


def test_agent(fleet: Fleet):
    summary = run(fleet, "02_agent.toml", "--workers", "4")
    rows = results(summary)
    assert {key: (row["score"], row["success"], row["steps"]) for key, row in rows.items()} == {
        "editor_1": (1.0, True, 3),
        "editor_2": (0.5, False, 5),
        "browser_1": (1.0, True, 4),
        "browser_2": (0.0, False, 2),
    }
    assert rows["browser_1"]["attempts"] == 2
    assert summary["scores"]["coverage"] == 1.0
    assert summary["failures"] == {"bad_exit": 1}
    # 3 + 5 + 4 + 2 steps, and 1 of the attempt that crashed.
    assert summary["cost"]["total_usd"] == pytest.approx(0.030)
    assert summary["cost"]["waste_usd"] == pytest.approx(0.002)
    pictures = sorted((files(fleet, summary, "editor_1") / "artifacts").iterdir())
    assert [picture.name for picture in pictures] == ["step_1.png", "step_2.png", "step_3.png"]
    assert all(picture.read_bytes().startswith(b"\x89PNG\r\n") for picture in pictures)
    lines = [line for event in fleet.events() if event["task"] == "editor_1" for line in event["data"].get("lines", [])]
    assert [line["step"] for line in lines if "step" in line] == [1, 2, 3]
    assert lines[0] == {"ready": True}


def test_bash(fleet: Fleet):
    summary = run(fleet, "03_bash.toml")
    assert results(summary)["bash_1"]["score"] == 1.0
    assert results(summary)["bash_1"]["steps"] == 3
    assert "part 3 of" in fleet.command("logs", "latest", "bash_1").stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_node(fleet: Fleet):
    summary = run(fleet, "03_node.toml")
    assert results(summary)["node_1"]["success"] is True
    assert (files(fleet, summary, "node_1") / "artifacts" / "words.txt").read_text() == "a\nb\nc"


def test_python(fleet: Fleet):
    summary = run(fleet, "03_python.toml")
    assert results(summary)["python_1"]["score"] == 1.0
    result = json.loads((files(fleet, summary, "python_1") / "result.json").read_text())
    assert result["metrics"] == {"total": 10}


def sweep(*args: str) -> list[dict[str, Any]]:
    argv = [sys.executable, str(EXAMPLES / "04_sweep.py"), *args]
    text = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    return [json.loads(line) for line in text.splitlines()]


def test_sweep(fleet: Fleet):
    lines = [json.dumps(line) + "\n" for line in sweep()]
    (fleet.folder / "sweep.jsonl").write_text("".join(lines))
    summary = fleet.json("run", "sweep.jsonl", "--workers", "4")
    rows = results(summary)
    assert len(rows) == 12
    assert {key for key, row in rows.items() if not row["success"]} == {
        "batch-128_block-16_prefill-whole",
        "batch-128_block-32_prefill-whole",
    }
    assert summary["scores"]["coverage"] == 1.0  # a broken service level is a verdict, not a failure
    best = json.loads((files(fleet, summary, "batch-128_block-16_prefill-chunked") / "result.json").read_text())
    assert best["metrics"]["tokens_per_s"] == 4510.0


def test_sweep_for_gpus_asks_for_them():
    assert [task["requests"] for task in sweep("--gpus", "2")[1:]] == [{"gpus": 2}] * 12


def test_flaky(fleet: Fleet):
    summary = run(fleet, "05_flaky.toml", "--workers", "4")
    rows = results(summary)
    assert {key: (row["state"], row["attempts"]) for key, row in rows.items() if row["failure"] is None} == {
        "fine_1": ("done", 1),
        "fine_2": ("done", 2),
    }
    kinds = {key: row["failure"]["kind"] for key, row in rows.items() if row["failure"]}
    said = dict(re.findall(r": (\w+)\nkey = \"(broken_\w+)\"", (EXAMPLES / "05_flaky.toml").read_text("utf-8")))
    assert kinds == {key: kind for kind, key in said.items()}
    assert {row["state"] for row in rows.values() if row["failure"]} <= {"failed", "held"}
    assert [key for key, row in rows.items() if row["state"] == "held" and key != "broken_hang"] == []


def test_secret(fleet: Fleet):
    refused = fleet.command("run", str(EXAMPLES / "06_secret.toml"))
    assert refused.returncode == 2
    assert "API_KEY" in refused.stderr
    summary = run(fleet, "06_secret.toml", API_KEY="correct-horse")
    assert summary["tasks"]["done"] == 1
    assert fleet.command("logs", "latest", "secret_1").stdout == "the key is [secret API_KEY]\n"
    assert not [path for path in fleet.home.rglob("*") if path.is_file() and b"correct-horse" in path.read_bytes()]
