"""Messages of real programs decide about the built-in signatures; tests/corpus/make.py makes them again."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.core.failures.judge import judge
from evalfleet.core.failures.kinds import RULES
from evalfleet.core.failures.signatures import recognise
from evalfleet.model import Blame, EndRecord, Failure, Kind, Policy, Verdict
from evalfleet.runner.attempt.output import last_lines

CORPUS = Path(__file__).parents[2] / "corpus"
LIBRARIES = {
    "openai",
    "anthropic",
    "google-genai",
    "litellm",
    "httpx",
    "requests",
    "urllib3",
    "urllib",
    "aiohttp",
    "botocore",
}


def messages(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CORPUS / f"{name}.jsonl").read_text("utf-8").splitlines()]


def kind_of(message: dict[str, Any]) -> str | None:
    found = recognise(last_lines(message["stderr"].encode()))
    return str(found.kind) if found else None


def test_the_corpus_is_large_and_wide():
    seen, held_out = messages("seen"), messages("held_out")
    assert len(seen) + len(held_out) >= 120
    assert abs(len(seen) - len(held_out)) < 0.2 * len(seen)
    assert {message["library"].split("-")[0] for message in seen} >= {name.split("-")[0] for name in LIBRARIES}
    assert Counter(message["kind"] for message in held_out).keys() == {"service_failed", "service_refused"}
    assert len(messages("lookalikes")) >= 60


def test_of_the_half_that_nobody_looked_at_nearly_all_is_recognised():
    held_out = messages("held_out")
    right = sum(kind_of(message) == message["kind"] for message in held_out)
    # Only the share: who sees which were missed writes signatures for them, and the half says nothing any more.
    assert right / len(held_out) >= 0.95


@pytest.mark.parametrize("name", ["seen", "system", "cuda"])
def test_the_messages_that_signatures_were_written_for_are_recognised(name: str):
    wrong = {message["id"]: kind_of(message) for message in messages(name) if kind_of(message) != message["kind"]}
    assert wrong == {}


def test_no_lookalike_is_blamed_on_infrastructure():
    blamed = {message["id"]: kind_of(message) for message in messages("lookalikes") if kind_of(message) is not None}
    assert blamed == {}


def test_evidence_is_the_line_of_the_exception_and_never_a_line_of_source():
    for message in messages("seen"):
        found = recognise(last_lines(message["stderr"].encode()))
        assert found is not None
        assert not found.line.startswith((" ", "raise ", "File "))


def test_through_the_judge_each_is_a_failure_that_is_not_the_tasks_even_where_an_exit_is_a_verdict():
    for message in messages("seen"):
        end = EndRecord(cause="exited", exit_code=message["status"], tail=last_lines(message["stderr"].encode()))
        judged = judge(end, Policy(exit_is_verdict=True))
        assert isinstance(judged, Failure)
        assert (judged.kind, judged.blame, judged.consumes) == (Kind(message["kind"]), Blame.POOL, False)


def test_lookalikes_are_scored():
    for message in messages("lookalikes"):
        end = EndRecord(cause="exited", exit_code=message["status"], tail=last_lines(message["stderr"].encode()))
        assert isinstance(judge(end, Policy(exit_is_verdict=True)), Verdict)
        judged = judge(end, Policy())
        assert isinstance(judged, Failure)
        assert RULES[judged.kind].blame is Blame.TASK


def test_what_is_said_after_the_end_does_not_hide_it():
    later = """\
aiohttp.client_exceptions.ClientResponseError: 429, message='Too Many Requests', url='http://x/v1'
2026-11-16 06:21:00,552 ERROR asyncio: Unclosed client session
client_session: <aiohttp.client.ClientSession object at 0x7f58ff5383d0>"""
    found = recognise(f'Traceback (most recent call last):\n  File "a.py", line 3, in f\n{later}')
    assert found is not None
    assert (found.kind, found.line) == (Kind.SERVICE_FAILED, later.splitlines()[0])


PIECES = [
    "Traceback (most recent call last):", '  File "x.py", line 3, in f', "    raise x", "KeyError: 'x'", "Error: ", "(", "[Errno 11",
    "openai.RateLimitError: Error code: 429 - {", "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:", "HTTPConnectionPool(host='x', port=1): ", "    at f (x:1)",
    "litellm.APIError: ", "\x1b[31m", "\r", "", "</html>", "<title>502", "docker: ", "  | ", "Code: ", "dial tcp ", "curl: (7) ",
]  # fmt: skip


@given(
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=40)), max_size=60), st.sampled_from(["\n", " ", ""])
)
def test_any_text_is_read(pieces: list[str], between: str):
    text = between.join(pieces)
    found = recognise(text)
    assert found is None or found.kind in RULES
    judge(EndRecord(cause="exited", exit_code=1, tail=text), Policy())


@pytest.mark.parametrize(
    "piece", ["docker: ", "(", "a" * 50, "Error response from daemon: ", "1.", "model ", "HTTPConnectionPool(host="]
)
def test_long_lines_take_no_time(piece: str):
    begun = time.process_time()
    recognise("\n".join([(piece * 5000)[:20_000]] * 40))
    assert time.process_time() - begun < 2.0
