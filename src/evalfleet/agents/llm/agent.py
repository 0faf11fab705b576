"""The agent `llm`: shows the screen to a model behind an OpenAI-compatible chat endpoint, and does what it says."""

from __future__ import annotations

from collections.abc import Mapping

from evalfleet import config
from evalfleet.agents.base import AgentOptions, AgentSetup, Decision, Observation, TaskPrompt
from evalfleet.agents.llm import options as llm_options
from evalfleet.agents.llm import prompt
from evalfleet.agents.llm.endpoint import Answer, Endpoint
from evalfleet.agents.llm.governor import Limits
from evalfleet.agents.llm.governor_file import Governor, pace_file
from evalfleet.config import Settings
from evalfleet.errors import InputError, ServiceRefused

_CORRECTIONS = 2  # times that the model is told of a reply that cannot be used


class Llm:
    """Implements `Agent`. A model whose replies stay unusable after corrections ends its episode."""

    title = "asks a model behind an OpenAI-compatible chat endpoint"
    accepts = ("model", "base_url")
    secrets = ("OPENAI_API_KEY",)  # or what `llm.secret` names

    def __init__(self, task: TaskPrompt) -> None:
        self._options = options = llm_options.options_of(task.options)
        self._tell = task.tell
        self._history: list[prompt.Step] = []
        environ = config.environment()
        key = _key(environ, options.secret) if options.secret else None
        limits = Limits(requests_per_minute=options.requests_per_minute, tokens_per_minute=options.tokens_per_minute)
        path = pace_file(environ.get("EVALFLEET_ATTEMPT"), options.base_url, options.model)
        self._endpoint = Endpoint(options, key, Governor(path, limits), task.tell)

    @classmethod
    def agent_setup(cls, options: AgentOptions, settings: Settings) -> AgentSetup:
        return llm_options.agent_setup(options, settings)

    def act(self, observation: Observation) -> Decision:
        history = self._history[-self._options.history :] if self._options.history else []
        chat = prompt.messages(observation, history, elements=self._options.elements)
        waited_s = 0.0
        for left in reversed(range(_CORRECTIONS + 1)):
            answer = self._endpoint.ask(chat)
            waited_s += answer.waited_s
            try:
                said = prompt.understand(answer.text)
            except InputError as mistake:
                note = f"the reply cannot be used: {mistake}"
                if not left:
                    return self._decision(prompt.Said(actions=(), done=True, thought=note), answer, waited_s)
                self._tell(note, cost_usd=self._cost(answer), tokens=answer.tokens_in + answer.tokens_out)
                chat += prompt.correction(answer.text, str(mistake))
                continue
            self._history.append(prompt.Step(number=observation.step, said=said))
            return self._decision(said, answer, waited_s)
        raise AssertionError("the last reply is used or ends the episode")

    def _decision(self, said: prompt.Said, answer: Answer, waited_s: float) -> Decision:
        return Decision(
            actions=said.actions,
            done=said.done,
            note=said.thought,
            cost_usd=self._cost(answer),
            tokens=answer.tokens_in + answer.tokens_out,
            waited_s=waited_s,
        )

    def _cost(self, answer: Answer) -> float:
        return self._options.cost_usd(answer.tokens_in, answer.tokens_out)


def _key(environ: Mapping[str, str], name: str) -> str:
    key = environ.get(name, "").strip()
    if not key:
        raise ServiceRefused(f"the attempt's environment lacks the key {name}")
    if not (key.isascii() and key.isprintable()):
        raise ServiceRefused(f"the key {name} contains characters that are not allowed in an HTTP header; set it again")
    return key
