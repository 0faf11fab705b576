"""An agent that is a command: starts it, serves the episode to it over HTTP, and turns its requests into decisions.

To the program of an attempt it is an agent like others. It is asked for a decision, and serves the command's requests
until one is an input; that is answered when the next decision is asked for, because then it has been carried out.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType

from msgspec import to_builtins

from evalfleet import config
from evalfleet.actions import Action, Click, Press
from evalfleet.agents.base import Decision, Observation, TaskPrompt
from evalfleet.environments.base import Environment, Executed, Probe, Size
from evalfleet.environments.browser import keys
from evalfleet.environments.guest import messages
from evalfleet.environments.guest.server import Answer, Guest, as_json
from evalfleet.errors import AgentFailed, EpisodeOver, InputError

_CHECKERS = ("definition",)  # of a payload: what the checker looks for
_GRACE_S = 3.0  # for the command to leave by itself when the episode is over


class CommandAgent:
    """Implements `Agent`, inside a `with` block: its end is the episode's, and that of the command.

    Args:
        words: the command.
        environment: what the episode lets it do besides looking and acting, if anything.
        max_steps: told to the command.
    """

    def __init__(
        self, words: Sequence[str], prompt: TaskPrompt, environment: Environment | None, max_steps: int
    ) -> None:
        self._words = list(words)
        self._prompt = prompt
        self._max_steps = max_steps
        self._seen: Observation | None = None
        self._wanted: Action | None = None
        self._answer: Future[Answer] | None = None  # to the input that is being carried out
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()
        world = _World(self, environment)
        more = {"POST /input": self._input, "GET /elements": self._elements, "GET /task": self._task}
        self._guest = Guest(world, more=more)

    def __enter__(self) -> CommandAgent:
        self._guest.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._settle(over=True)
        self._guest.stop()
        if self._process is not None:
            if error is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_GRACE_S)
            with contextlib.suppress(ProcessLookupError):  # also what it started and left behind
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._guest.__exit__(kind, error, trace)

    def act(self, observation: Observation) -> Decision:
        """Return the command's next decision; done if it has ended.

        Raises:
            AgentFailed: it could not be started, or ended with another status than 0.
        """
        self._seen, self._wanted = observation, None
        if self._process is None:
            self._start()
        self._settle(over=False)
        self._guest.serve(until=lambda: self._wanted is not None or self._ended.is_set())
        if self._wanted is not None:
            return Decision(actions=(self._wanted,))
        assert self._process is not None
        code = self._process.returncode
        if code:
            ended = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
            raise AgentFailed(f"the agent's command {ended}: {shlex.join(self._words)}")
        return Decision(done=True, note="the command has ended")

    def look(self) -> Observation:
        """Return the current observation."""
        if self._seen is None:
            raise EpisodeOver
        return self._seen

    def _start(self) -> None:
        env = {name: value for name, value in config.environment().items() if name != "EVALFLEET_RESULT"}
        if (task := env.get("EVALFLEET_TASK")) is not None:
            env["EVALFLEET_TASK"] = _told(Path(task))
        env |= {
            "EVALFLEET_GUEST": self._guest.address,
            "EVALFLEET_GUEST_TOKEN": self._guest.token,
            "EVALFLEET_GOAL": self._prompt.goal,
            "EVALFLEET_MAX_STEPS": str(self._max_steps),
        }
        try:
            self._process = subprocess.Popen(self._words, env=env, stdin=subprocess.DEVNULL, process_group=0)
        except (OSError, ValueError) as error:
            said = getattr(error, "strerror", None) or error
            raise AgentFailed(f"the agent's command cannot be started: {said}: {shlex.join(self._words)}") from None
        threading.Thread(target=self._await_end, args=(self._process,), daemon=True).start()

    def _await_end(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._ended.set()
        self._guest.wake()

    def _settle(self, *, over: bool) -> None:
        """Answer the input that was carried out."""
        if self._answer is not None and self._seen is not None:
            self._answer.set_result(as_json({"step": self._seen.step, "over": over}))
        self._answer = None

    # Requests

    def _input(self, _query: Mapping[str, str], body: bytes) -> Future[Answer]:
        action = messages.action_of(body)
        match action:  # what no environment could do is refused here, and fails nothing
            case Press():
                keys.events(action.key, action.held)
            case Click():
                keys.modifiers(action.held)
            case _:
                pass
        self._wanted = action
        self._answer = Future()
        return self._answer

    def _elements(self, _query: Mapping[str, str], _body: bytes) -> Answer:
        lines = [json.dumps(to_builtins(element)) + "\n" for element in self.look().elements]
        return Answer("".join(lines).encode(), "application/x-ndjson")

    def _task(self, _query: Mapping[str, str], _body: bytes) -> Answer:
        prompt = self._prompt
        told = {"benchmark": prompt.benchmark, "task": prompt.task, "seed": prompt.seed, "goal": prompt.goal}
        return as_json({**told, "step": self.look().step, "max_steps": self._max_steps})


def _told(path: Path) -> str:
    """A copy of the task file without what its checker looks for: the agent must not read the expected answer."""
    task = json.loads(path.read_bytes())
    payload = {name: value for name, value in task["payload"].items() if name not in _CHECKERS}
    copy = path.with_name("agent_task.json")
    copy.write_text(json.dumps({**task, "payload": payload}), "utf-8")
    return str(copy)


class _World:
    """The episode as the command may see it. Implements `Environment`."""

    def __init__(self, agent: CommandAgent, environment: Environment | None) -> None:
        self._agent = agent
        self._environment = environment

    def probe(self) -> Probe:
        seen = self._agent.look()
        return Probe(kind="episode", ready=True, waits_for="", screen=Size(width=seen.width, height=seen.height))

    def screenshot(self) -> bytes:
        return self._agent.look().screenshot

    def perform(self, action: Action) -> None:
        raise InputError("inputs are sent as steps, not through the environment.")

    def execute(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> Executed:
        return self._inside().execute(command, stdin=stdin, env=env, timeout_s=timeout_s)

    def launch(self, command: Sequence[str]) -> None:
        self._inside().launch(command)

    def read(self, path: str) -> bytes:
        return self._inside().read(path)

    def write(self, path: str, data: bytes) -> None:
        self._inside().write(path, data)

    def reset(self) -> None:
        raise InputError("an agent cannot reset its episode.")

    def _inside(self) -> Environment:
        if self._environment is None:
            raise InputError("this benchmark accepts pointer and keyboard input only.")
        return self._environment
