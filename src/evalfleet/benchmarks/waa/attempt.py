"""The program of an attempt: `python -m evalfleet.benchmarks.waa.attempt`, started by the runner on the worker.

Takes a free container, makes sure that Windows answers, lets the program inside call `run.py` for the one task, and
passes on what comes: an event line and a screenshot per step, the files, the verdict of `result.txt`. Where there is no
`result.txt` there is no score: the result says what went wrong and whose it is. Nor is there one where WAA's log says that
Windows failed and WAA went on.

However it ends, nothing of it runs on in the container: it is ended there when this program is told to stop, by the
program inside when this one is killed, and by the next attempt in that container at the latest.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct

from evalfleet import config
from evalfleet.benchmarks.waa import model, readiness, snapshot
from evalfleet.benchmarks.waa.containers import Lease, TaskMemory, leased, lock_folder
from evalfleet.benchmarks.waa.docker import Docker, DockerError
from evalfleet.benchmarks.waa.recorder import Recorder
from evalfleet.benchmarks.waa.settings import WaaSettings
from evalfleet.benchmarks.waa.task_log import guest_failure, last_error
from evalfleet.benchmarks.waa.trajectory import RESULT, read_score
from evalfleet.errors import AgentFailed, EnvironmentFailed, EvalfleetError, ServiceFailed, ServiceRefused
from evalfleet.model import Kind

_END_S = 4.0  # the runner kills 5 s after it said so
_KINDS = {  # the first that fits
    EnvironmentFailed: Kind.ENVIRONMENT_FAILED,
    ServiceRefused: Kind.SERVICE_REFUSED,
    ServiceFailed: Kind.SERVICE_FAILED,
    AgentFailed: Kind.TASK_ERROR,
}
# Failures that say nothing against the container: files that tasks bring come from the web.
_DOWNLOAD = ("Failed to download", "githubusercontent.com", "NameResolutionError")


class Work(Struct, frozen=True, kw_only=True):
    """What an attempt works with."""

    settings: WaaSettings
    payload: dict[str, Any]
    recorder: Recorder
    attempt: str
    environ: Mapping[str, str]


def follow(work: Work, news: Iterable[dict[str, Any]], container: str, carrier: model.Carrier | None) -> int | None:
    """Pass on what the program inside tells, until run.py is over; returns its exit status, None if there is none.

    Raises:
        EnvironmentFailed: Windows or the container failed.
    """
    recorder = work.recorder
    for one in news:
        match one:
            case {"out": str(text)}:
                recorder.printed(text)
            case {"file": str(name), "offset": int(offset), "data": str(data)}:
                recorder.file(name, data, offset)
            case {"traj": str(line)}:
                recorder.trajectory(line)
            case {"ready": True}:
                recorder.ready(work.payload["task"], work.payload.get("instruction"), container)
            case {"link": int(number), "data": str(data)} if carrier is not None:
                carrier.deliver(number, data)
            case {"quiet": True}:
                _judge_quiet(one, work, container)
            case {"slow": str(path), "took_s": int() | float() as took_s}:
                error = f"Windows is too slow: GET {path} took {took_s:g} s, and the time limit is near"
                recorder.note(error)
                raise EnvironmentFailed(error)
            case {"exit": int(status)}:
                return status
            case {"guest": str(error)}:
                raise EnvironmentFailed(f"guest {container}: did not answer /probe in time: {error}")
            case _:
                raise DockerError(f"the program in {container} said {json.dumps(one)[:200]}")
    return None


def _judge_quiet(news: dict[str, Any], work: Work, container: str) -> None:
    """No news for most of the stall limit. Whose is it? Before its first line run.py waits for Windows, not for the agent.

    Where Windows works and the task hung elsewhere before, it is left to the runner, which ends it as a stall.
    """
    recorder, seconds = work.recorder, 0.75 * work.settings.stall_s
    if not news["lines"]:
        last = f"; last it printed: {recorder.last[0]}" if recorder.last else ""
        error = f"run.py did not get as far as the task's first screen{last}"
    elif news["guest"]:
        error = f"Windows stopped answering after step {recorder.steps}: {news['guest']}"
    elif not _memory(work).failed_in():
        error = (
            f"no step for {seconds:.0f} s after step {recorder.steps}; another attempt tells whether it is {container}"
        )
    else:
        return
    recorder.note(error)  # is progress, and so gives us the time to end it ourselves
    raise EnvironmentFailed(error)


def judge(recorder: Recorder, status: int) -> dict[str, Any]:
    """The result of a run.py that is over. What it says about itself by its exit status is worth nothing: see WAA."""
    text, log = recorder.result(), recorder.task_log()
    swallowed = guest_failure(log)
    if text is not None:
        try:
            score = read_score(text)
        except ValueError as error:
            return _environment(str(error))
        if score < 1.0 and swallowed is not None:  # a task that was solved all the same stays solved
            return _environment(f"Windows failed, and WAA scored it {score:g}: {swallowed}")
        recorder.verdict(score)
        return {"score": score, "steps": recorder.steps}
    raised = recorder.raised
    if raised is not None:
        kind = Kind.ENVIRONMENT_FAILED if swallowed and raised.kind is Kind.TASK_ERROR else raised.kind
        cause = last_error(log) if kind is Kind.ENVIRONMENT_FAILED else None
        said = f"{raised.words} (before it: {cause})" if cause and cause not in raised.words else raised.words
        return {"error": said, "error_kind": kind}
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    last = f"; last it printed: {recorder.last[0]}" if recorder.last else ""
    return _environment(f"run.py {how} and left no {RESULT}{last}")


def _environment(error: str) -> dict[str, Any]:
    return {"error": error, "error_kind": Kind.ENVIRONMENT_FAILED}


def plan_of(work: Work, container: str) -> dict[str, Any]:
    """What the program inside shall do."""
    settings, payload = work.settings, work.payload
    domain, _, name = payload["task"].partition("/")
    place = f"{settings.mark(container)}/{work.attempt}"
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
        "mark": settings.mark(container),
        "command": [settings.python, "run.py", *given, *settings.flags],
        "result_dir": place,
        "meta_path": f"{place}/task.json",
        "domain": domain,
        "id": name,
        "stall_s": settings.stall_s,
        "timeout_s": payload.get("timeout_s"),
        "model": bool(payload.get("model_options")),
    }


def play(work: Work, lease: Lease) -> dict[str, Any]:
    """Do the task in the container that is ours. Raises EvalfleetError."""
    settings, container = work.settings, lease.container
    docker = Docker(settings.docker)
    if settings.reset == "snapshot":
        if lease.failed or not snapshot.restore(docker, settings, container):
            readiness.renew(docker, settings, container)
    elif lease.failed or settings.reset != "close":
        readiness.restart(docker, settings, container)
    elif not docker.is_running(container):
        readiness.require(readiness.container_checks(settings, container, start=False))
    with ExitStack() as stack:
        asked, environ = _model(work), work.environ
        if asked is not None:
            stack.enter_context(asked.proxy)
            environ = {**environ, "OPENAI_API_KEY": asked.token}
        secrets = work.payload["secrets"]
        inside = docker.follow(container, settings.python, plan_of(work, container), secrets, settings.client, environ)
        status: int | None = None
        try:
            carrier = model.Carrier(asked.proxy.port, inside.send) if asked else None
            if asked is not None and carrier is not None:
                asked.on_trouble(inside.stop)
                stack.callback(carrier.close)
            status = follow(work, inside, container, carrier)
            error = "" if status is not None else inside.error()
        finally:
            inside.close()
            if status is None:
                with suppress(DockerError):
                    docker.do(container, settings.python, {"do": "end", "mark": settings.mark(container)}, _END_S)
        if asked is not None and asked.trouble is not None:
            raise asked.trouble
        if status is None:
            raise EnvironmentFailed(f"{container}: {error}")
        return judge(work.recorder, status)


def _model(work: Work) -> model.Model | None:
    found = model.of_payload(work.payload, work.environ)
    return None if found is None else model.Model(*found, work.recorder)


def _memory(work: Work) -> TaskMemory:
    return TaskMemory(work.attempt.rpartition(".")[0])


def run() -> dict[str, Any]:
    environ = config.environment()
    task: dict[str, Any] = json.loads(Path(environ["EVALFLEET_TASK"]).read_text("utf-8"))
    payload: dict[str, Any] = task["payload"]
    settings = WaaSettings(**payload["waa"])
    recorder = Recorder(Path(environ["EVALFLEET_EVENTS"]), Path(environ["EVALFLEET_ARTIFACTS"]))
    attempt = environ["EVALFLEET_ATTEMPT"]
    work = Work(settings=settings, payload=payload, recorder=recorder, attempt=attempt, environ=environ)
    found = model.of_payload(payload, environ)
    if found is not None:
        model.ask_once(*found, lock_folder(), attempt)
    memory, wait_s = _memory(work), settings.container_wait_s
    with leased(settings.containers, wait_s, avoid=memory.failed_in()) as lease:
        try:
            result = play(work, lease)
        except EnvironmentFailed as error:
            result = _environment(str(error))
        except EvalfleetError as error:
            result = {"error": str(error), "error_kind": _kind(error)}
        failed = result.get("error_kind") == Kind.ENVIRONMENT_FAILED
        if failed:
            memory.add(lease.container)
        elif "score" in result:
            memory.forget()
        downloads = any(word in result.get("error", "") for word in _DOWNLOAD)
        lease.mark(failed=failed and not downloads)  # the next attempt in it begins with a restart
        tokens = {"tokens": recorder.tokens} if recorder.tokens else {}
        return {**result, "metrics": {"container": lease.container, **tokens}}


def _kind(error: EvalfleetError) -> Kind:
    return next((kind for what, kind in _KINDS.items() if isinstance(error, what)), Kind.ENVIRONMENT_FAILED)


def _stop(_signal: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # ending what runs in the container is not to be interrupted
    raise SystemExit(128 + signal.SIGTERM)


def main() -> int:
    signal.signal(signal.SIGTERM, _stop)
    try:
        result = run()
    except EvalfleetError as error:
        result = {"error": str(error), "error_kind": _kind(error)}
    Path(config.environment()["EVALFLEET_RESULT"]).write_text(json.dumps(result), "utf-8")
    if "error" in result:
        print(result["error"], file=sys.stderr)
    return int("error" in result)


if __name__ == "__main__":
    sys.exit(main())
