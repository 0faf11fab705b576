"""The program around a trial's command, started as a runner starts it: real servers, real ports, real deaths."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import wait_for

from evalfleet.runner.build import build

SERVER = str(Path(__file__).parents[2] / "support" / "llm_server.py")
ASK = """
import os, sys, json, urllib.request
got = urllib.request.urlopen(os.environ["EVALFLEET_SERVER_URL"] + "/" + sys.argv[1]).read().decode()
json.dump({"success": True, "metrics": {"got": len(got)}}, open(os.environ["EVALFLEET_RESULT"], "w"))
print(json.dumps([got, *sys.argv[2:], os.environ.get("NAME")]))
"""


Process = subprocess.Popen[str]


@dataclass
class Trial:
    """An attempt's folder, and what is run in it."""

    folder: Path
    program: Path

    def start(self, *server: str, command: list[str], env: dict[str, str] | None = None, **settings: Any) -> Process:
        port = [] if "--port" in server else ["--port", "{port}"]
        fields: dict[str, Any] = {
            "command": settings.pop("program", [sys.executable, SERVER, *port, *server]),
            "ready": "http://127.0.0.1:{port}/health",
            "ready_timeout_s": 30.0, "stop_timeout_s": 10.0, "env": {}, "port_in": [], **settings,
        }  # fmt: skip
        (self.folder / "task.json").write_text(json.dumps({"payload": {"server": fields}}))
        variables = {
            "PATH": os.environ["PATH"], "EVALFLEET_ATTEMPT": self.folder.name,
            **{f"EVALFLEET_{name}": str(self.folder / file) for name, file in
               {"TASK": "task.json", "RESULT": "result.json", "EVENTS": "events.jsonl", "ARTIFACTS": "artifacts"}.items()},
            "EVALFLEET_GPU_LOCK_FDS": "", **(env or {}),
        }  # fmt: skip
        fds = [int(word) for word in variables["EVALFLEET_GPU_LOCK_FDS"].split(",") if word]
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(self.program), "around", "--", *command], env=variables, cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, pass_fds=fds,
        )  # fmt: skip

    def run(self, *server: str, command: list[str] | None = None, **settings: Any) -> tuple[int, str, str]:
        process = self.start(*server, command=command or ask("tokens"), **settings)
        out, errors = process.communicate(timeout=60)
        assert self.left() == []
        return process.returncode, out, errors

    def result(self) -> dict[str, Any]:
        return json.loads((self.folder / "result.json").read_text())

    def failed(self) -> tuple[str, str]:
        said = self.result()
        return said["error_kind"], said["error"]

    def events(self) -> list[dict[str, Any]]:
        path = self.folder / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def log(self) -> str:
        path = self.folder / "artifacts" / "server.log"
        return path.read_text() if path.exists() else ""

    def kill(self) -> None:
        for line in self.left():
            os.kill(int(line.split()[0]), signal.SIGKILL)

    def left(self) -> list[str]:
        """Who still carries the mark of this attempt."""
        mark = f"EVALFLEET_TASK={self.folder}/task.json".encode()
        found: list[str] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(f"{entry.name} {(entry / 'cmdline').read_text()}")
        return found


def ask(path: str, *more: str) -> list[str]:
    return [sys.executable, "-c", ASK, path, *more]


def sleep() -> list[str]:
    return [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runner") / "runner.pyz"
    path.write_bytes(build()[0])
    return path


@pytest.fixture
def trial(tmp_path: Path, program: Path) -> Iterator[Trial]:
    (tmp_path / "artifacts").mkdir()
    made = Trial(tmp_path, program)
    yield made
    made.kill()


def test_a_command_measures_a_server_that_is_ready(trial: Trial):
    code, out, _ = trial.run(
        "--load", "0.3", command=ask("tokens", "{port}"), env={"NAME": "at {port}"}, port_in=["NAME"]
    )
    got, port, name = json.loads(out)
    assert (code, got, name) == (0, "tokens", f"at {port}")
    assert trial.result() == {"success": True, "metrics": {"got": 6}}
    assert trial.events() == [{"ready": True}]
    assert f"loading on port {port}" in trial.log()
    assert trial.log().count("loading a shard") >= 2  # it was not ready before that


def test_the_exit_status_and_the_signal_are_the_commands(trial: Trial):
    assert trial.run(command=["sh", "-c", "exit 7"])[0] == 7
    assert trial.run(command=["sh", "-c", "kill -SEGV $$"])[0] == -signal.SIGSEGV
    code, _, errors = trial.run(command=["/nowhere/bench"])
    assert (code, "/nowhere/bench" in errors) == (127, True)
    assert not (trial.folder / "result.json").exists()


@pytest.mark.parametrize(
    ("server", "kind", "said"),
    [
        (["--behave", "oom"], "out_of_memory", "CUDA out of memory. Tried to allocate 20.00 GiB"),
        (["--tp", "3"], "bad_flag", "argument --tp: invalid choice: 3"),
        (["--behave", "hub"], "download", "Cannot access gated repo"),
    ],
)
def test_a_server_that_does_not_come_up_says_why_at_once(trial: Trial, server: list[str], kind: str, said: str):
    begun = time.monotonic()
    code, _, errors = trial.run(*server, command=sleep())
    assert code == 1
    assert time.monotonic() - begun < 20, "not the 30 s of ready_timeout"
    found, evidence = trial.failed()
    assert (found, said in evidence) == (kind, True), evidence
    assert said in errors.splitlines()[-2]  # the end of its log
    assert errors.splitlines()[-1].startswith(f"evalfleet: {kind}: ")
    assert trial.events() == []


@pytest.mark.parametrize("behave", ["hang", pytest.param("late", marks=pytest.mark.long)])
def test_a_server_that_is_never_ready(trial: Trial, behave: str):
    assert trial.run("--behave", behave, command=sleep(), ready_timeout_s=0.5)[0] == 1
    kind, evidence = trial.failed()
    assert kind == "startup_timeout"
    assert "not ready within 0.5 s" in evidence
    assert "raise server.ready_timeout" in evidence


@pytest.mark.parametrize(
    ("path", "kind", "said"), [("die", "out_of_memory", "CUDA out"), ("killed", "crash", "SIGKILL")]
)
def test_a_server_that_dies_ends_the_trial_whatever_the_command_does(trial: Trial, path: str, kind: str, said: str):
    command = (
        "import os, signal, time, urllib.request, contextlib\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open(os.environ['EVALFLEET_RESULT'], 'w').write('{\"success\": true}')\n"
        f"with contextlib.suppress(OSError): urllib.request.urlopen(os.environ['EVALFLEET_SERVER_URL'] + '/{path}')\n"
        "print(time.time(), flush=True)\n"
        "time.sleep(600)"
    )
    code, out, _ = trial.run(command=[sys.executable, "-c", command])
    assert code == 1
    found, evidence = trial.failed()
    assert (found, said in evidence) == (kind, True), evidence
    assert "while it was used" in evidence
    assert time.time() - float(out) < 5  # a second, on a machine that has time for us
    assert json.loads((trial.folder / "artifacts" / "result-of-command.json").read_text()) == {"success": True}


def test_what_a_command_says_of_a_dead_server_is_no_measurement(trial: Trial):
    die = "with contextlib.suppress(OSError): urllib.request.urlopen(os.environ['EVALFLEET_SERVER_URL'] + '/die')"
    command = f"{ASK}\nimport contextlib\n{die}"
    assert trial.run(command=[sys.executable, "-c", command, "tokens"])[0] == 1
    assert trial.failed()[0] == "out_of_memory"


def test_a_server_that_shares_no_port_gets_another(trial: Trial):
    assert trial.run("--behave", "selfish")[0] == 0
    assert trial.result()["success"] is True
    first, second = [line.split()[-1] for line in trial.log().splitlines() if "on port" in line]
    assert first != second
    assert trial.events() == [{"note": f"server: the port {first} is taken; trying another"}, {"ready": True}]


def test_a_port_of_somebody_else_is_not_mistaken_for_ours(trial: Trial):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        assert trial.run(ready=f"http://127.0.0.1:{port}/health")[0] == 1
        kind, evidence = trial.failed()
        assert (kind, f"something else listens at http://127.0.0.1:{port}/health" in evidence) == ("port_taken", True)
        assert trial.log() == ""  # it was not even started


def test_a_server_with_a_fixed_port_that_is_taken(trial: Trial):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        assert trial.run("--port", str(stranger.getsockname()[1]), command=sleep())[0] == 1
    kind, evidence = trial.failed()
    assert (kind, "Address already in use" in evidence, "use {port}" in evidence) == ("port_taken", True, True)
    assert trial.log().count("loading on port") == 3


def test_a_server_that_cannot_be_executed(trial: Trial):
    assert trial.run(program=["/nowhere/server"], command=sleep())[0] == 1
    kind, evidence = trial.failed()
    assert (kind, "No such file or directory: '/nowhere/server'" in evidence) == ("launch_failed", True)


@pytest.mark.long
def test_a_server_that_does_not_mind_sigterm_is_killed(trial: Trial):
    assert trial.run("--behave", "stubborn", stop_timeout_s=0.3)[0] == 0


@pytest.mark.long
def test_a_child_that_left_session_and_parent_is_found(trial: Trial):
    assert trial.run("--behave", "fork")[0] == 0


@pytest.mark.parametrize("behave", ["fork", pytest.param("stubborn", marks=pytest.mark.long)])
def test_told_to_end_it_takes_everybody_with_it(trial: Trial, behave: str):
    process = trial.start("--behave", behave, command=sleep())
    wait_for(lambda: {"ready": True} in trial.events(), "the server")
    process.terminate()
    assert process.wait(20) == 128 + signal.SIGTERM
    process.communicate()
    assert trial.left() == []
    assert not (trial.folder / "result.json").exists()


@pytest.mark.long
def test_a_slow_load_that_says_something_shows_it(trial: Trial):
    assert trial.run("--load", "2.5", command=["true"])[0] == 0
    assert trial.events() == [{"note": "server: loading a shard"}, {"ready": True}]


def test_gpu_locks_are_passed_on_to_server_and_command(trial: Trial):
    path = trial.folder / "gpu"
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = trial.start(command=sleep(), env={"EVALFLEET_GPU_LOCK_FDS": str(held.fileno())})
        wait_for(lambda: {"ready": True} in trial.events(), "the server")
        wait_for(lambda: len(trial.left()) == 3, "the command")
        for line in trial.left():
            assert os.readlink(f"/proc/{line.split()[0]}/fd/{held.fileno()}") == str(path)
    process.kill()  # nobody is left but orphans, and the GPU is still fenced
    process.wait()
    with path.open("w") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    trial.kill()
    process.communicate()
