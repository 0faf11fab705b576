"""The program of an attempt: `python -m evalfleet.benchmarks.waa.attempt`, started by the runner on the worker.

Takes a free container, makes sure that Windows answers, lets the program inside call `run.py` for the one task, and
passes on what comes: an event line and a screenshot per step, the files, the verdict of `result.txt`. Where there is no
`result.txt` there is no score: the result says what went wrong and whose it is.

However it ends, nothing of it runs on in the container: it is ended there when this program is told to stop, by the
program inside when this one is killed, and by the next attempt in that container at the latest.
"""

from __future__ import annotations

import base64
import json
import signal
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from evalfleet import config
from evalfleet.benchmarks.waa import readiness
from evalfleet.benchmarks.waa.containers import Lease, leased
from evalfleet.benchmarks.waa.docker import Docker, DockerError, Inside
from evalfleet.benchmarks.waa.settings import WaaSettings
from evalfleet.benchmarks.waa.trajectory import RESULT, TRAJECTORY, Raised, Step, event_line, read_line, read_score
from evalfleet.errors import EnvironmentFailed
from evalfleet.model import Kind

_END_S = 4.0  # the runner kills 5 s after it said so


class Recorder:
    """Writes what happens where the runner and a person look for it, and remembers what the verdict needs."""

    def __init__(self, events: Path, artifacts: Path) -> None:
        self._events = events
        self._artifacts = artifacts
        self._begun = time.monotonic()
        self.last = deque[str](maxlen=1)  # the last line that run.py printed
        self.steps = 0
        self.raised: Raised | None = None

    def ready(self, task: str, goal: str | None, container: str) -> None:
        self._event({"ready": True, "note": f"{goal or task} (in {container})"})
        self._line({"benchmark": "waa", "task": task, "goal": goal})

    def printed(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self.last.extend(line.strip() for line in text.splitlines() if line.strip())

    def file(self, name: str, data: str) -> None:
        path = self._artifacts / name
        if path.is_relative_to(self._artifacts) and ".." not in path.parts:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(data))

    def trajectory(self, line: str) -> None:
        """Keep a line of the trajectory at once: nothing more may come."""
        with (self._artifacts / TRAJECTORY).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        match read_line(line):
            case Step() as step:
                self.steps = max(self.steps, step.number)
                self._event(event_line(step))
                self._line(event_line(step))
            case Raised() as raised:
                self.raised = raised
                self.note(raised.words)
            case None:
                self.note("a line of traj.jsonl that cannot be read")

    def note(self, text: str) -> None:
        self._event({"note": text})

    def verdict(self, score: float) -> None:
        self.note(f"score {score:g}")
        self._line({"score": score, "success": score == 1.0})

    def result(self) -> str | None:
        """What `result.txt` holds; None where there is none, or an empty one."""
        with suppress(OSError):
            return (self._artifacts / RESULT).read_text("utf-8", "replace").strip() or None
        return None

    def _event(self, line: dict[str, Any]) -> None:
        with self._events.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _line(self, line: dict[str, Any]) -> None:
        with (self._artifacts / "trajectory.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at_s": round(time.monotonic() - self._begun, 3), **line}) + "\n")


def follow(inside: Inside, recorder: Recorder, payload: dict[str, Any], container: str) -> int:
    """Pass on what the program inside tells, until run.py is over; returns its exit status. Raises EnvironmentFailed."""
    for news in inside:
        match news:
            case {"out": str(text)}:
                recorder.printed(text)
            case {"file": str(name), "data": str(data)}:
                recorder.file(name, data)
            case {"traj": str(line)}:
                recorder.trajectory(line)
            case {"ready": True}:
                recorder.ready(payload["task"], payload.get("instruction"), container)
            case {"quiet": True}:
                _judge_quiet(news, recorder)
            case {"exit": int(status)}:
                return status
            case {"guest": str(error)}:
                raise EnvironmentFailed(f"guest {container}: did not answer /probe in time: {error}")
            case _:
                raise DockerError(f"the program in {container} said {json.dumps(news)[:200]}")
    raise EnvironmentFailed(f"{container}: {inside.error()}")


def _judge_quiet(news: dict[str, Any], recorder: Recorder) -> None:
    """No news for most of the stall limit. Whose is it? Before its first line run.py waits for Windows, not for the agent.

    What is not the environment's is left to the runner, which ends it as a stall.
    """
    if not news["lines"]:
        last = f"; last it printed: {recorder.last[0]}" if recorder.last else ""
        error = f"run.py did not get as far as the task's first screen{last}"
    elif news["guest"]:
        error = f"Windows stopped answering after step {recorder.steps}: {news['guest']}"
    else:
        return
    recorder.note(error)  # is progress, and so gives us the time to end it ourselves
    raise EnvironmentFailed(error)


def judge(recorder: Recorder, status: int) -> dict[str, Any]:
    """The result of a run.py that is over. What it says about itself by its exit status is worth nothing: see WAA."""
    text = recorder.result()
    if text is not None:
        try:
            score = read_score(text)
        except ValueError as error:
            return {"error": str(error), "error_kind": Kind.ENVIRONMENT_FAILED}
        recorder.verdict(score)
        return {"score": score, "steps": recorder.steps}
    if recorder.raised is not None:
        return {"error": recorder.raised.words, "error_kind": recorder.raised.kind}
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    last = f"; last it printed: {recorder.last[0]}" if recorder.last else ""
    return {"error": f"run.py {how} and left no {RESULT}{last}", "error_kind": Kind.ENVIRONMENT_FAILED}


def plan_of(settings: WaaSettings, payload: dict[str, Any], attempt: str, container: str) -> dict[str, Any]:
    """What the program inside shall do."""
    domain, _, name = payload["task"].partition("/")
    place = f"{settings.results}/{attempt}"
    flags = {
        "agent_name": payload["agent"],
        "model": payload["model"],
        "max_steps": payload["max_steps"],
        "trial_id": payload["seed"],
        "emulator_ip": settings.guest,
        "test_all_meta_path": f"{place}/task.json",
        "result_dir": place,
        "worker_id": 0,
        "num_workers": 1,
    }
    given = [word for flag, value in flags.items() if value is not None for word in (f"--{flag}", str(value))]
    return {
        **readiness.guest_plan(settings, "run"),
        "mark": container,
        "command": [settings.python, "run.py", *given, *settings.flags],
        "result_dir": place,
        "meta_path": f"{place}/task.json",
        "domain": domain,
        "id": name,
        "stall_s": settings.stall_s,
    }


def work(
    settings: WaaSettings, payload: dict[str, Any], lease: Lease, recorder: Recorder, attempt: str
) -> dict[str, Any]:
    """Do the task in the container that is ours. Raises EnvironmentFailed."""
    docker, container = Docker(settings.docker), lease.container
    if settings.reset == "restart" or lease.failed:
        docker.restart(container)
    elif not docker.is_running(container):
        readiness.require(readiness.container_checks(settings, container, start=False))
    plan = plan_of(settings, payload, attempt, container)
    inside = docker.follow(container, settings.python, plan, payload["secrets"], settings.client)
    over = False
    try:
        status = follow(inside, recorder, payload, container)
        over = True
    finally:
        inside.close()
        if not over:
            with suppress(DockerError):
                docker.do(container, settings.python, {"do": "end", "mark": container}, _END_S)
    return judge(recorder, status)


def run() -> dict[str, Any]:
    environ = config.environment()
    task: dict[str, Any] = json.loads(Path(environ["EVALFLEET_TASK"]).read_text("utf-8"))
    payload: dict[str, Any] = task["payload"]
    settings = WaaSettings(**payload["waa"])
    recorder = Recorder(Path(environ["EVALFLEET_EVENTS"]), Path(environ["EVALFLEET_ARTIFACTS"]))
    with leased(settings.containers, settings.guest_timeout_s) as lease:
        try:
            result = work(settings, payload, lease, recorder, environ["EVALFLEET_ATTEMPT"])
        except EnvironmentFailed as error:
            lease.mark(failed=True)  # whoever comes next restarts it first
            return {"error": str(error), "error_kind": Kind.ENVIRONMENT_FAILED}
        lease.mark(failed=False)
        return {**result, "metrics": {"container": lease.container}}


def _stop(_signal: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # ending what runs in the container is not to be interrupted
    raise SystemExit(128 + signal.SIGTERM)


def main() -> int:
    signal.signal(signal.SIGTERM, _stop)
    try:
        result = run()
    except EnvironmentFailed as error:
        result = {"error": str(error), "error_kind": Kind.ENVIRONMENT_FAILED}
    Path(config.environment()["EVALFLEET_RESULT"]).write_text(json.dumps(result), "utf-8")
    if "error" in result:
        print(result["error"], file=sys.stderr)
    return int("error" in result)


if __name__ == "__main__":
    sys.exit(main())
