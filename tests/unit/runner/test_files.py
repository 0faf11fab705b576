"""What the runner reads from disk, whatever a task did to it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from evalfleet.runner import jsontext
from evalfleet.runner.attempt.collect import read_result
from evalfleet.runner.attempt.event_file import LINES_PER_S, MAX_LINE, EventFile
from evalfleet.runner.attempt.journal import Journal
from evalfleet.runner.attempt.output import OutputLog, last_lines
from evalfleet.runner.attempt.spec import AttemptSpec, RequestRefused
from evalfleet.runner.redact import Redactor
from evalfleet.runner.safe_files import remove
from evalfleet.runner.spool.spool import Spool, fetch

NONE = Redactor({})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"score": 1e999}', "too large"),
        (b'{"score": %s}' % (b"9" * 5000), "digits"),
        (b"[" * 100_000, "nested"),
        (b"[" * 500 + b"]" * 500, "nested"),
        (b" " * (1 << 20) + b"1", "larger"),
    ],
)
def test_hostile_results(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(content)
    result, has_result, error = read_result(str(path))
    assert (result, has_result) == (None, False)
    assert error is not None
    assert words in error


def test_results_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "real").write_text("1")
    (tmp_path / "link").symlink_to("real")
    for name in ("fifo", "folder", "link"):
        result, has_result, error = read_result(str(tmp_path / name))
        assert (result, has_result) == (None, False)
        assert error is not None
    assert read_result(str(tmp_path / "missing")) == (None, False, None)


def test_half_surrogates_are_mended() -> None:
    assert jsontext.parse(b'"a\\ud800b \\u00e9 \\ud83d\\ude00"') == "a?b é 😀"


def test_events_follow_an_appending_task(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events = EventFile(str(path), NONE)
    assert events.poll(0.0) == 0
    with path.open("ab", buffering=0) as file:
        file.write(b'{"step": 1, "cost_usd": 0.5}\n{"st')
        assert events.poll(0.0) == 1
        file.write(b'ep": 2, "cost_usd": 0.25}\n')
        assert events.poll(0.1) == 1
        file.write(b'{"ready": true}')
    assert events.poll(0.2) == 0
    assert events.drain(0.3) == 1
    assert events.ready
    assert events.take() == {
        "step": 2,
        "cost_usd": 0.75,
        "lines": [{"step": 1, "cost_usd": 0.5}, {"step": 2, "cost_usd": 0.25}, {"ready": True}],
    }


def test_bad_event_lines_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    good = b'{"step": 7}\n'
    bad = b'nonsense\n[1]\n"x"\n\n{"a": nan}\n\xff\n{"x": "' + b"y" * (MAX_LINE * 3) + b'"}\n'
    path.write_bytes(
        bad + good + b'{"step": true, "cost_usd": -5}\n{"step": -1, "cost_usd": "1"}\n{"cost_usd": 1e300}\n'
    )
    events = EventFile(str(path), NONE)
    assert events.drain(0.0) == 4
    assert (events.step, events.usd, events.dropped) == (7, 0.0, 6)


def test_a_flood_of_events_is_thinned(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(b'{"step": %d}\n' % step for step in range(10_000)))
    events = EventFile(str(path), NONE)
    assert events.drain(5.0) == 10_000
    assert events.step == 9999
    assert len(events.batch) == LINES_PER_S
    assert events.take()["dropped"] == 10_000 - LINES_PER_S


def test_events_that_are_no_file_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events = EventFile(str(path), NONE)
    path.write_bytes(b'{"step": 1}\n')
    assert events.poll(0.0) == 1
    path.unlink()
    os.mkfifo(path)
    assert events.poll(0.0) == 0
    path.unlink()
    path.mkdir()
    assert events.poll(0.0) == 0
    path.rmdir()
    (tmp_path / "other").write_bytes(b'{"step": 5}\n')
    path.symlink_to("other")
    assert events.drain(0.0) == 0
    assert events.step == 1


def test_output_is_capped_and_read_on(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    output = OutputLog(reader, str(tmp_path / "stdout.log"), NONE, cap=1000)
    for _ in range(10):
        os.write(writer, b"x" * 999 + b"\n")
        assert output.read() == 1000
    os.close(writer)
    assert output.drain() == 0
    log = (tmp_path / "stdout.log").read_bytes()
    assert log.startswith(b"x" * 999)
    assert b"capped at 1000 bytes" in log
    assert len(log) < 1200
    assert last_lines(output.tail()).endswith("x")


def traceback(*words: str) -> str:
    """A chain of exceptions with deep stacks, as Python prints it."""
    frames = "".join(f'  File "/x/{n}.py", line {n}, in f\n    f({n})\n    ^^^^\n' for n in range(40))
    link = "\nThe above exception was the direct cause of the following exception:\n\n"
    return link.join(f"Traceback (most recent call last):\n{frames}{one}\n" for one in words)


def test_the_end_of_a_long_traceback_keeps_its_causes() -> None:
    tail = last_lines(traceback("OSError: [Errno 111]", "httpx.ConnectError: no", "RuntimeError: step 3").encode())
    at_the_margin = [line for line in tail.splitlines() if line and line[0] != " "]
    link = "The above exception was the direct cause of the following exception:"
    head = "Traceback (most recent call last):"
    assert at_the_margin == [
        head, "OSError: [Errno 111]", link, head, "httpx.ConnectError: no", link, head, "RuntimeError: step 3"
    ]  # fmt: skip
    assert 0 < tail.count("  File") <= 20


def test_a_long_last_line_keeps_its_beginning_and_its_end() -> None:
    tail = last_lines(b"first\n" + b"openai.InternalServerError: <html>" + b"x" * 100_000 + b"</html>")
    assert tail.startswith("first\nopenai.InternalServerError: <html>")
    assert tail.endswith("</html>")
    assert len(tail) < 2000


def test_the_tail_is_bounded_and_the_last_lines_win() -> None:
    tail = last_lines(b"".join(b"%d " % n + b"y" * 900 + b"\n" for n in range(100)) + b"ValueError: last\n")
    assert len(tail) <= 6000
    assert tail.endswith("\nValueError: last")
    assert last_lines(b"") == ""


def test_no_log_without_output(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    output = OutputLog(reader, str(tmp_path / "stdout.log"), NONE)
    os.close(writer)
    output.drain()
    assert not (tmp_path / "stdout.log").exists()


def test_journal_lines_are_events(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "journal.jsonl"), "a", time.time)
    journal.create()
    for number in range(50):
        journal.append("progress", {"lines": ["x" * number * 100]})
    lines = (tmp_path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    for event in (0, 1, 7, 49, 50, 99):
        place = journal.offset_of(event)
        data = b""
        while piece := journal.read(place + len(data), 1000):
            data += piece
        assert data == b"".join(lines[event:])
    journal.close()


def test_journal_survives_a_full_disk(tmp_path: Path) -> None:
    journal = Journal("/dev/full", "a", time.time)
    journal._fd = os.open("/dev/full", os.O_WRONLY)
    line = journal.append("ended", {})
    assert journal.disk_full
    assert journal.read(0) == line
    os.close(journal._fd)
    journal.path = str(tmp_path / "journal.jsonl")
    journal.create()
    assert journal.flush()
    journal.close()
    assert (tmp_path / "journal.jsonl").read_bytes() == line == journal.read(0)


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "", "a/../b", "link/passwd", "link", "folder", "fifo", "missing", "a\0b"]
)
def test_fetch_stays_inside(tmp_path: Path, path: str) -> None:
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(RequestRefused):
        fetch(str(tmp_path), path, 0, 10)


def test_fetch_pieces(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_bytes(b"0123456789")
    assert fetch(str(tmp_path), "folder/a", 8, 5) == (b"89", 10)


def test_fence_outlives_the_runner(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    spool.make()
    spool.fence("r", 3)
    spool.fence("r", 3)
    again = Spool(str(tmp_path))
    again.load()
    with pytest.raises(RequestRefused) as caught:
        again.fence("r", 2)
    assert caught.value.error == "stale_epoch"
    again.fence("other", 1)


def test_removing_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    doomed = tmp_path / "doomed"
    (doomed / "closed").mkdir(parents=True)
    (doomed / "closed" / "file").touch()
    (doomed / "closed").chmod(0)
    (doomed / "link").symlink_to(tmp_path / "kept")
    remove(str(doomed))
    remove(str(doomed))
    assert not doomed.exists()
    assert (tmp_path / "kept" / "file").exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"command": []},
        {"command": "ls"},
        {"command": ["a\0b"]},
        {"command": ["x"], "timeout_s": 0},
        {"command": ["x"], "timeout_s": True},
        {"command": ["x"]},
        {"command": ["x"], "timeout_s": 1, "env": {"A=B": "c"}},
        {"command": ["x"], "timeout_s": 1, "env": {"A": 1}},
        {"command": ["x"], "timeout_s": 1, "files": {"../a": "0" * 64}},
        {"command": ["x"], "timeout_s": 1, "files": {"a": "zz"}},
        {"command": ["x"], "timeout_s": 1, "progress": "magic"},
        {"command": ["x"], "timeout_s": 1, "cwd": ""},
        "text",
    ],
)
def test_bad_specs(fields: object) -> None:
    with pytest.raises(RequestRefused) as caught:
        AttemptSpec(fields)
    assert caught.value.error == "bad_request"


def test_removing_a_link_to_a_folder_removes_the_link(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    assert remove(str(tmp_path / "link")) is None
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "kept" / "file").exists()


def test_thousands_of_levels_are_removed(tmp_path: Path) -> None:
    doomed = tmp_path / "doomed"
    doomed.mkdir()
    here = os.open(doomed, os.O_RDONLY)
    for _ in range(3000):  # longer than any path may be
        os.mkdir("deep", dir_fd=here)
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here))
        deeper = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    assert remove(str(doomed)) is None
    assert not doomed.exists()


def test_what_most_attempts_leave_is_removed_in_few_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done for each attempt, in the loop: empty folders are not opened, and no folder is listed twice."""
    folder = tmp_path / "r.1.1"
    for name in ("work", "artifacts"):
        (folder / name).mkdir(parents=True)
    (folder / "stdout.log").touch()
    steps: list[str] = []
    for name in ("listdir", "open"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, _n=name, _r=real, **k: [steps.append(_n), _r(*a, **k)][1])
    assert remove(str(folder)) is None
    monkeypatch.undo()
    assert steps == ["open", "listdir"]
    assert not folder.exists()
