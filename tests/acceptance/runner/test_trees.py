"""Limits and process trees: nothing of an attempt outlives its end record."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.runner import RunnerClient, RunnerSpool, a_spec, is_alive, sh, wait_until

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if "bare" in sys.argv:
            os.execve("/bin/sh", ["sh", "-c", "echo $$ > %s; exec sleep 300" % sys.argv[1]], {})
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(300)
    os._exit(0)
while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read().strip():
    time.sleep(0.01)
if "stay" in sys.argv:
    time.sleep(300)
"""


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[RunnerSpool]:
    runner = RunnerSpool(tmp_path / "spool")
    info = runner.start()
    try:
        yield runner
        wait_until(lambda: children(info.pid) == [], "the last child to be reaped")
    finally:
        runner.close()
    assert "Traceback" not in runner.log()


@pytest.fixture
def client(spool: RunnerSpool) -> Iterator[RunnerClient]:
    with spool.client() as connection:
        yield connection


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def pid_in(path: Path) -> int:
    return int(wait_until(lambda: path.exists() and path.read_text().strip(), f"a pid in {path}"))


@pytest.mark.parametrize("how", ["marked", "bare"])
def test_a_daemon_does_not_outlive_its_attempt(client: RunnerClient, tmp_path: Path, how: str) -> None:
    end = client.run("a", sys.executable, "-c", DAEMON, str(tmp_path / "pid"), how)
    assert end["exit_code"] == 0
    assert not is_alive(pid_in(tmp_path / "pid"))


@pytest.mark.parametrize("how", ["marked", "bare"])
def test_cancel_reaches_a_daemon(client: RunnerClient, tmp_path: Path, how: str) -> None:
    client.launch("a", a_spec(sys.executable, "-c", DAEMON, str(tmp_path / "pid"), how, "stay"))
    pid = pid_in(tmp_path / "pid")
    client.must("cancel", run="r", epoch=1, attempt="a", reason="test")
    assert client.end("a")["cause"] == "cancelled"
    assert not is_alive(pid)


def test_daemons_of_neighbours_are_told_apart(client: RunnerClient, tmp_path: Path) -> None:
    """A short attempt with a daemon ends while a long one with a daemon goes on, with its daemon."""
    client.launch("long", a_spec(sys.executable, "-c", DAEMON, str(tmp_path / "long"), "marked", "stay"))
    long = pid_in(tmp_path / "long")
    client.run("short", sys.executable, "-c", DAEMON, str(tmp_path / "short"), "marked")
    assert not is_alive(pid_in(tmp_path / "short"))
    assert is_alive(long)
    client.must("cancel", run="r", epoch=1, attempt="long", reason="test")
    client.end("long")
    assert not is_alive(long)


def test_a_nameless_daemon_is_not_left_to_an_older_neighbour(client: RunnerClient, tmp_path: Path) -> None:
    """It has a session of its own and no variables, was born in the first moment, and somebody else was there before it."""
    client.launch("old", a_spec("sleep", "300"))
    client.event("old", "started")
    client.run("short", sys.executable, "-c", DAEMON, str(tmp_path / "pid"), "bare")
    assert not is_alive(pid_in(tmp_path / "pid"))
    client.must("cancel", run="r", epoch=1, attempt="old", reason="test")
    assert client.end("old")["cause"] == "cancelled"


def test_the_mark_of_an_attempt_limits_nobody(client: RunnerClient, spool: RunnerSpool) -> None:
    """Tasks see a limit above 100 years; the runner itself goes on with its own."""
    before = resource.getrlimit(resource.RLIMIT_RTTIME)
    client.run("a", sys.executable, "-c", "import resource; print(*resource.getrlimit(resource.RLIMIT_RTTIME))")
    soft, hard = map(int, (spool.attempt("a") / "stdout.log").read_text().split())
    assert (soft / 1e6 / 86400 / 365 > 100, hard) == (True, before[1])
    info = spool.info()
    assert info is not None
    assert resource.prlimit(info.pid, resource.RLIMIT_RTTIME) == before


def test_background_children_end_with_the_leader(client: RunnerClient, tmp_path: Path) -> None:
    end = client.run("a", *sh(f"sleep 300 & echo $! > {tmp_path}/pid; echo done"))
    assert (end["cause"], end["exit_code"], end["tail"]) == ("exited", 0, "done")
    assert end["duration_s"] < 30
    assert not is_alive(pid_in(tmp_path / "pid"))


def test_sigterm_comes_first(client: RunnerClient, spool: RunnerSpool) -> None:
    script = "trap 'echo bye; exit 3' TERM; echo up > $EVALFLEET_ARTIFACTS/up; while :; do sleep 0.05; done"
    client.launch("a", a_spec(*sh(script)))
    wait_until((spool.attempt("a") / "artifacts/up").exists, "the trap")
    client.must("cancel", run="r", epoch=1, attempt="a", reason="test")
    end = client.end("a")
    assert (end["cause"], end["exit_code"]) == ("cancelled", 3)
    assert (spool.attempt("a") / "stdout.log").read_text() == "bye\n"


def test_sigkill_follows_for_the_deaf(client: RunnerClient, spool: RunnerSpool) -> None:
    script = "trap '' TERM; echo up > $EVALFLEET_ARTIFACTS/up; while :; do sleep 0.05; done"
    client.launch("a", a_spec(*sh(script), grace_s=0.5))
    wait_until((spool.attempt("a") / "artifacts/up").exists, "the trap")
    client.must("cancel", run="r", epoch=1, attempt="a", reason="test")
    end = client.end("a")
    assert (end["cause"], end["signal"], end["oom"]) == ("cancelled", 9, False)


def test_a_stopped_process_ends_too(client: RunnerClient) -> None:
    client.launch("a", a_spec(*sh("kill -STOP $$; sleep 300")))
    started = client.event("a", "started")
    wait_until(lambda: Path(f"/proc/{started['pid']}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T", "the stop")
    client.must("cancel", run="r", epoch=1, attempt="a", reason="test")
    assert client.end("a")["signal"] == 15


def test_timeout_while_it_progresses(client: RunnerClient) -> None:
    end = client.run("a", *sh("while :; do echo x; sleep 0.05; done"), timeout_s=1.0)
    assert (end["cause"], end["signal"]) == ("timeout", 15)
    assert 1.0 <= end["duration_s"] < 30


def test_silence_at_the_wall_limit_is_a_stall(client: RunnerClient) -> None:
    end = client.run("a", "sleep", "300", timeout_s=0.5)
    assert end["cause"] == "stall"
    assert end["idle_s"] >= 0.25


def test_stall(client: RunnerClient) -> None:
    end = client.run("a", *sh("echo x; sleep 300"), timeout_s=120, stall_s=0.5)
    assert end["cause"] == "stall"
    assert 0.5 <= end["duration_s"] < 30


def test_output_is_no_progress_where_events_count(client: RunnerClient) -> None:
    end = client.run("a", *sh("while :; do echo x; sleep 0.05; done"), timeout_s=120, stall_s=0.5, progress="events")
    assert end["cause"] == "stall"


def test_event_lines_are_progress(client: RunnerClient) -> None:
    script = (
        "for i in 1 2 3 4 5 6 7 8; do echo '{\"step\": '$i', \"cost_usd\": 0.5}' >> $EVALFLEET_EVENTS; sleep 0.3; done"
    )
    end = client.run("a", *sh(script), timeout_s=120, stall_s=2.0, progress="events")
    assert (end["cause"], end["steps"], end["reported_usd"]) == ("exited", 8, 4.0)
    progress = [event for event in client.of("a") if event["type"] == "progress"]
    assert progress[-1]["cost_usd"] == 4.0
    assert [line["step"] for event in progress for line in event["lines"]] == list(range(1, 9))


def test_start_timeout(client: RunnerClient) -> None:
    end = client.run("a", *sh("while :; do echo x; sleep 0.05; done"), timeout_s=120, start_timeout_s=0.4)
    assert end["cause"] == "start_timeout"


def test_ready_starts_the_clocks(client: RunnerClient) -> None:
    script = "sleep 0.6; echo '{\"ready\": true}' >> $EVALFLEET_EVENTS; sleep 300"
    end = client.run("a", *sh(script), timeout_s=0.4, start_timeout_s=60)
    assert end["cause"] == "stall"
    assert end["ready_at"] - end["started_at"] >= 0.5
    assert client.event("a", "ready")["event"] == 2
    assert end["duration_s"] >= 0.9


def test_the_clock_needs_no_client(spool: RunnerSpool) -> None:
    with spool.client() as client:
        client.launch("a", a_spec("sleep", "300", timeout_s=0.5))
    wait_until(lambda: spool.journal("a")[-1]["type"] == "ended", "the end")


def test_exit_status_and_signal(client: RunnerClient) -> None:
    assert client.run("a", *sh("exit 7"))["exit_code"] == 7
    end = client.run("b", *sh("kill -SEGV $$"))
    assert (end["cause"], end["signal"], end["exit_code"]) == ("exited", 11, None)
    end = client.run("c", *sh("kill -KILL $$"))
    assert (end["signal"], end["oom"]) == (9, False)


def test_what_a_task_says_is_not_what_the_runner_saw(client: RunnerClient) -> None:
    end = client.run("a", *sh("echo 'write error: No space left on device' >&2; exit 1"))
    assert end["disk_full"] is False
    assert end["tail"] == "write error: No space left on device"


def test_a_flood_of_output_does_not_block(client: RunnerClient, spool: RunnerSpool) -> None:
    end = client.run("a", *sh("head -c 80000000 /dev/zero; echo; echo last"))
    assert end["exit_code"] == 0
    assert end["tail"].endswith("last")
    size = (spool.attempt("a") / "stdout.log").stat().st_size
    assert 64 << 20 <= size < (64 << 20) + 200


@pytest.mark.parametrize(
    "kind", ["ln -s /etc/passwd", "mkfifo", "mkdir", "head -c 11000000 /dev/zero >", "echo oops >", "printf '\\377' >"]
)
def test_hostile_files(client: RunnerClient, kind: str) -> None:
    end = client.run("a", *sh(f"{kind} $EVALFLEET_RESULT; {kind} $EVALFLEET_EVENTS; sleep 0.3"))
    assert end["exit_code"] == 0
    assert end["has_result"] is False
    assert end["result_error"]
    assert client.run("b", "true")["exit_code"] == 0


def test_a_task_that_removes_its_folder(client: RunnerClient, spool: RunnerSpool) -> None:
    end = client.run("a", *sh("rm -rf $(dirname $EVALFLEET_TASK); echo out"))
    assert end["exit_code"] == 0
    client.must("ack", run="r", epoch=1, attempt="a")
    assert not spool.attempt("a").exists()


def test_many_artifacts_are_collected_aside(client: RunnerClient) -> None:
    script = 'cd $EVALFLEET_ARTIFACTS; for i in 1 2 3 4 5 6; do head -c 1000000 /dev/zero | tr "\\0" x > f$i; echo $KEY >> f$i; done'
    end = client.run("a", *sh(script), secrets={"KEY": "hunter22"})
    text = b"x" * 1_000_000 + b"[secret KEY]\n"
    assert end["artifacts"] == [{"path": f"f{number}", "size": len(text)} for number in range(1, 7)]


def test_secrets_stay_secret(client: RunnerClient, spool: RunnerSpool) -> None:
    script = """
    printf 'hun' ; sleep 0.2; printf 'ter22\\n'
    echo "$KEY" >&2
    echo "{\\"note\\": \\"$KEY\\"}" >> $EVALFLEET_EVENTS
    echo "{\\"score\\": 1, \\"metrics\\": {\\"$KEY\\": \\"$KEY\\"}}" > $EVALFLEET_RESULT
    echo "$KEY" > $EVALFLEET_ARTIFACTS/text
    printf '\\0%s' "$KEY" > $EVALFLEET_ARTIFACTS/binary
    """
    end = client.run("a", *sh(script), secrets={"KEY": "hunter22"})
    assert end["exit_code"] == 0
    assert end["tail"] == "[secret KEY]"
    assert end["result"] == {"score": 1, "metrics": {"[secret KEY]": "[secret KEY]"}}
    assert end["artifacts"] == [{"path": "binary", "size": 9, "secret": True}, {"path": "text", "size": 13}]
    assert "hunter22" not in str(client.events)
    for path in spool.folder.rglob("*"):
        if path.is_file() and path.name != "binary":
            assert b"hunter22" not in path.read_bytes(), path
    info = spool.info()
    assert info is not None
    assert b"hunter22" not in Path(f"/proc/{info.pid}/environ").read_bytes()


def test_long_attempts_get_a_control_group_where_possible(client: RunnerClient, spool: RunnerSpool) -> None:
    client.launch("a", a_spec(*sh("(sleep 2.5; echo deep) & wait")))
    note = spool.attempt("a") / "cgroup"
    end = client.end("a")
    assert (end["exit_code"], end["tail"]) == (0, "deep")
    if note.exists():
        assert not Path(note.read_text()).exists()


def test_task_gets_the_original_file_limit(client: RunnerClient) -> None:
    end = client.run("a", *sh("sleep 0.1; ulimit -n"))
    assert int(end["tail"]) == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
