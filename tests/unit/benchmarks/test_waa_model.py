"""What the answers of a model's endpoint mean for an attempt."""

from __future__ import annotations

import time
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.support.chat import Behaviour, Caller, ChatServer, completion, refusal, script

from evalfleet.agents.llm.options import LlmOptions
from evalfleet.benchmarks.waa.model import Model, ask_once
from evalfleet.benchmarks.waa.recorder import Recorder
from evalfleet.errors import AgentFailed, EvalfleetError, ServiceFailed, ServiceRefused

KEY = "sk-hidden-0123456789"


def silent(caller: Caller) -> None:
    caller.rest(5.0)


def options(server: ChatServer, patience_s: float = 300.0) -> LlmOptions:
    return LlmOptions(base_url=server.url, model="m", secret="OPENAI_API_KEY", timeout_s=0.5, patience_s=patience_s)


@pytest.mark.parametrize(
    ("behaviour", "error", "said"),
    [
        (
            refusal(401, f"Incorrect API key {KEY}"),
            ServiceRefused,
            "status 401: Incorrect API key …; check the key OPENAI_API_KEY",
        ),
        (refusal(404, "no such model", "model_not_found"), ServiceRefused, "no such model (model_not_found)"),
        (refusal(400, "use max_completion_tokens"), ServiceRefused, "use max_completion_tokens"),
        (refusal(503, "overloaded"), ServiceFailed, "overloaded"),
        (silent, ServiceFailed, "no complete response within 0.5 s"),
    ],
)
def test_the_endpoint_is_asked_before_the_first_task(tmp_path: Path, behaviour: Behaviour, error: type, said: str):
    with ChatServer(script(behaviour)) as server, pytest.raises(error) as caught:
        ask_once(options(server), KEY, tmp_path, "run.1.1")
    assert said in str(caught.value)
    assert type(caught.value) is error
    assert KEY not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_it_is_asked_once_for_a_run(tmp_path: Path):
    with ChatServer(script(refusal(429, "slow down"), completion("yes"))) as server:
        ask_once(options(server), KEY, tmp_path, "run.1.1")  # a busy one is one that serves
        ask_once(options(server), KEY, tmp_path, "run.2.1")
        assert len(server.asked) == 1
        ask_once(options(server), KEY, tmp_path, "other.1.1")
        ask_once(options(server), "another-key", tmp_path, "run.3.1")
        assert len(server.asked) == 3


def troubled(tmp_path: Path, server: ChatServer, calls: int, patience_s: float = 300.0) -> EvalfleetError | None:
    """What an attempt hears after so many calls."""
    made = Model(options(server, patience_s), KEY, Recorder(tmp_path / "events", tmp_path))
    stopped: list[EvalfleetError | None] = []
    made.on_trouble(lambda: stopped.append(made.trouble))
    with made.proxy:
        for _ in range(calls):
            link = HTTPConnection("127.0.0.1", made.proxy.port, timeout=10)
            link.request("POST", "/v1/chat/completions", "{}", {"Authorization": f"Bearer {made.token}"})
            link.getresponse().read()
            link.close()
        until = time.monotonic() + 5
        while len((tmp_path / "events").read_text().splitlines()) < calls and time.monotonic() < until:
            time.sleep(0.01)
    assert stopped == ([made.trouble] if made.trouble else [])  # once
    return made.trouble


def test_a_refusal_ends_the_attempt_at_once(tmp_path: Path):
    with ChatServer(script(completion("a"), refusal(401, "revoked"))) as server:
        trouble = troubled(tmp_path, server, 4)
    assert isinstance(trouble, ServiceRefused)
    assert "status 401: revoked" in str(trouble)


def test_an_outage_has_the_patience_of_the_configuration(tmp_path: Path):
    with ChatServer(
        script(refusal(429, "slow down"), refusal(500, "boom"), completion("a"), refusal(500, "boom"))
    ) as server:
        assert troubled(tmp_path, server, 4, patience_s=60.0) is None
    with ChatServer(script(refusal(500, "boom"))) as server:
        trouble = troubled(tmp_path, server, 3, patience_s=0.001)
    assert isinstance(trouble, ServiceFailed)
    assert "the last time with status 500: boom" in str(trouble)


def test_a_request_that_is_rejected_again_and_again_is_the_agents(tmp_path: Path):
    with ChatServer(script(refusal(400, "too long", "context_length_exceeded"))) as server:
        assert troubled(tmp_path, server, 2) is None
        assert isinstance(troubled(tmp_path, server, 5), AgentFailed)
    with ChatServer(script(refusal(400, "Unsupported parameter: 'max_tokens'", "unsupported_parameter"))) as server:
        assert isinstance(troubled(tmp_path, server, 1), ServiceRefused)  # no task's request would pass
