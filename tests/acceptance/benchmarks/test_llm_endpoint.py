"""A model's endpoint over real HTTP, on its worst days."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from tests.support.chat import (
    Behaviour,
    Bucket,
    Caller,
    ChatServer,
    completion,
    cut,
    flood,
    hang_up,
    raw,
    refusal,
    script,
    trickle,
    trickle_headers,
)

from evalfleet.agents.base import Decision, TaskPrompt
from evalfleet.agents.llm import endpoint as endpoint_module
from evalfleet.agents.llm import http_post
from evalfleet.agents.llm.agent import Llm
from evalfleet.agents.llm.endpoint import TRIES, Answer, Endpoint
from evalfleet.agents.llm.governor import Limits
from evalfleet.agents.llm.governor_file import Governor, pace_file
from evalfleet.agents.llm.options import LlmOptions
from evalfleet.errors import AgentFailed, ServiceFailed, ServiceRefused
from evalfleet.testing.pages import looking

KEY = "sk-test-correct-horse"
GOOD = completion("hello", 120, 8)
CLICK = completion(json.dumps({"thought": "there", "actions": [{"do": "click", "x": 40, "y": 50}]}), 1000, 100)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(endpoint_module, "_PAUSE_S", 0.01)
    monkeypatch.setenv("EVALFLEET_ATTEMPT", "run1.1.1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Notes(list[str]):
    """What was told meanwhile."""

    def __call__(self, note: str, *, cost_usd: float = 0.0, tokens: int = 0) -> None:
        self.append(note)


def asking(server: ChatServer, *, tell: Notes | None = None, **more: Any) -> Endpoint:
    given: dict[str, Any] = {"timeout_s": 20.0, "patience_s": 30.0, **more}
    options = LlmOptions(base_url=server.url, model="stub", secret="OPENAI_API_KEY", **given)
    path = pace_file("run1.1.1", options.base_url, options.model)
    return Endpoint(options, KEY, Governor(path, Limits()), tell if tell is not None else Notes())


def ask(*behaviours: Behaviour, **more: Any) -> tuple[Answer, ChatServer]:
    with ChatServer(script(*behaviours)) as server:
        return asking(server, **more).ask([{"role": "user", "content": "hi"}]), server


def test_a_good_day():
    answer, server = ask(GOOD, temperature=0.2, max_tokens=77, body={"seed": 3})
    assert (answer.text, answer.tokens_in, answer.tokens_out) == ("hello", 120, 8)
    assert answer.waited_s < 1
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert {name: asked.body[name] for name in ("model", "temperature", "max_tokens", "seed")} == {
        "model": "stub",
        "temperature": 0.2,
        "max_tokens": 77,
        "seed": 3,
    }


def test_a_refusal_with_a_wait_in_seconds():
    notes = Notes()
    answer, server = ask(refusal(429, "slow down", retry_after="1.2"), GOOD, tell=notes)
    first, second = server.asked
    assert second.at - first.at >= 1.2
    assert answer.waited_s >= 1.2
    assert notes
    assert notes[0].startswith("waiting 1 s for stub: the rate limit")


def test_a_refusal_with_a_wait_until_a_date():
    answer, server = ask(refusal(429, retry_after=formatdate(time.time() + 2, usegmt=True)), GOOD)
    assert answer.text == "hello"
    assert server.asked[1].at - server.asked[0].at >= 0.9  # dates have whole seconds


BAD_DAYS: dict[str, Behaviour] = {
    "500": refusal(500),
    "502 from a proxy": raw(502, b"<html>Bad Gateway</html>", "text/html"),
    "503 with a wait": refusal(503, retry_after="0.1"),
    "hung up": hang_up,
    "cut": cut,
    "garbage": raw(200, b"{nonsense"),
    "a page": raw(200, b"<html>login</html>", "text/html"),
    "wrong shape": raw(200, b'{"choices": [{"text": "old api"}]}'),
    "binary": raw(200, b"\x00\xff\xfe", "application/octet-stream"),
}


@pytest.mark.parametrize("name", BAD_DAYS)
def test_what_passes_is_tried_again(name: str):
    answer, server = ask(BAD_DAYS[name], BAD_DAYS[name], GOOD)
    assert answer.text == "hello"
    assert len(server.asked) == 3


@pytest.mark.parametrize("name", BAD_DAYS)
def test_what_does_not_pass_is_the_services(name: str):
    with ChatServer(script(BAD_DAYS[name])) as server:
        with pytest.raises(ServiceFailed, match=f"stub: failed {TRIES} times, the last time with .+"):
            asking(server).ask([])
        assert len(server.asked) == TRIES


@pytest.mark.parametrize("behaviour", [trickle, trickle_headers], ids=["body", "headers"])
def test_an_answer_that_never_ends_is_ended(behaviour: Behaviour):
    answer, server = ask(behaviour, GOOD, timeout_s=1.0)
    assert answer.text == "hello"
    assert 1.0 <= server.asked[1].at - server.asked[0].at < 15


def test_an_endless_body_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_post, "LARGEST", 1 << 20)
    answer, _ = ask(flood, GOOD)
    assert answer.text == "hello"


def test_a_long_answer_is_progress(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_post, "TICK_S", 0.02)
    notes = Notes()

    def long(caller: Caller) -> None:
        """Come to an end only after the fifth note, however slow the machine is."""
        caller.begin(200, {"Content-Type": "application/json"})
        while notes.count("waiting for stub") < 5 and caller.rest(0.05):
            caller.send(b" ")
        caller.send(json.dumps({"choices": [{"message": {"content": "at last"}}]}).encode())

    begun = time.monotonic()
    answer, _ = ask(long, timeout_s=50.0, tell=notes)
    assert answer.text == "at last"
    assert 5 <= notes.count("waiting for stub") <= (time.monotonic() - begun) / http_post.TICK_S


def test_an_answer_without_end_is_given_up():
    with pytest.raises(ServiceFailed, match="no complete response within 1 s"):
        ask(trickle, timeout_s=1.0)


def silence(caller: Caller) -> None:
    """Listen, and say nothing while the server goes on."""
    caller.rest(30.0)


@pytest.mark.parametrize("behaviour", [trickle, silence])
def test_a_thread_that_sees_the_deadline_first_says_the_same(behaviour: Behaviour):
    with ChatServer(script(behaviour)) as server:
        call = http_post._Call(f"{server.url}/chat/completions", b'{"messages": []}', {}, 0.3)  # pyright: ignore[reportPrivateUsage]
        call.run()
        with pytest.raises(http_post.NoAnswer, match=r"^no complete response within 0\.3 s$"):
            call.result()


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (
            refusal(401, f"Incorrect API key provided: {KEY}"),
            "status 401: Incorrect API key provided: …; check the key",
        ),
        (refusal(403, "not your model"), "status 403: not your model"),
        (refusal(404, "The model `stub` does not exist", "model_not_found"), "does not exist (model_not_found)"),
        (refusal(429, "You exceeded your current quota", "insufficient_quota"), "insufficient_quota"),
        (raw(302, b"", location="http://127.0.0.1:9/v1"), "status 302"),
    ],
)
def test_what_no_asking_helps_is_said_at_once(behaviour: Behaviour, said: str):
    with ChatServer(script(behaviour)) as server:
        with pytest.raises(ServiceRefused) as caught:
            asking(server).ask([])
        assert len(server.asked) == 1
    assert said in str(caught.value)
    assert KEY not in str(caught.value)
    assert "check the key OPENAI_API_KEY, the model and the address" in str(caught.value)


def test_what_is_wrong_with_the_question_is_the_agents():
    with pytest.raises(AgentFailed, match="the request was rejected: status 400: image input is not supported"):
        ask(refusal(400, "image input is not supported"))


def test_patience_ends():
    notes = Notes()
    with ChatServer(script(refusal(429, retry_after="40"))) as server:
        with pytest.raises(ServiceFailed, match=r"busy beyond the patience of 30 s: the rate limit; use fewer workers"):
            asking(server, tell=notes).ask([])
        assert len(server.asked) == 1


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch):
    with ChatServer(script(GOOD)) as server:
        endpoint = asking(server)
    with pytest.raises(ServiceFailed, match="ConnectionRefusedError: Connection refused"):
        endpoint.ask([])


def test_a_proxy_is_used_and_passed_by_as_the_variables_say(monkeypatch: pytest.MonkeyPatch):
    with ChatServer(script(GOOD)) as proxy, ChatServer(script(GOOD)) as server:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        options = LlmOptions(base_url="http://model.invalid/v1", model="stub", secret=None)
        pace = Governor(pace_file("run1.1.1", options.base_url, "stub"), Limits())
        assert Endpoint(options, None, pace, Notes()).ask([]).text == "hello"
        assert [asked.path for asked in proxy.asked] == ["http://model.invalid/v1/chat/completions"]
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert asking(server).ask([]).text == "hello"
        assert len(proxy.asked) == 1


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_certificate_that_nobody_signed_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    paths = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *paths]
    subprocess.run(make, check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with ChatServer(script(GOOD), tls=context) as server:
        assert server.url.startswith("https://")
        with pytest.raises(ServiceFailed, match="certificate is not valid: self-signed certificate"):
            asking(server).ask([])
        assert server.asked == [], "the key was not sent"
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        assert asking(server).ask([]).text == "hello"


# The agent


def decide(server: ChatServer, told: list[tuple[str, float, int]] | None = None, **options: Any) -> Decision:
    def tell(note: str, *, cost_usd: float = 0.0, tokens: int = 0) -> None:
        if told is not None:
            told.append((note, cost_usd, tokens))

    given = {"base_url": server.url, "model": "stub", "secret": "OPENAI_API_KEY", **options}
    prices = {"input_usd_per_million": 2.0, "output_usd_per_million": 10.0}
    prompt = TaskPrompt(benchmark="b", task="t", goal='Click "Ok".', seed=1, options={**given, **prices}, tell=tell)
    return Llm(prompt).act(looking('Click "Ok".', "Cancel", "Ok"))


def test_a_decision_and_its_price():
    with ChatServer(script(CLICK)) as server:
        decision = decide(server)
    assert (decision.note, decision.tokens) == ("there", 1100)
    assert decision.cost_usd == pytest.approx(0.003)
    (image,) = server.asked[0].images
    assert image.startswith("data:image/png;base64,")
    assert '- button "Ok" at (40, 50)' in server.asked[0].text


def test_a_mistake_is_told_back():
    told: list[tuple[str, float, int]] = []
    with ChatServer(script(completion('{"actions": [{"do": "dance"}]}', 500, 100), CLICK)) as server:
        decision = decide(server, told)
    assert decision.note == "there"
    assert "there is no action 'dance'" in server.asked[1].text
    assert server.asked[1].body["messages"][2] == {"role": "assistant", "content": '{"actions": [{"do": "dance"}]}'}
    # What the spoiled reply cost is told at once, so that it counts whatever becomes of the next.
    assert told == [(told[0][0], pytest.approx(0.002), 600)]
    assert "the reply cannot be used" in told[0][0]


def test_a_model_that_does_not_learn_ends_its_episode():
    with ChatServer(script(completion("I'd rather not."))) as server:
        decision = decide(server)
        assert len(server.asked) == 3
    assert (decision.done, decision.actions) == (True, ())
    assert "there is no JSON object" in decision.note


def test_a_key_that_no_header_can_carry(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-\x07secret")
    with ChatServer(script(CLICK)) as server, pytest.raises(ServiceRefused) as caught:
        decide(server)
    assert "the key OPENAI_API_KEY contains characters" in str(caught.value)
    assert "secret" not in str(caught.value).lower().replace("openai_api_key", "")


# One pace for all workers

WORKER = """
import sys
from evalfleet.agents.base import say_nothing
from evalfleet.agents.llm.endpoint import Endpoint
from evalfleet.agents.llm.governor import Limits
from evalfleet.agents.llm.governor_file import Governor, pace_file
from evalfleet.agents.llm.options import LlmOptions

url, number, count, per_minute = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]) or None
options = LlmOptions(base_url=url, model="stub", secret=None, patience_s=100, requests_per_minute=per_minute)
governor = Governor(pace_file(f"run7.{number}.1", url, "stub"), Limits(requests_per_minute=per_minute))
endpoint = Endpoint(options, None, governor, say_nothing)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(count):
    endpoint.ask([{"role": "user", "content": "hi"}])
"""


def eight_workers(server: ChatServer, tmp_path: Path, count: int, per_minute: float = 0.0) -> None:
    """Let 8 processes ask at the same moment, so often each."""
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, server.url, str(number), str(count), str(per_minute)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )
        for number in range(8)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("\n")
            worker.stdin.flush()
        assert [worker.wait(100) for worker in workers] == [0] * 8
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            for stream in (worker.stdin, worker.stdout):
                if stream is not None:
                    stream.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "told", [pytest.param(True, id="with a wait", marks=pytest.mark.long), pytest.param(False, id="without a word")]
)
def test_a_refusal_of_one_slows_all(tmp_path: Path, told: bool):
    bucket = Bucket(lambda _: GOOD, per_s=10.0, burst=5, told=told)
    with ChatServer(bucket) as server:
        eight_workers(server, tmp_path, count=10)
    assert len(bucket.passed) == 80
    # 8 that know nothing of each other would be refused several times for each answer.
    assert len(bucket.refused) <= 24, f"{len(bucket.refused)} refusals for 80 answers"


@pytest.mark.slow
def test_configured_requests_per_minute_hold_for_all_together(tmp_path: Path):
    with ChatServer(script(GOOD)) as server:
        eight_workers(server, tmp_path, count=4, per_minute=600.0)
    moments = sorted(asked.at for asked in server.asked)
    assert len(moments) == 32
    # 10 a second; a turn that a busy machine delays may come together with the next ones.
    assert moments[-1] - moments[0] >= 3.0
    assert _most_within(moments, 1.0) <= 10 + 5


def _most_within(moments: list[float], span: float) -> int:
    inside: Callable[[float], int] = lambda begin: sum(begin <= at < begin + span for at in moments)  # noqa: E731
    return max(map(inside, moments))
