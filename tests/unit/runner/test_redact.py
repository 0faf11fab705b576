"""The streaming redactor equals the redaction of the whole."""

from __future__ import annotations

import json
from itertools import pairwise
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evalfleet.runner.redact import RedactedStream, Redactor

SMALL = st.text(alphabet='ab"/é %', min_size=4, max_size=9)


@st.composite
def secrets_and_chunks(draw: st.DrawFn) -> tuple[dict[str, str], list[bytes]]:
    values = draw(st.lists(SMALL, min_size=1, max_size=3))
    secrets = {f"S{place}": value for place, value in enumerate(values)}
    pieces = draw(st.lists(st.one_of(st.sampled_from(values), st.text(alphabet='ab"/é %', max_size=6)), max_size=8))
    whole = "".join(pieces).encode()
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    edges = [0, *cuts, len(whole)]
    return secrets, [whole[start:end] for start, end in pairwise(edges)]


@given(secrets_and_chunks())
def test_chunks_do_not_matter(case: tuple[dict[str, str], list[bytes]]) -> None:
    secrets, chunks = case
    redactor = Redactor(secrets)
    stream = RedactedStream(redactor)
    streamed = b"".join([*(stream.feed(chunk) for chunk in chunks), stream.flush()])
    assert streamed == redactor.clean(b"".join(chunks))


@given(secrets_and_chunks())
def test_nothing_is_left(case: tuple[dict[str, str], list[bytes]]) -> None:
    secrets, chunks = case
    redactor = Redactor(secrets)
    clean = redactor.clean(b"".join(chunks))
    for name in secrets:
        clean = clean.replace(b"[secret %s]" % name.encode(), b"\0")
    assert not redactor.finds(clean)


def test_holds_back_only_what_may_become_a_secret() -> None:
    stream = RedactedStream(Redactor({"KEY": "hunter22"}))
    assert stream.feed(b"one line\nhun") == b"one line\n"
    assert stream.feed(b"gry\n") == b"hungry\n"
    assert stream.feed(b"hunter2") == b""
    assert stream.feed(b"2") == b"[secret KEY]"


@pytest.mark.parametrize(
    "form",
    [
        lambda value: value,
        lambda value: json.dumps(value)[1:-1],
        lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
        lambda value: quote(value, safe=""),
        quote,
        lambda value: quote(value, safe="").lower().replace("p4", "P4"),
    ],
)
def test_usual_forms(form) -> None:
    secret = 'P4 s/"é"'
    assert Redactor({"KEY": secret}).clean(form(secret).encode()) == b"[secret KEY]"


def test_short_values_are_left_alone() -> None:
    redactor = Redactor({"KEY": "abc"})
    assert not redactor
    assert redactor.clean(b"abc") == b"abc"


def test_the_longer_secret_wins() -> None:
    redactor = Redactor({"SHORT": "abcd", "LONG": "abcdefgh"})
    assert redactor.clean(b"abcdefgh abcd") == b"[secret LONG] [secret SHORT]"


def test_json_values() -> None:
    redactor = Redactor({"KEY": "hunter22", "PIN": "12345"})
    value = {"a hunter22": ["hunter22", {"b": 12345, "c": 1.5, "d": True, "e": None}]}
    assert redactor.value(value) == {
        "a [secret KEY]": ["[secret KEY]", {"b": "[secret PIN]", "c": 1.5, "d": True, "e": None}]
    }


LINES = st.sampled_from(["a" * 16, "ab" * 9, "b" * 20, "short", "aaaa"])


@example(["a" * 16, "a" * 16], ["a" * 16], [])
@given(
    st.lists(LINES, min_size=2, max_size=4),
    st.lists(st.one_of(LINES, st.sampled_from(["\n", "\\n", "a", "b"])), max_size=8),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_lines_of_a_secret_are_found_across_chunks(secret: list[str], pieces: list[str], cuts: list[int]) -> None:
    redactor = Redactor({"PEM": "\n".join(secret)})
    whole = "".join([*pieces, "\n".join(secret), *pieces]).encode()
    stream = RedactedStream(redactor)
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    streamed = b"".join([*(stream.feed(whole[start:end]) for start, end in pairwise(edges)), stream.flush()])
    assert streamed == redactor.clean(whole)
    left = streamed.replace(b"[secret PEM]", b"\0")
    assert not any(line.encode() in left for line in secret if len(line) >= 16)
