"""The agent `llm` without a network: its options, what it writes, how it reads replies and answers."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet import config
from evalfleet.agents import registry
from evalfleet.agents.base import AgentOptions, Click, Press, Write
from evalfleet.agents.llm import prompt
from evalfleet.agents.llm.agent import Llm
from evalfleet.agents.llm.http_post import Response
from evalfleet.agents.llm.options import LlmOptions, options_of
from evalfleet.agents.llm.prompt import Said, Step, understand
from evalfleet.agents.llm.replies import Sense, wait_of
from evalfleet.agents.llm.replies import understand as sense_of
from evalfleet.agents.llm.settings import LlmSettings, TokenPrice
from evalfleet.benchmarks.base import Selection
from evalfleet.benchmarks.miniwob.benchmark import Miniwob
from evalfleet.errors import ConfigError, InputError
from evalfleet.testing.pages import looking

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
PRICE = TokenPrice(model="gpt-4o*", input_usd_per_million=2.5, output_usd_per_million=10)


def settings(**llm: Any) -> config.Settings:
    return config.Settings(home=Path(), tables={"llm": llm})


# Options


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def test_what_travels_in_the_payload():
    setup = Llm.agent_setup(AgentOptions(model="gpt-4o-mini"), settings(prices=(PRICE,), temperature=0.0))
    assert setup.secrets == ("OPENAI_API_KEY",)
    assert setup.notes == ()
    options = options_of(json.loads(json.dumps(setup.options)))
    assert (options.base_url, options.temperature) == ("https://api.openai.com/v1", 0.0)
    assert options.cost_usd(1_000_000, 100_000) == pytest.approx(3.5)


def test_an_unknown_price_is_said():
    setup = Llm.agent_setup(AgentOptions(model="other"), settings(prices=(PRICE,)))
    assert "no price is configured for other" in setup.notes[0]
    assert options_of(setup.options).cost_usd(5, 5) == 0.0


def test_an_endpoint_without_a_key():
    setup = Llm.agent_setup(AgentOptions(model="m", base_url="http://10.0.0.8:8000/v1/"), settings(secret=""))
    assert setup.secrets == ()
    assert setup.options["base_url"] == "http://10.0.0.8:8000/v1"
    plain = Llm.agent_setup(AgentOptions(model="m", base_url="http://10.0.0.8:8000/v1/"), settings())
    assert "is sent to 10.0.0.8 without encryption" in plain.notes[1]


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (AgentOptions(), "needs a model; name it with --model"),
        (AgentOptions(model="m", base_url="api.openai.com"), "'api.openai.com' is not an address"),
        (AgentOptions(model="m", base_url="ftp://x"), "is not an address"),
        (AgentOptions(model="m", base_url="http://x:99999"), "is not an address"),
        (AgentOptions(model="m", base_url="https://u:p@x/v1"), "remove user and password"),
    ],
)
def test_options_that_cannot_be(chosen: AgentOptions, said: str):
    with pytest.raises(InputError) as caught:
        Llm.agent_setup(chosen, settings())
    assert said in str(caught.value)


def test_other_agents_refuse_a_model():
    with pytest.raises(InputError, match="--model has no effect on the agent 'random'"):
        registry.setup_of("random", registry.load("random"), AgentOptions(model="m"), settings())


def test_proxies_and_certificates_reach_the_attempt(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("https_proxy", "http://user:pass@proxy:3128")
    monkeypatch.setenv("NO_PROXY", "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/own.pem")
    setup = Llm.agent_setup(AgentOptions(model="m"), settings())
    assert setup.secrets == ("OPENAI_API_KEY", "https_proxy")
    assert {name: setup.env[name] for name in ("NO_PROXY", "SSL_CERT_FILE")} == {
        "NO_PROXY": "localhost",
        "SSL_CERT_FILE": "/etc/own.pem",
    }
    assert "https_proxy" not in setup.env


def test_the_wall_limit_is_longer_by_the_patience(monkeypatch: pytest.MonkeyPatch):
    benchmark = Miniwob(settings(patience_s=120.0))
    if not benchmark.catalogue():
        pytest.skip("the pages are not installed")
    (task,) = benchmark.tasks(Selection(agent="llm", model="m", task=("click-test",)))
    assert (task["timeout"], task["payload"]["time_limit_s"], task["secrets"]) == (420.0, 300.0, ["OPENAI_API_KEY"])
    (task,) = benchmark.tasks(Selection(agent="random", task=("click-test",)))
    assert {"timeout", "secrets", "env"}.isdisjoint(task)


def test_configuration(tmp_path: Path):
    (tmp_path / "evalfleet.toml").write_text(
        '[llm]\nmodel = "m"\npatience = "2m"\nbody = {reasoning_effort = "low"}\n'
        '[[llm.price]]\nmodel = "m"\ninput_usd_per_million = 1\noutput_usd_per_million = 2\n'
    )
    (tmp_path / "config.toml").write_text(
        '[llm]\nmodel = "n"\nhistory = 2\n'
        '[[llm.price]]\nmodel = "*"\ninput_usd_per_million = 3\noutput_usd_per_million = 4\n'
    )
    environ = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    loaded = config.load(tmp_path, environ=environ, folder=tmp_path).table("llm", LlmSettings)
    assert (loaded.model, loaded.patience_s, loaded.history) == ("m", 120.0, 2)
    assert (loaded.base_url, loaded.body) == ("http://127.0.0.1:1/v1", {"reasoning_effort": "low"})
    assert [price.model for price in loaded.prices] == ["m", "*"]
    for text, said in {
        "[llm]\ntemperature = 3\n": "llm.temperature: must be from 0 to 2",
        "[llm]\npatience = 'soon'\n": "llm.patience",
        "[llm]\nmodle = 'x'\n": 'unknown key "modle"; did you mean "model"?',
        "[[llm.price]]\nmodel = 'x'\ninput_usd_per_million = -1\noutput_usd_per_million = 1\n": "[[llm.price]] number 1: prices must",
    }.items():
        (tmp_path / "evalfleet.toml").write_text(text)
        with pytest.raises(ConfigError) as caught:
            config.load(tmp_path, environ={}, folder=tmp_path)
        assert said in str(caught.value)


# Prompt


def test_the_model_is_told_goal_history_elements_and_screen():
    said = Said(actions=(Click(x=1, y=2),), done=False, thought="I see\n two buttons")
    chat = prompt.messages(looking('Click "Ok".', "Cancel", "Ok", step=2), [Step(number=1, said=said)], elements=True)
    assert [message["role"] for message in chat] == ["system", "user"]
    assert all(
        f'"do": "{name}"' in chat[0]["content"] for name in ("click", "drag", "scroll", "write", "press", "wait")
    )
    text, image = chat[1]["content"]
    assert 'Goal: Click "Ok".' in text["text"]
    assert "160 x 120 pixels" in text["text"]
    assert '1. I see two buttons [{"do": "click", "x": 1, "y": 2}]' in text["text"]
    assert '- button "Ok" at (40, 50)' in text["text"]
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    bare = prompt.messages(looking("g", "Ok"), [], elements=False)
    assert "button" not in bare[1]["content"][0]["text"]


@pytest.mark.parametrize(
    "reply",
    [
        '{"thought": "t", "actions": [{"do": "click", "x": 1, "y": 2}], "done": false}',
        '```json\n{"thought": "t", "actions": [{"do": "click", "x": 1.0, "y": 2}]}\n```',
        'I think {this} is it: {"thought": "t", "actions": [{"do": "click", "x": 1, "y": 2}]} Good luck!',
        '{"thought": "old", "actions": []} no: {"thought": "t", "actions": [{"do": "click", "x": 1, "y": 2}]}',
    ],
)
def test_replies_that_can_be_used(reply: str):
    assert understand(reply) == Said(actions=(Click(x=1, y=2),), done=False, thought="t")


def test_several_actions_and_an_end():
    said = understand('{"actions": [{"do": "write", "text": "a"}, {"do": "press", "key": "Enter"}], "done": true}')
    assert said == Said(actions=(Write(text="a"), Press(key="Enter")), done=True, thought="")


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("", 'no JSON object with "actions"'),
        ("I cannot help with that.", 'no JSON object with "actions"'),
        ('{"actions": [{"do": "clic', 'no JSON object with "actions"'),
        ('{"action": "click"}', 'no JSON object with "actions"'),
        ('{"actions": {"do": "click"}}', '"actions" must be a list'),
        ('{"actions": []}', '"actions" is empty'),
        ('{"actions": [{"do": "dance"}]}', "there is no action 'dance'; known: click"),
        ('{"actions": [{"do": "click", "x": "left"}]}', "click: x must be a finite number"),
        ('{"actions": [{"do": "click", "x": 1}]}', "click needs y"),
        ('{"actions": [1], "done": false}', "an action is an object"),
        ('{"actions": [], "done": "yes"}', '"done" must be true or false'),
        (json.dumps({"actions": [{"do": "wait", "seconds": 1}] * 11}), "11 actions, and 10 is the most"),
    ],
)
def test_replies_that_cannot_be_used(reply: str, said: str):
    with pytest.raises(InputError) as caught:
        understand(reply)
    assert said in str(caught.value)


@given(st.text(alphabet='{}[]":,actionsdone 01\\', max_size=60))
def test_no_reply_breaks_the_reader(reply: str):
    with contextlib.suppress(InputError):
        understand(reply)


# Answers


def response(status: int, content: Any = None, **headers: str) -> Response:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Response(
        status=status, headers={name.replace("_", "-"): value for name, value in headers.items()}, body=body
    )


@pytest.mark.parametrize(
    ("answer", "sense", "said"),
    [
        (response(401, {"error": {"message": "Incorrect API key"}}), Sense.CLOSED, "status 401: Incorrect API key"),
        (
            response(404, {"error": {"message": "no model", "code": "model_not_found"}}),
            Sense.CLOSED,
            "(model_not_found)",
        ),
        (response(403, b"<html>no</html>", content_type="text/html"), Sense.CLOSED, "text/html: <html>no</html>"),
        (response(429, {"error": {"message": "slow down"}}), Sense.LIMITED, "slow down"),
        (
            response(429, {"error": {"message": "pay", "code": "insufficient_quota"}}),
            Sense.CLOSED,
            "insufficient_quota",
        ),
        (response(500, b""), Sense.BUSY, "status 500"),
        (response(529, {"error": "overloaded"}), Sense.BUSY, "overloaded"),
        (response(400, {"error": {"message": "too long"}}), Sense.WRONG, "too long"),
        (response(413, b"\x00\x1b[31mbig"), Sense.WRONG, "status 413"),
        (response(302, b""), Sense.CLOSED, "status 302"),
        (response(200, b"<html>"), Sense.BUSY, "not a chat completion"),
        (response(200, {"choices": []}), Sense.BUSY, "not a chat completion"),
        (response(200, [1]), Sense.BUSY, "not a chat completion"),
    ],
)
def test_what_an_answer_means(answer: Response, sense: Sense, said: str):
    reply = sense_of(answer, NOW)
    assert reply.sense is sense
    assert said in reply.text
    assert reply.text.isprintable()


def test_completions():
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    reply = sense_of(response(200, {"choices": [{"message": {"content": "hi"}}], "usage": usage}), NOW)
    assert (reply.sense, reply.text, reply.tokens_in, reply.tokens_out) == (Sense.COMPLETION, "hi", 7, 3)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert sense_of(response(200, {"choices": [{"message": {"content": parts}}]}), NOW).text == "ab"
    refused = sense_of(response(200, {"choices": [{"message": {"content": None, "refusal": "no"}}]}), NOW)
    assert (refused.text, refused.tokens) == ("no", 0)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "20"}, 20.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Sun, 15 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Sun, 15 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "later"}, None),
        ({"retry-after": "-5"}, None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "250ms"}, 0.25),
        ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "250ms"}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], wait: float | None):
    assert wait_of(headers, NOW) == wait


def test_options_have_the_settings_defaults():
    made = LlmOptions(base_url="http://x", model="m", secret=None)
    setup = Llm.agent_setup(AgentOptions(model="m", base_url="http://x"), settings(secret=""))
    assert options_of(setup.options) == made
