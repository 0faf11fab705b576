"""The program of an attempt: `python -m evalfleet.benchmarks.attempt`, started by the runner on the worker.

Opens the episode that the task's payload describes, lets the agent act until it is over, and leaves the result, an
event line and a screenshot per step, and `trajectory.jsonl`. What goes wrong with the environment or a service is told in
the result as `error` with its `error_kind`, what goes wrong with the agent by the exit code; nothing of it is a score.
"""

from __future__ import annotations

import hashlib
import json
import math
import signal
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from evalfleet import config
from evalfleet.actions import to_json
from evalfleet.agents import registry as agents
from evalfleet.agents.base import Agent, AgentClass, Decision, Observation, TaskPrompt
from evalfleet.agents.command import Command
from evalfleet.benchmarks import registry as benchmarks
from evalfleet.benchmarks.base import Episode
from evalfleet.errors import EnvironmentFailed, EvalfleetError, ServiceFailed, ServiceRefused
from evalfleet.model import Kind, Verdict

# The first that fits.
_NOT_OURS = {
    EnvironmentFailed: Kind.ENVIRONMENT_FAILED,
    ServiceRefused: Kind.SERVICE_REFUSED,
    ServiceFailed: Kind.SERVICE_FAILED,
}


class Recorder:
    """Writes progress to the places where the runner and people look for it."""

    def __init__(self, events: Path, artifacts: Path) -> None:
        self._events = events
        self._artifacts = artifacts
        self._begun = time.monotonic()
        self._tokens = 0

    def ready(self, prompt: TaskPrompt) -> None:
        self._event({"ready": True, "note": prompt.goal})
        self._line({"benchmark": prompt.benchmark, "task": prompt.task, "seed": prompt.seed, "goal": prompt.goal})

    def step(self, observation: Observation, decision: Decision) -> None:
        """Report a decision before it is carried out, so that the last line shows what broke the environment."""
        picture = f"step_{observation.step}.png"
        (self._artifacts / picture).write_bytes(observation.screenshot)
        actions = [to_json(action) for action in decision.actions]
        shown = {"step": observation.step, "screenshot": picture, "action": actions}
        more = self._spent(decision.cost_usd, decision.tokens)
        note = {"note": decision.note} if decision.note else {}
        self._event({**shown, **note, **more})
        digest = hashlib.sha256(observation.screenshot).hexdigest()[:16]
        self._line({**shown, **note, **more, "done": decision.done, "observation": digest})

    def tell(self, note: str, *, cost_usd: float = 0.0, tokens: int = 0) -> None:
        """Report what happens between two steps. Implements `Tell`."""
        self._event({"note": note, **self._spent(cost_usd, tokens)})

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of the attempt besides those of the checker."""
        return {"tokens": self._tokens} if self._tokens else {}

    def over(self, observation: Observation, verdict: Verdict) -> None:
        (self._artifacts / "final.png").write_bytes(observation.screenshot)
        self._event({"screenshot": "final.png", "note": f"score {verdict.score:g}"})
        self._line({"score": verdict.score, "success": verdict.success, "screenshot": "final.png", **verdict.metrics})

    def _spent(self, cost_usd: float, tokens: int) -> dict[str, Any]:
        self._tokens += tokens
        cost = {"cost_usd": cost_usd} if cost_usd else {}
        return {**cost, **({"tokens": tokens} if tokens else {})}

    def _event(self, line: dict[str, Any]) -> None:
        with self._events.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _line(self, line: dict[str, Any]) -> None:
        at_s = round(time.monotonic() - self._begun, 3)
        with (self._artifacts / "trajectory.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at_s": at_s, **line}) + "\n")


def play(
    episode: Episode, agent: Agent, recorder: Recorder, max_steps: int, time_limit_s: float | None = None
) -> tuple[Verdict, int]:
    """Let the agent act until the episode is over, the agent is done, or the steps or the time are used up.

    Args:
        episode: where.
        agent: who.
        recorder: is told.
        max_steps: most decisions.
        time_limit_s: of the agent alone, without its waiting for a busy service; None: the runner's limit is all.

    Returns:
        The verdict and the number of steps. An episode that was not brought to its end scores 0.
    """
    steps = 0
    verdict = None
    reason = "max_steps"
    ends_at = math.inf if time_limit_s is None else time.monotonic() + time_limit_s
    while verdict is None and steps < max_steps:
        if time.monotonic() >= ends_at:
            reason = "timeout"
            break
        steps += 1
        observation = episode.observe(steps)
        decision = agent.act(observation)
        ends_at += decision.waited_s
        recorder.step(observation, decision)
        for action in decision.actions:
            episode.perform(action)
            verdict = episode.verdict()
            if verdict is not None:
                break
        if decision.done:
            reason = "agent_done"
            break
    last = episode.observe(steps + 1)
    verdict = episode.finish() or Verdict(score=0.0, success=False, metrics={"reason": reason})
    recorder.over(last, verdict)
    return verdict, steps


def run() -> None:
    """Run the task. Raises EvalfleetError, and any exception of the agent."""
    environ = config.environment()
    task: dict[str, Any] = json.loads(Path(environ["EVALFLEET_TASK"]).read_text("utf-8"))
    payload: dict[str, Any] = task["payload"]
    benchmark = benchmarks.find(payload["benchmark"], config.Settings(home=Path()))
    make_agent = agents.load(payload["agent"])
    recorder = Recorder(Path(environ["EVALFLEET_EVENTS"]), Path(environ["EVALFLEET_ARTIFACTS"]))
    with benchmark.episode(payload, Path(environ["EVALFLEET_TASK"]).parent) as episode:
        prompt = TaskPrompt(
            benchmark=benchmark.name,
            task=payload["task"],
            goal=episode.goal,
            seed=payload["seed"],
            options=payload.get("agent_options", {}),
            tell=recorder.tell,
        )
        max_steps = payload["max_steps"]
        made = _made(make_agent, prompt, episode, max_steps)
        recorder.ready(prompt)
        with made as agent:
            verdict, steps = play(episode, agent, recorder, max_steps, payload.get("time_limit_s"))
    metrics = {**verdict.metrics, **recorder.metrics()}
    _write_result({"score": verdict.score, "success": verdict.success, "steps": steps, "metrics": metrics})


def _made(agent: AgentClass, prompt: TaskPrompt, episode: Episode, max_steps: int) -> AbstractContextManager[Agent]:
    """Return the agent, for a `with` block."""
    if isinstance(agent, Command):
        from evalfleet.benchmarks.command_agent import CommandAgent  # brings a server, which other agents do not need

        return CommandAgent(agent.words, prompt, getattr(episode, "environment", None), max_steps)
    return nullcontext(agent(prompt))


def _write_result(result: dict[str, Any]) -> None:
    Path(config.environment()["EVALFLEET_RESULT"]).write_text(json.dumps(result), "utf-8")


def _stop(_signal: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # cleaning up is not to be interrupted; SIGKILL follows soon enough
    raise SystemExit(128 + signal.SIGTERM)


def main() -> int:
    signal.signal(signal.SIGTERM, _stop)  # so that the browser is ended and its folder removed
    try:
        run()
    except EvalfleetError as error:  # one line: it is the evidence by which like failures are known
        said = f"{type(error).__name__}: {error}"
        for kind, words in _NOT_OURS.items():
            if isinstance(error, kind):
                _write_result({"error": said, "error_kind": words.value})
                break
        print(said, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
