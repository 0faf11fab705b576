"""200 tasks of which 46 misbehave: every verdict that can be had is there, and the rest is blamed on those who earned it."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from tests.faults.chaos_command import evalfleet

pytestmark = pytest.mark.slow

MIX = {"ok": 154, "fail_once": 25, "fail": 6, "hang_once": 9, "hang": 6}
VERDICTS = 188

# $1 is what the task does, $2 a file that tells its first attempt from the later ones
PROGRAM = """\
case $1 in
    fail) exit 1 ;;
    hang) exec sleep 600 ;;
    fail_once) [ -e "$2" ] || { : > "$2"; exit 1; } ;;
    hang_once) [ -e "$2" ] || { : > "$2"; exec sleep 600; } ;;
esac
"""


def _write_tasks(folder: Path, *, bad_first: bool) -> Path:
    (folder / "task.sh").write_text(PROGRAM)
    kinds = [kind for kind, count in MIX.items() for _ in range(count)]
    random.Random(2).shuffle(kinds)
    if bad_first:
        kinds.sort(key=lambda kind: kind == "ok")
    settings = {"attempts": 3, "timeout": "2s", "retry_base": "0.2s"}
    lines = [json.dumps({"run": settings})]
    for number, kind in enumerate(kinds):
        words = ["sh", "task.sh", kind, str(folder / f"seen-{number}")]
        lines.append(json.dumps({"key": f"{kind}-{number}", "domain": kind, "command": words}))
    path = folder / "mix.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    "bad_first", [pytest.param(False, id="shuffled"), pytest.param(True, id="bad_first", marks=pytest.mark.long)]
)
def test_every_verdict_is_had_and_the_rest_is_blamed_on_the_tasks(tmp_path: Path, home: Path, bad_first: bool) -> None:
    tasks = _write_tasks(tmp_path, bad_first=bad_first)

    done = evalfleet(home, "run", str(tasks), "--workers", "10")

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(evalfleet(home, "report", "--json").stdout)
    assert report["tasks"]["done"] == report["scores"]["verdicts"] == VERDICTS
    assert report["tasks"]["failed"] == 12
    assert report["tasks"]["held"] == 0
    scores = report["scores"]
    assert scores["strict"] == scores["valid"] == pytest.approx(VERDICTS / 200)
    assert scores["coverage"] == 1.0
    _check_failures(report["results"])
    _check_attempts(report)
    _check_events(home)
    _check_printed(evalfleet(home, "report").stdout)
    _check_printed(done.stdout)


def _check_failures(results: list[dict]) -> None:
    failed = {one["key"]: one["failure"] for one in results if one["state"] == "failed"}
    assert Counter(key.partition("-")[0] for key in failed) == {"fail": 6, "hang": 6}
    for key, failure in failed.items():
        assert failure["kind"] == ("bad_exit" if key.startswith("fail") else "stall"), key
        assert failure["blame"] == "task", key
    wanted = {"ok": 1, "fail_once": 2, "hang_once": 2, "fail": 3, "hang": 3}
    for one in results:
        # A hang seen on two workers is the task's own, so it may be given up before its attempts are used up.
        most = wanted[one["domain"]]
        assert one["attempts"] == most or (one["domain"] == "hang" and one["attempts"] == 2), one["key"]


def _check_attempts(report: dict) -> None:
    assert set(report["failures"]) == {"bad_exit", "stall"}
    assert report["failures"]["bad_exit"] == 25 + 6 * 3
    assert report["failures"]["stall"] in range(9 + 6 * 2, 9 + 6 * 3 + 1)


def _check_events(home: Path) -> None:
    types = {json.loads(line)["type"] for line in evalfleet(home, "events", "--json").stdout.splitlines()}
    assert not [one for one in types if "quarantin" in one or one.startswith(("breaker.", "worker."))]


def _check_printed(text: str) -> None:
    printed = {line.split()[0].lower(): line for line in text.splitlines() if "core" in line and "94.0%" in line}
    assert {"valid", "strict"} <= printed.keys(), text
