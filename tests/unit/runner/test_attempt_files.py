"""What becomes of the files that a dead attempt left, one by one."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evalfleet.core.failures.end_record import end_from_json
from evalfleet.core.failures.judge import judge
from evalfleet.model import Failure, Policy
from evalfleet.runner.attempt.attempt import Attempt
from evalfleet.runner.attempt.collect import INLINE_FILES, MAX_MANIFEST, AttemptFiles, clean_file
from evalfleet.runner.attempt.journal import Journal
from evalfleet.runner.attempt.spec import AttemptSpec
from evalfleet.runner.redact import Redactor

KEY = Redactor({"KEY": "hunter22"})
NONE = Redactor({})


def collected(folder: Path, redactor: Redactor) -> dict[str, object]:
    files = AttemptFiles(str(folder), redactor)
    try:
        return {**files.verdict(), **files.collect()}
    finally:
        files.close()


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    (tmp_path / "artifacts").mkdir()
    return tmp_path / "artifacts"


def test_artifacts_are_cleaned_and_listed(tmp_path: Path) -> None:
    folder = tmp_path / "artifacts"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("key: hunter22\n" * 3)
    (folder / "deep" / "b.bin").write_bytes(b"\0hunter22")
    (folder / "c.txt").write_text("fine")
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "fifo")
    (tmp_path / "result.json").write_text(json.dumps({"score": 1, "note": "hunter22"}))
    (tmp_path / "events.jsonl").write_text('{"note": "hunter22"}\n')
    record = collected(tmp_path, KEY)
    assert record == {
        "result": {"score": 1, "note": "[secret KEY]"},
        "has_result": True,
        "result_error": None,
        "artifacts": [
            {"path": "a.txt", "size": len("key: [secret KEY]\n") * 3},
            {"path": "c.txt", "size": 4},
            {"path": "deep/b.bin", "size": 9, "secret": True},
        ],
    }
    for path in (folder / "a.txt", tmp_path / "result.json", tmp_path / "events.jsonl"):
        assert "hunter22" not in path.read_text()
    assert not list(folder.glob(".*"))


def test_secrets_that_nobody_knows(tmp_path: Path) -> None:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "a.txt").write_text("?")
    (tmp_path / "result.json").write_text("{}")
    files = AttemptFiles(str(tmp_path), NONE)
    verdict, record = files.verdict(unknown_secrets=True), files.collect(unknown_secrets=True)
    files.close()
    assert record["artifacts"] == [{"path": "a.txt", "size": 1, "secret": True}]
    assert not verdict["has_result"]


@pytest.mark.parametrize("score", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("more", ["", ', "success": true'])
def test_a_score_that_is_no_number_is_refused(artifacts: Path, score: str, more: str) -> None:
    (artifacts.parent / "result.json").write_text(f'{{"score": {score}{more}}}')
    record = collected(artifacts.parent, NONE)
    judged = judge(end_from_json({"cause": "exited", "exit_code": 0, **record}), Policy())
    assert isinstance(judged, Failure)
    assert '"score" must be a number from 0 to 1' in judged.evidence


def test_the_list_of_artifacts_is_bounded_in_bytes(artifacts: Path) -> None:
    deep = os.fsencode(artifacts)
    for _ in range(4):
        deep += b"/" + b"\xff" * 250
    os.makedirs(deep)
    for number in range(900):
        os.close(os.open(deep + b"/%d" % number, os.O_WRONLY | os.O_CREAT))
    record = collected(artifacts.parent, NONE)
    entries = record["artifacts"]
    assert isinstance(entries, list)
    assert len(json.dumps(entries, separators=(",", ":"))) <= MAX_MANIFEST
    assert len(entries) + record["artifacts_left_out"] == 900  # pyright: ignore[reportOperatorIssue]
    assert entries


def test_a_result_that_grows_by_the_names_of_secrets_is_bounded(artifacts: Path) -> None:
    (artifacts.parent / "result.json").write_text(json.dumps({"score": 1, "note": "hunter22" * 100_000}))
    record = collected(artifacts.parent, Redactor({"K" * 200: "hunter22"}))
    assert not record["has_result"]
    assert "too large once" in str(record["result_error"])


def test_what_cannot_be_cleaned_is_not_kept(artifacts: Path) -> None:
    """No byte can be written, as on a full disk."""
    folder = artifacts.parent
    (artifacts / "a.txt").write_text("key: hunter22")
    (artifacts / "b.txt").write_text("harmless")
    (folder / "result.json").write_text(json.dumps({"score": 1, "note": "hunter22"}))
    (folder / "events.jsonl").write_text('{"note": "hunter22"}\n')
    script = f"""
import json, resource, signal
from evalfleet.runner.attempt.collect import AttemptFiles
from evalfleet.runner.redact import Redactor
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
files = AttemptFiles({str(folder)!r}, Redactor({{"KEY": "hunter22"}}))
print(json.dumps(dict(files.verdict(), **files.collect())))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    record = json.loads(done.stdout)
    assert record["result"] == {"score": 1, "note": "[secret KEY]"}
    assert record["artifacts"] == [{"path": "b.txt", "size": 8}]
    assert (record["artifacts_left_out"], sorted(record["unclean"])) == (1, ["events.jsonl", "result.json"])
    assert not (folder / "result.json").exists()
    assert not (folder / "events.jsonl").exists()
    assert sorted(os.listdir(artifacts)) == ["a.txt", "b.txt"]


def test_a_name_that_our_copy_could_have_is_no_obstacle(artifacts: Path) -> None:
    folder = artifacts.parent
    (folder / "result.json").write_text(json.dumps({"score": 1, "note": "hunter22"}))
    (folder / ".result.json.redacted").write_text("taken")
    collected(folder, KEY)
    assert "hunter22" not in (folder / "result.json").read_text()


def test_a_secret_in_a_name_that_cannot_be_changed_is_not_listed(artifacts: Path) -> None:
    (artifacts / "a-hunter22").write_text("1")
    (artifacts / "a-[secret KEY]").write_text("2")
    (artifacts / "of-hunter22").mkdir()
    (artifacts / "of-hunter22" / "b").write_text("3")
    record = collected(artifacts.parent, KEY)
    assert "hunter22" not in json.dumps(record)
    assert record["artifacts"] == [{"path": "a-[secret KEY]", "size": 1}, {"path": "of-[secret KEY]/b", "size": 1}]
    assert record["artifacts_left_out"] == 1


def test_links_pipes_and_devices_are_no_artifacts(artifacts: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("hunter22")
    (artifacts / "folder").symlink_to(outside)
    (artifacts / "file").symlink_to(outside / "a.txt")
    os.mkfifo(artifacts / "fifo")
    assert collected(artifacts.parent, KEY)["artifacts"] == []
    assert (outside / "a.txt").read_text() == "hunter22"


@pytest.mark.parametrize("swapped", ["a.txt", "deep"])
def test_what_became_a_link_after_it_was_listed_is_left_alone(artifacts: Path, tmp_path: Path, swapped: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("hunter22")
    (artifacts / "a.txt").write_text("hunter22")
    (artifacts / "deep").mkdir()
    (artifacts / "deep" / "a.txt").write_text("hunter22")
    files = AttemptFiles(str(artifacts.parent), KEY)
    (artifacts / swapped).rename(artifacts / "was")
    (artifacts / swapped).symlink_to(outside / "a.txt" if swapped == "a.txt" else outside)
    record = files.collect()
    files.close()
    assert (outside / "a.txt").read_text() == "hunter22"
    assert (len(record["artifacts"]), record["artifacts_left_out"]) == (1, 1)


def test_a_key_of_several_lines_is_known_by_each_of_them(tmp_path: Path) -> None:
    lines = [
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj",
        "MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SSKhgsTWDcyV3",
        "abc=",
    ]
    pem = "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----", ""])
    for value in (pem, pem.replace("\n", "\\n"), pem.replace("\n", "\r\n"), f"\n  {pem}"):
        redactor = Redactor({"PEM": value})
        assert redactor.clean(f"line 2: {lines[1]};".encode()) == b"line 2: [secret PEM];"
        assert redactor.clean(b"-----BEGIN PRIVATE KEY-----") == b"-----BEGIN PRIVATE KEY-----"
        assert redactor.clean(f"<{value}>".encode()) == b"<[secret PEM]>"
        path = tmp_path / "key.txt"
        path.write_text("\n".join(f"> {line}" for line in lines))
        clean_file(str(path), redactor)
        assert path.read_text() == "> [secret PEM]\n> [secret PEM]\n> abc="


def test_short_lines_and_plain_values_are_not_cut_up() -> None:
    redactor = Redactor({"A": "short\nlines\nonly here", "B": "one-value-without-line-ends"})
    assert redactor.clean(b"short lines only here") == b"short lines only here"
    assert len(redactor.needles) < 20


def test_a_verdict_needs_no_process(artifacts: Path) -> None:
    """Nobody can be started to go through the files."""
    folder = artifacts.parent
    (folder / "result.json").write_text('{"score": 0.75}')
    for number in range(INLINE_FILES + 1):
        (artifacts / f"{number}").touch()
    spec = AttemptSpec({"key": "a", "domain": "d", "number": 1, "command": ["true"], "timeout_s": 1, "env": {}})
    journal = Journal(str(folder / "journal.jsonl"), "r.1.1", time.time)
    journal.create()
    saved: list[object] = []

    def no_process(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    keeper: Any = SimpleNamespace(
        now=time.time, in_background=no_process, save=lambda *calls: saved.append(calls), oom_kills=lambda **_: 0
    )
    attempt = Attempt(keeper, "r.1.1", "r", str(folder), spec, NONE, journal)
    attempt._end.update(cause="exited", exit_code=0)
    attempt._finish()
    assert saved
    end = json.loads(journal.release())
    journal.close()
    assert (end["cause"], end["result"], len(end["artifacts"])) == ("exited", {"score": 0.75}, INLINE_FILES + 1)
