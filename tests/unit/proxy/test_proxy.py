"""The proxy before a model's endpoint: real HTTP on both sides."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, IncompleteRead
from typing import Any

import pytest
from tests.support.chat import (
    Behaviour,
    Caller,
    ChatServer,
    completion,
    cut,
    hang_up,
    refusal,
    script,
)

from evalfleet.agents.llm.replies import Sense
from evalfleet.proxy.server import Call, Proxy, Upstream

KEY, TOKEN = "sk-the-real-key", "a-token"
ASK = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


class Setup:
    """A proxy, its endpoint, and what its owner heard."""

    def __init__(self, server: ChatServer, timeout_s: float) -> None:
        self.server = server
        self.calls: queue.Queue[Call] = queue.Queue()
        upstream = Upstream(base_url=server.url, key=KEY, timeout_s=timeout_s)
        self.proxy = Proxy(upstream, TOKEN, self.calls.put)

    def ask(self, token: str = TOKEN) -> tuple[int, Any]:
        link = HTTPConnection("127.0.0.1", self.proxy.port, timeout=10)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept-Encoding": "gzip"}
        link.request("POST", "/v1/chat/completions", json.dumps(ASK), headers)
        answer = link.getresponse()
        return answer.status, answer.read()


@contextmanager
def proxied(*behaviours: Behaviour, timeout_s: float = 5.0) -> Iterator[Setup]:
    with ChatServer(script(*behaviours)) as server:
        setup = Setup(server, timeout_s)
        with setup.proxy:
            yield setup


def test_it_forwards_with_the_key_and_counts():
    with proxied(completion("hi", tokens_in=1200, tokens_out=30)) as setup:
        status, body = setup.ask()
        call = setup.calls.get(timeout=30)
        (asked,) = setup.server.asked
    assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, "hi")
    assert (asked.path, asked.body, asked.headers["authorization"]) == ("/v1/chat/completions", ASK, f"Bearer {KEY}")
    assert "accept-encoding" not in asked.headers or "gzip" not in asked.headers["accept-encoding"]
    assert (call.reply.sense, call.reply.tokens_in, call.reply.tokens_out) == (Sense.COMPLETION, 1200, 30)


def test_a_stranger_gets_nothing():
    with proxied(completion("hi")) as setup:
        status, body = setup.ask(token="guessed")
        assert (status, b"another attempt's" in body) == (401, True)
        assert setup.server.asked == []
        assert setup.calls.empty()


@pytest.mark.parametrize(
    ("behaviour", "status", "sense", "words"),
    [
        (
            refusal(401, "Incorrect API key provided", "invalid_api_key"),
            401,
            Sense.CLOSED,
            "Incorrect API key provided",
        ),
        (refusal(404, "The model `m` does not exist", "model_not_found"), 404, Sense.CLOSED, "does not exist"),
        (refusal(429, "Too many requests"), 429, Sense.LIMITED, "Too many requests"),
        (refusal(429, "You exceeded your quota", "insufficient_quota"), 429, Sense.CLOSED, "exceeded your quota"),
        (refusal(400, "too long", "context_length_exceeded"), 400, Sense.WRONG, "too long"),
        (refusal(500, "boom"), 500, Sense.BUSY, "boom"),
        (hang_up, 504, Sense.BUSY, "RemoteDisconnected"),
    ],
)
def test_what_goes_wrong_is_told_with_the_providers_words(behaviour: Behaviour, status: int, sense: Sense, words: str):
    with proxied(behaviour) as setup:
        got, body = setup.ask()
        call = setup.calls.get(timeout=30)
    assert (got, call.reply.sense) == (status, sense)
    assert words in call.reply.text
    assert KEY not in body.decode()


def test_an_endpoint_that_hangs_is_told_after_its_limit():
    with proxied(_silent, timeout_s=0.3) as setup:
        status, body = setup.ask()
        call = setup.calls.get(timeout=30)
    assert (status, call.reply.sense) == (504, Sense.BUSY)
    assert b"no answer within 0.3 s" in body


def _silent(caller: Caller) -> None:
    caller.rest(5.0)


def test_an_answer_that_is_cut_off_is_no_completion():
    with proxied(cut) as setup:
        with pytest.raises(IncompleteRead):  # as the endpoint's own caller would see it
            setup.ask()
        assert setup.calls.get(timeout=30).reply.sense is Sense.BUSY


def test_a_stream_is_passed_on_as_it_comes():
    go = queue.Queue[None]()

    def stream(caller: Caller) -> None:
        caller.begin(200, {"Content-Type": "text/event-stream"})
        caller.send(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n')
        go.get(timeout=30)  # the rest comes only when the first part has arrived
        caller.send(b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}\n\ndata: [DONE]\n\n')

    with proxied(stream) as setup:
        link = HTTPConnection("127.0.0.1", setup.proxy.port, timeout=10)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        link.request("POST", "/v1/chat/completions", json.dumps({**ASK, "stream": True}), headers)
        answer = link.getresponse()
        assert answer.readline().startswith(b'data: {"choices": [{"delta"')
        go.put(None)
        assert answer.read().endswith(b"data: [DONE]\n\n")
        reply = setup.calls.get(timeout=30).reply
    assert (reply.sense, reply.tokens_in, reply.tokens_out) == (Sense.COMPLETION, 7, 3)
