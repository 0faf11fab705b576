"""The life of the daemon: start, race, idle end, death and recovery."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.support.runner import PATIENCE_S, RunnerSpool, a_spec, is_alive, sh, wait_until

from evalfleet.model import JsonObject
from evalfleet.runner.spool.recovery import UNCLEAR_S


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[RunnerSpool]:
    runner = RunnerSpool(tmp_path / "spool")
    yield runner
    runner.close()
    assert "Traceback" not in runner.log()


def serve(spool: RunnerSpool) -> list[str]:
    return spool.command("serve", "--spool", str(spool.folder), "--idle", "600")


def test_it_is_a_daemon_with_a_small_environment(spool: RunnerSpool) -> None:
    env = {**os.environ, "API_TOKEN": "very-secret"}
    done = subprocess.run(serve(spool), capture_output=True, timeout=PATIENCE_S, check=True, env=env)
    line = json.loads(done.stdout)
    assert line == json.loads((spool.folder / "runner.json").read_text())
    assert b"very-secret" not in Path(f"/proc/{line['pid']}/environ").read_bytes()
    assert os.readlink(f"/proc/{line['pid']}/cwd") == "/"
    assert os.getsid(line["pid"]) != os.getsid(0)
    folder = Path(line["socket"]).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(line["socket"]) < 108


def test_runners_that_race_for_a_spool(spool: RunnerSpool) -> None:
    racers = [subprocess.Popen(serve(spool), stdout=subprocess.PIPE, env={"PATH": os.defpath}) for _ in range(6)]
    lines = [json.loads(racer.communicate(timeout=PATIENCE_S)[0]) for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 6
    assert len({line["pid"] for line in lines}) == 1


def test_a_swept_socket_is_replaced(spool: RunnerSpool) -> None:
    """A logout removes the runtime folder; the runner and its attempts must stay reachable."""
    info = spool.start()
    with spool.client() as client:
        client.launch("a", a_spec("sleep", "300"))
        client.event("a", "started")
    Path(info.socket).unlink()
    assert spool.info() == info
    assert spool.start().pid == info.pid
    with spool.client() as client:
        client.must("cancel", run="r", epoch=1, attempt="a")
        client.must("attach", attempt="a", **{"from": 0})
        assert client.end("a")["cause"] == "cancelled"


def test_idle_end(spool: RunnerSpool) -> None:
    info = spool.start(idle_s=0.3)
    with spool.client() as client:
        client.launch("a", a_spec("sleep", "1"))
    wait_until(lambda: not is_alive(info.pid), "the idle end")
    assert spool.journal("a")[-1]["cause"] == "exited"
    assert (spool.folder / "reapable").exists()
    assert not (spool.folder / "runner.json").exists()
    assert spool.info() is None
    spool.start()
    assert not (spool.folder / "reapable").exists()
    with spool.client() as client:
        assert [entry["attempt"] for entry in client.must("hello", protocol=1)["attempts"]] == ["a"]


def test_sigterm_ends_attempts_cleanly(spool: RunnerSpool) -> None:
    info = spool.start()
    with spool.client() as client:
        client.launch("a", a_spec("sleep", "300"))
        pid = client.event("a", "started")["pid"]
        os.kill(info.pid, signal.SIGTERM)
        end = client.end("a")
    assert (end["cause"], end["message"]) == ("runner_lost", "the runner was asked to stop")
    wait_until(lambda: not is_alive(info.pid), "the runner's end")
    assert not is_alive(pid)


def test_a_machine_that_goes_down_tells_its_tasks_before_the_runner(spool: RunnerSpool) -> None:
    """The same shutdown ended both, so the task is not to blame, although it was told first."""
    info = spool.start()
    with spool.client() as client:
        client.launch("a", a_spec("sleep", "300"))
        pid = client.event("a", "started")["pid"]
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not is_alive(pid), "the task's end")
        os.kill(info.pid, signal.SIGTERM)
        end = client.end("a")
    assert (end["cause"], end["message"]) == ("runner_lost", "the runner was asked to stop")


def test_a_task_that_is_told_to_end_alone_was_signalled(spool: RunnerSpool) -> None:
    spool.start()
    with spool.client() as client:
        client.launch("a", a_spec("sleep", "300"))
        os.kill(client.event("a", "started")["pid"], signal.SIGTERM)
        end = client.end("a")
    assert (end["cause"], end["signal"]) == ("exited", signal.SIGTERM)


DEEP = """
import os, sys, time
def note(name):
    with open(sys.argv[1] + "/" + name + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + "/" + name + ".new", sys.argv[1] + "/" + name)
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        note("daemon")
        time.sleep(300)
    note("child")
    time.sleep(300)
print("hello", os.environ.get("KEY"), flush=True)
with open(os.environ["EVALFLEET_RESULT"], "w") as file:
    file.write('{"note": "%s"}' % os.environ.get("KEY"))
note("leader")
time.sleep(300)
"""


@pytest.mark.parametrize("age_s", [0.0, 1.5])
def test_recovery_after_kill_9(spool: RunnerSpool, tmp_path: Path, age_s: float) -> None:
    spool.start()
    pids = tmp_path / "pids"
    pids.mkdir()
    begun = time.monotonic()
    with spool.client() as client:
        done = client.run("done", "true")
        client.launch("lost", a_spec(sys.executable, "-c", DEEP, str(pids)), secrets={"KEY": "hunter22"})
        alive = [
            int(wait_until((pids / name).exists, name) and (pids / name).read_text())
            for name in ("daemon", "child", "leader")
        ]
        wait_until(lambda: time.monotonic() - begun >= age_s, "a control group, where there are some")
        wait_until((spool.attempt("lost") / "stdout.log").exists, "output")
    spool.kill()
    assert spool.info() is None
    assert all(is_alive(pid) for pid in alive)
    spool.start()
    assert not any(is_alive(pid) for pid in alive)
    with spool.client() as client:
        states = {entry["attempt"]: entry["state"] for entry in client.must("hello", protocol=1)["attempts"]}
        assert states == {"done": "ended", "lost": "ended"}
        for name in states:
            client.must("attach", attempt=name, **{"from": 0})
        assert client.end("done") == done
        end = client.end("lost")
        assert (end["cause"], end["message"]) == ("runner_lost", "the runner died under the attempt")
        assert end["result"] == {"note": "[secret KEY]"}
        assert end["tail"] == "hello [secret KEY]"
        assert [event["event"] for event in client.of("lost")] == [0, 1, 2]
        client.must("ack", run="r", epoch=1, attempt="lost")


def test_recovery_forgets_what_was_never_launched(spool: RunnerSpool) -> None:
    spool.start()
    spool.kill()
    half = spool.attempt("half")
    (half / "artifacts").mkdir(parents=True)
    torn = spool.attempt("torn")
    torn.mkdir()
    (torn / "journal.jsonl").write_bytes(b'{"attempt":"torn","event":0,"at":1.0,"type":"laun')
    whole = spool.attempt("whole")
    whole.mkdir()
    first = b'{"attempt":"whole","event":0,"at":1.0,"type":"launched","run":"r","epoch":1,"spec":{}}\n'
    (whole / "journal.jsonl").write_bytes(first + b'{"attempt":"whole","event":1,"a')
    spool.start()
    assert not half.exists()
    assert not torn.exists()
    events = spool.journal("whole")
    assert [(event["event"], event["type"]) for event in events] == [(0, "launched"), (1, "ended")]
    assert events[1]["cause"] == "runner_lost"


def test_recovery_spares_strangers(spool: RunnerSpool, tmp_path: Path) -> None:
    """A process with the same pid in the journal but another start time is somebody else."""
    spool.start()
    spool.kill()
    stranger = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        folder = spool.attempt("a")
        folder.mkdir()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        lines = [
            {"attempt": "a", "event": 0, "at": 1.0, "type": "launched", "run": "r", "epoch": 1, "spec": {}},
            {
                "attempt": "a",
                "event": 1,
                "at": 1.0,
                "type": "started",
                "pid": stranger.pid,
                "start_time": 1,
                "boot_id": boot,
            },
        ]
        (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        spool.start()
        assert spool.journal("a")[-1]["cause"] == "runner_lost"
        assert is_alive(stranger.pid)
    finally:
        stranger.kill()
        stranger.wait()


def test_two_spools_do_not_meet(spool: RunnerSpool, tmp_path: Path) -> None:
    """The same attempt id in another spool is another attempt, also in recovery."""
    other = RunnerSpool(tmp_path / "other")
    other.start()
    spool.start()
    try:
        with other.client() as client, spool.client() as mine:
            client.launch("a", a_spec("sleep", "300"))
            pid = client.event("a", "started")["pid"]
            mine.launch("a", a_spec("sleep", "300"))
            lost = mine.event("a", "started")["pid"]
            spool.kill()
            spool.start()
            assert is_alive(pid)
            assert not is_alive(lost)
    finally:
        other.close()


def test_stdio_joins_the_runner(spool: RunnerSpool) -> None:
    command = spool.command("stdio", "--spool", str(spool.folder))
    done = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PATH": os.defpath})
    assert done.stdin is not None
    assert done.stdout is not None
    done.stdin.write(b'{"id": 1, "do": "ping"}\n')
    done.stdin.flush()
    assert json.loads(done.stdout.readline())["ok"] is True
    done.communicate(timeout=PATIENCE_S)
    assert done.returncode == 0
    assert spool.info() is not None


def test_stdio_passes_both_ways_at_once(spool: RunnerSpool) -> None:
    """Megabytes of answers that nobody has read yet hold up neither requests nor each other."""
    command = spool.command("stdio", "--spool", str(spool.folder))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PATH": os.defpath}) as joined:
        stdin, stdout = joined.stdin, joined.stdout
        assert stdin is not None
        assert stdout is not None
        put = {"id": 1, "do": "put", "sha256": "0" * 64, "offset": 0, "data": "A" * (4 << 20), "last": False}
        hello = {"id": 2, "do": "hello", "protocol": 1}
        flood = b"".join(json.dumps(one).encode() + b"\n" for one in [put, *[hello] * 20_000, put])
        writer = threading.Thread(target=lambda: (stdin.write(flood), stdin.flush()))
        writer.start()
        answers = [json.loads(stdout.readline())["id"] for _ in range(20_002)]
        assert (answers.count(1), answers.count(2)) == (2, 20_000)
        writer.join()
        stdin.close()
        assert joined.wait(PATIENCE_S) == 0


def visit(spool: RunnerSpool, command: str) -> JsonObject:
    done = subprocess.run(
        spool.command(command, "--spool", str(spool.folder)), capture_output=True, timeout=PATIENCE_S, check=True
    )
    return json.loads(done.stdout)


def test_a_visitor_looks_and_ends(spool: RunnerSpool) -> None:
    seen = visit(spool, "look")
    assert (seen["held"], seen["runner"], seen["answers"]) == (False, None, False)
    assert seen["host"]["memory_mb"] > 0
    assert visit(spool, "retire") == visit(spool, "kill") == {"ended": False}
    info = spool.start()
    seen = visit(spool, "look")
    assert (seen["held"], seen["answers"], seen["runner"]["pid"]) == (True, True, info.pid)
    with spool.client() as client:
        client.launch("a", a_spec("sleep", "300"))
        assert visit(spool, "retire") == {"ended": False}, "it is busy"
        assert visit(spool, "kill") == {"ended": True}
    assert visit(spool, "look")["held"] is False
    spool.start()
    with spool.client() as client:
        assert client.must("hello", protocol=1)["attempts"][0]["state"] == "ended", "lost, by the next runner"
    assert visit(spool, "retire") == {"ended": True}


def test_the_hosts_own_environment(spool: RunnerSpool) -> None:
    command = spool.command("serve", "--spool", str(spool.folder))
    environ = {"PATH": os.defpath, "HOME": "/the/hosts/home", "LANG": "C", "PLANTED": "x"}
    subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True, env=environ)
    with spool.client() as client:
        client.run("a", "env", host_env=True, env={"LANG": "C.UTF-8"})
        client.run("b", "env", env={"LANG": "C.UTF-8"})
    lines = {name: (spool.attempt(name) / "stdout.log").read_text().splitlines() for name in "ab"}
    assert {"HOME=/the/hosts/home", "LANG=C.UTF-8"} <= set(lines["a"])
    assert not [line for line in lines["b"] if line.startswith("HOME=")]
    assert not [line for line in lines["a"] + lines["b"] if line.startswith("PLANTED")]


@pytest.mark.parametrize(
    "words",
    [[], ["serve"], ["dance", "--spool", "x"], ["serve", "--spool", "x", "--idle", "-1"], ["serve", "--foo", "x"]],
)
def test_bad_arguments(spool: RunnerSpool, words: list[str]) -> None:
    spool.start()
    done = subprocess.run(spool.command(*words), capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    assert done.stderr


def test_an_unusable_spool_is_explained(spool: RunnerSpool, tmp_path: Path) -> None:
    spool.start()
    (tmp_path / "file").touch()
    command = spool.command("serve", "--spool", str(tmp_path / "file" / "spool"))
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False, env={"PATH": os.defpath})
    assert done.returncode == 1
    assert "Not a directory" in json.loads(done.stdout)["message"]


def pythons() -> list[str]:
    """Other interpreters of this machine that the runner promises to work with."""
    found: list[str] = []
    for minor in (8, 9, 10, 11, 12, 13, 14):
        path = shutil.which(f"python3.{minor}")
        if path:
            told = subprocess.run(
                [path, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=False
            )
            found += told.stdout.split()
    return found or [sys.executable]


@pytest.mark.parametrize("python", pythons())
def test_every_python_runs_it(tmp_path: Path, python: str) -> None:
    spool = RunnerSpool(tmp_path / "spool", python)
    spool.start()
    try:
        with spool.client() as client:
            end = client.run(
                "a", *sh("echo '{\"score\": 1}' > $EVALFLEET_RESULT; sleep 0.2; echo $KEY"), secrets={"KEY": "hunter22"}
            )
            assert (end["exit_code"], end["result"], end["tail"]) == (0, {"score": 1}, "[secret KEY]")
            client.launch("b", a_spec("sleep", "300", timeout_s=0.3))
            assert client.end("b")["cause"] == "stall"
            client.launch("c", a_spec("sleep", "300"))
            client.event("c", "started")
        spool.kill()
        spool.start()
        assert spool.journal("c")[-1]["cause"] == "runner_lost"
    finally:
        spool.close()
    assert "Traceback" not in spool.log()


def test_recovery_of_a_spoiled_journal(spool: RunnerSpool) -> None:
    spool.start()
    with spool.client() as client:
        client.run("a", "true")
    spool.kill()
    path = spool.attempt("a") / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\0" * 50 + b"\n" + lines[2][:20] + b"\n")
    spool.start()
    events = spool.journal("a")
    assert [(event["event"], event["type"]) for event in events] == [(0, "launched"), (1, "ended")]
    assert events[1]["cause"] == "runner_lost"


@pytest.mark.parametrize("seed", range(4))
def test_kill_9_at_any_moment(spool: RunnerSpool, tmp_path: Path, seed: int) -> None:
    """Whatever the moment: no process is left, each attempt has one end record, and what was said to be over stays over."""
    random = Random(seed)
    info = spool.start()
    script = f"{sys.executable} -c 'import os, time; os.fork(); os.setsid() if os.fork() == 0 else 0; time.sleep(60)' & sleep $0"
    with spool.client() as client:
        for number in range(12):
            client.launch(f"a{number}", a_spec(*sh(script), f"{random.uniform(0, 0.4):.3f}"))
        moment = time.monotonic() + random.uniform(0, 0.5)
        while time.monotonic() < moment:
            client.must("ping")
        said = {event["attempt"]: event for event in client.events if event["type"] == "ended"}
        os.kill(info.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(info.pid), "the runner's death")
    spool.start()
    for number in range(12):
        events = spool.journal(f"a{number}")
        assert [event["event"] for event in events] == list(range(len(events)))
        assert [event["type"] for event in events].count("ended") == 1
        assert events[-1]["cause"] in ("exited", "runner_lost")
        if f"a{number}" in said:
            assert events[-1] == said[f"a{number}"]
    mark = f"EVALFLEET_TASK={spool.folder}".encode()
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and is_alive(int(pid)) and mark in environment(pid)]


def test_what_becomes_a_process_of_a_lost_attempt_while_it_is_looked_for_is_ended(spool: RunnerSpool) -> None:
    """Its variables cannot be read while it is replaced by another program: nobody sees yet whose it is."""
    spool.start()
    with spool.client() as client:
        client.launch("a", a_spec("sleep", "300"))
        client.event("a", "started")
    spool.kill()
    marks = {"EVALFLEET_ATTEMPT": "a", "EVALFLEET_TASK": str(spool.attempt("a") / "task.json")}
    program = f"import os, time; time.sleep(0.4); os.execve('/bin/sleep', ['sleep', '300'], {marks!r})"
    hidden = subprocess.Popen([sys.executable, "-I", "-c", program], env={}, start_new_session=True)
    spool.start()
    assert hidden.wait(PATIENCE_S) == -signal.SIGKILL


def test_recovery_waits_for_nobody_who_hides_nothing(spool: RunnerSpool) -> None:
    took: list[float] = []
    for number in range(4):
        spool.start()
        with spool.client() as client:
            client.launch(f"a{number}", a_spec("sleep", "300"))
            client.event(f"a{number}", "started")
        spool.kill()
        begun = time.monotonic()
        spool.start()
        took.append(time.monotonic() - begun)
        spool.kill()
    assert min(took) < UNCLEAR_S, "the program that started the runner is not taken for a part of the dead one"


def environment(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
