"""The commands that only look, as real processes."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.support.fleet import Fleet
from tests.support.report_builders import RunBuilder, mixed_run

from evalfleet.layout import Home
from evalfleet.model import Kind, TaskState

EVIL = "\x1b[31m[red]x\n_1"


def evalfleet(home: Path, *args: str, **how) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evalfleet", args[0], "--home", str(home), *args[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **how)


@pytest.fixture
def mixed(home: Path):
    builder = mixed_run(home)
    yield builder
    builder.close()


def test_status_lists_runs_newest_first(home: Path, mixed: RunBuilder) -> None:
    mixed.time += 10
    second = mixed.store.runs.submit(EVIL, mixed.run.policy, [], folder="/", base_env={})
    done = evalfleet(home, "status", env={**os.environ, "COLUMNS": "120"})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["run", "name", "state", "tasks", "passed", "failed", "held", "valid", "cost", "age"]
    assert lines[1].startswith(second.id)
    assert "\\e[31m[red]x\\n_1" in lines[1]
    assert lines[2].split()[:8] == [mixed.run.id, "nightly", "running", "5/6", "2", "1", "1", "50.0%"]
    rows = json.loads(evalfleet(home, "status", "--json").stdout)["runs"]
    assert [row["run"] for row in rows] == [second.id, mixed.run.id]
    assert rows[1]["driven"] is True
    assert rows[1]["scores"]["valid"] == 0.5


def test_status_of_an_empty_home(home: Path) -> None:
    done = evalfleet(home, "status")
    assert (done.returncode, done.stdout) == (0, f"No runs in {home} yet. Start one with `evalfleet run TASKS.toml`.\n")
    assert json.loads(evalfleet(home, "status", "--json").stdout) == {"schema": 2, "runs": []}
    assert not home.exists(), "looking makes nothing"


def test_status_of_one_run(home: Path, mixed: RunBuilder) -> None:
    mixed.step(mixed.claim("web_2"), 4)
    done = evalfleet(home, "status", mixed.run.id[:4])
    assert "Valid score" in done.stdout
    assert "web_2" in done.stdout
    assert f"Next: evalfleet watch {mixed.run.id}" in done.stdout
    one = json.loads(evalfleet(home, "status", "latest", "--json").stdout)
    assert one["workers"][0]["task"] == "web_2"
    assert one["results"] is None


def test_status_says_when_nobody_drives_the_run(home: Path, mixed: RunBuilder) -> None:
    run_id = mixed.run.id
    mixed.store.runs.leave(mixed.run)
    assert "not driven" in evalfleet(home, "status").stdout
    assert f"Next: evalfleet resume {run_id}" in evalfleet(home, "status", run_id).stdout


def test_status_tells_why_it_is_paused(home: Path, mixed: RunBuilder) -> None:
    mixed.pause(message="export OPENAI_API_KEY").leave()
    done = evalfleet(home, "status", "latest")
    assert "Why: export OPENAI_API_KEY" in done.stdout
    assert f"evalfleet resume {mixed.run.id}" in done.stdout


@pytest.mark.parametrize("args", [["status"], ["status", "latest"], ["logs", "latest", "pad_1"], ["events"]])
def test_quick_commands_load_nothing_heavy(home: Path, mixed: RunBuilder, args: list[str]) -> None:
    code = "import sys; from evalfleet.cli.main import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", code, *args, "--home", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert not {"rich", "asyncio", "anyio", "evalfleet.engine"} & set(done.stderr.split())


@pytest.mark.parametrize("command", ["status", "report", "events", "watch"])
def test_an_unknown_run_is_bad_input(home: Path, mixed: RunBuilder, command: str) -> None:
    done = evalfleet(home, command, "nosuch")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "nosuch" in done.stderr


@pytest.mark.parametrize("command", ["report", "events", "watch"])
def test_without_any_run_it_says_how_to_make_one(home: Path, command: str) -> None:
    done = evalfleet(home, command)
    assert done.returncode == 2
    assert "evalfleet run" in done.stderr


def test_report_by_name_prefix_and_default(home: Path, mixed: RunBuilder) -> None:
    texts = {evalfleet(home, "report", *which).stdout for which in ([], ["latest"], ["nightly"], [mixed.run.id[:3]])}
    assert len(texts) == 1
    summary = json.loads(evalfleet(home, "report", "--json").stdout)
    assert summary["run"] == mixed.run.id
    assert len(summary["results"]) == 6


def test_report_writes_html(home: Path, mixed: RunBuilder, tmp_path: Path) -> None:
    file = tmp_path / "out.html"
    done = evalfleet(home, "report", "--html", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"Wrote {file}\n"
    assert file.read_text().startswith("<!doctype html>")
    refused = evalfleet(home, "report", "--html", str(tmp_path / "no" / "such.html"))
    assert refused.returncode == 2
    assert "cannot write" in refused.stderr


def test_events_as_lines_and_objects(home: Path, mixed: RunBuilder) -> None:
    text = evalfleet(home, "events").stdout.splitlines()
    objects = [json.loads(line) for line in evalfleet(home, "events", "--json").stdout.splitlines()]
    assert len(text) == len(objects) == len(mixed.store.events.of_run(mixed.run.id))
    assert [one["number"] for one in objects] == sorted(one["number"] for one in objects)
    assert set(objects[0]) == {"number", "run", "at", "type", "task", "attempt", "data"}


def test_events_can_be_chosen(home: Path, mixed: RunBuilder) -> None:
    chosen = evalfleet(home, "events", "--json", "--type", "task.*", "--task", "sheet_1").stdout.splitlines()
    assert [json.loads(line)["type"] for line in chosen] == ["task.retried", "task.done"]
    last = mixed.store.events.of_run(mixed.run.id)[-1].number
    assert evalfleet(home, "events", "--after", str(last)).stdout == ""
    assert evalfleet(home, "events", "--task", "nosuch").returncode == 2


def test_events_follow_until_the_run_is_over(home: Path) -> None:
    builder = RunBuilder(home, ["a_1"]).begin()
    command = [sys.executable, "-m", "evalfleet", "events", "--home", str(home), "--follow", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        first = follower.stdout.readline()
        builder.attempt("a_1", 1.0)
        builder.complete()
        rest, _ = follower.communicate(timeout=30)
    builder.close()
    assert json.loads(first)["type"] == "run.submitted"
    assert json.loads(rest.splitlines()[-1])["type"] == "run.completed"
    assert follower.returncode == 0


def test_a_closed_pipe_is_no_error(home: Path) -> None:
    builder = RunBuilder(home, [f"a_{i}" for i in range(3000)]).begin()
    with builder.store.batch():
        for key in builder.numbers:
            builder.attempt(key, 1.0)
    builder.close()
    shell = f"{sys.executable} -m evalfleet events --home {home} --json | head -1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def spooled(builder: RunBuilder, attempt_id: str) -> Path:
    folder = Home(builder.home).spooled(attempt_id)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_logs_of_a_live_and_of_a_collected_attempt(home: Path) -> None:
    builder = RunBuilder(home, ["a_1"]).begin()
    claimed = builder.claim("a_1")
    folder = spooled(builder, claimed.attempt.id)
    (folder / "stdout.log").write_bytes(b"live \xff\x1b[2J\n")
    (folder / "stderr.log").write_bytes(b"oops\n")
    raw = subprocess.run(
        [sys.executable, "-m", "evalfleet", "logs", "latest", "a_1", "--home", str(home)],
        capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert raw.stdout == b"live \xff\x1b[2J\noops\n", "a pipe gets the bytes as they are"
    assert evalfleet(home, "logs", "latest", "a_1", "--stderr").stdout == "oops\n"

    builder.finish(claimed, kind=Kind.BAD_EXIT)
    collected = Home(home).attempt(builder.run.id, "a_1", 1)
    collected.parent.mkdir(parents=True)
    folder.rename(collected)
    builder.finish(builder.claim("a_1"), 1.0)
    second = Home(home).attempt(builder.run.id, "a_1", 2)
    second.mkdir()
    (second / "stdout.log").write_text("second\n")
    builder.close()
    assert evalfleet(home, "logs", "latest", "a_1").stdout == "second\n"
    answer = json.loads(evalfleet(home, "logs", "latest", "a_1", "--attempt", "1", "--json").stdout)
    assert answer["stdout"].startswith("live ")
    assert answer["stderr"] == "oops\n"
    assert answer["outcome"] == "task_error"


def test_logs_of_what_does_not_exist(home: Path, mixed: RunBuilder) -> None:
    assert "no task 'nosuch'" in evalfleet(home, "logs", "latest", "nosuch").stderr
    waiting = evalfleet(home, "logs", "latest", "web_2")
    assert waiting.returncode == 2
    assert "no attempt" in waiting.stderr
    assert "it has 1" in evalfleet(home, "logs", "latest", "pad_1", "--attempt", "7").stderr
    assert "has written nothing" in evalfleet(home, "logs", "latest", "pad_1").stderr


def test_logs_follow_across_the_move(home: Path) -> None:
    builder = RunBuilder(home, ["a_1"]).begin()
    claimed = builder.claim("a_1")
    folder = spooled(builder, claimed.attempt.id)
    log = folder / "stdout.log"
    log.write_text("one\n")
    command = [sys.executable, "-m", "evalfleet", "logs", "--home", str(home), "latest", "a_1", "-f"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "one\n"
        with log.open("a") as file:
            file.write("two\n")
        collected = Home(home).attempt(builder.run.id, "a_1", 1)
        collected.parent.mkdir(parents=True)
        folder.rename(collected)
        with (collected / "stdout.log").open("a") as file:
            file.write("three\n")
        builder.finish(claimed, 1.0)
        rest, error = follower.communicate(timeout=30)
    builder.close()
    assert rest == "two\nthree\n"
    assert error == "attempt 1 ended: ok\n"


def test_watch_of_a_finished_run_shows_how_it_ended(home: Path) -> None:
    builder = RunBuilder(home, ["a_1", "a_2"]).begin()
    builder.attempt("a_1", 1.0)
    builder.attempt("a_2", kind=Kind.BAD_EXIT, then=TaskState.HELD)
    builder.complete().leave()
    builder.close()
    done = evalfleet(home, "watch")
    assert done.returncode == 1, "coverage is below 1.0"
    assert "Valid score" in done.stdout
    assert json.loads(evalfleet(home, "watch", "--json").stdout)["state"] == "completed"


def test_watch_ends_when_a_paused_run_is_left(home: Path, mixed: RunBuilder) -> None:
    mixed.pause().leave()
    done = evalfleet(home, "watch")
    assert done.returncode == 3
    assert "the budget is spent" in done.stdout


def test_watch_says_that_nobody_drives_the_run(home: Path, mixed: RunBuilder) -> None:
    mixed.store.runs.leave(mixed.run)
    done = evalfleet(home, "watch")
    assert done.returncode == 3
    assert done.stderr == f"no controller drives this run; `evalfleet resume {mixed.run.id}`\n"


def test_watch_prints_lines_into_a_pipe(home: Path) -> None:
    builder = RunBuilder(home, ["a_1"]).begin()
    command = [sys.executable, "-m", "evalfleet", "watch", "--home", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        while not select.select([watcher.stdout], [], [], 0.2)[0]:  # it prints what comes after its start
            builder.store.events.note(builder.run.id, "run.requested", {"verb": "amend", "by": "ann"})
        builder.attempt("a_1", 1.0)
        builder.complete()
        shown, _ = watcher.communicate(timeout=30)
    builder.close()
    assert watcher.returncode == 0
    assert "amend by ann" in shown
    assert "[1/1] passed         a_1  score 1" in shown
    assert "run completed" in shown
    assert "Valid score  100.0%" in shown


def on_terminal(command: list[str], then) -> tuple[int, str]:
    """Run a command on a pseudo-terminal of 80x24, call `then` with its process, and return what it drew."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "LINES": "24", "TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    drawn = bytearray()

    def drain() -> None:
        try:
            while block := os.read(leader, 65536):
                drawn.extend(block)
        except OSError:  # the other end is closed
            return

    reader = threading.Thread(target=drain)
    reader.start()
    then(process, drawn)
    code = process.wait(timeout=30)
    reader.join(timeout=10)
    os.close(leader)
    return code, drawn.decode(errors="replace")


def wait_for(drawn: bytearray, text: bytes) -> None:
    deadline = time.monotonic() + 20
    while text not in drawn:
        assert time.monotonic() < deadline, f"{text!r} never came: {bytes(drawn)!r}"
        time.sleep(0.05)


def test_watch_on_a_terminal_can_be_left_without_touching_the_run(home: Path, mixed: RunBuilder) -> None:
    def interrupt(process, drawn: bytearray) -> None:
        wait_for(drawn, b"Ctrl-C ends the view")
        process.send_signal(signal.SIGINT)

    command = [sys.executable, "-m", "evalfleet", "watch", "--home", str(home)]
    code, drawn = on_terminal(command, interrupt)
    assert code == 130
    assert drawn.rfind("\x1b[?25h") > drawn.rfind("\x1b[?25l"), "the cursor is back"
    assert "Traceback" not in drawn
    assert mixed.store.runs.get(mixed.run.id).state == "running"


def test_watch_on_a_terminal_ends_with_the_run(home: Path) -> None:
    builder = RunBuilder(home, ["a_1"]).begin()
    claimed = builder.claim("a_1")

    def finish(_process, drawn: bytearray) -> None:
        wait_for(drawn, b"a_1")
        builder.finish(claimed, 1.0)
        builder.complete()

    code, drawn = on_terminal([sys.executable, "-m", "evalfleet", "watch", "--home", str(home)], finish)
    builder.close()
    assert code == 0
    assert "Valid score" in drawn


def test_hostile_text_is_shown_on_a_terminal(home: Path) -> None:
    builder = RunBuilder(home, [EVIL], name=EVIL).begin()
    builder.attempt(EVIL, kind=Kind.BAD_EXIT, evidence="\x1b[2J", then=TaskState.FAILED)
    builder.complete().leave()
    builder.close()
    for args in (["report"], ["events"], ["status"], ["status", "latest"], ["watch"]):
        _, drawn = on_terminal([sys.executable, "-m", "evalfleet", *args, "--home", str(home)], lambda *_: None)
        assert "\x1b[2J" not in drawn
        assert "\x1b[31m[red]" not in drawn, args


def test_off_a_terminal_no_report_is_cut(fleet: Fleet):
    """A pipe has no width, and what would be cut is the cause."""
    cause = f"the cause stands at the end of a long line {'x' * 150} here"
    task = {"key": "a", "command": ["sh", "-c", f"echo '{cause}' >&2; exit 1"]}
    done = fleet.command("run", fleet.tasks([task], attempts=1))
    said = [done.stdout.partition("Run ")[2], fleet.command("report").stdout, fleet.command("status", "latest").stdout]
    assert [cause in text for text in said] == [True] * 3
    assert cause not in fleet.command("report", COLUMNS="100").stdout
