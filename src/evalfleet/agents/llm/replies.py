"""The meaning of a chat endpoint's response. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, cast

from msgspec import Struct

from evalfleet.agents.llm.http_post import Response

_SAID = 200  # most characters of an endpoint's own words
_BUSY = frozenset({408, 409, 425, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
_CLOSED = frozenset({401, 402, 403, 404, 405, 407})
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RESETS = ("requests", "tokens")


class Sense(StrEnum):
    """What to do about an answer."""

    COMPLETION = "completion"
    LIMITED = "limited"  # too many requests: all wait
    BUSY = "busy"  # ask again
    CLOSED = "closed"  # no asking helps: key, model, address or money
    WRONG = "wrong"  # it is what was asked that is wrong


class Reply(Struct, frozen=True, kw_only=True):
    """An answer, understood."""

    sense: Sense
    text: str = ""  # of a completion: what the model wrote; else what the endpoint said
    tokens_in: int = 0
    tokens_out: int = 0
    wait_s: float | None = None  # what the endpoint asks for

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out


def understand(response: Response, now: datetime) -> Reply:
    """Say what an answer means.

    Args:
        response: from the endpoint.
        now: for waits that are told as a date.
    """
    content = _json(response.body)
    if response.status == 200:
        return _completion(response, content)
    said = _said(response, content)
    wait_s = wait_of(response.headers, now)
    if response.status == 429:
        spent = "insufficient_quota" in said or "insufficient_quota" in str(content)[:2000]
        return Reply(sense=Sense.CLOSED if spent else Sense.LIMITED, text=said, wait_s=wait_s)
    if response.status in _BUSY or response.status >= 500:
        return Reply(sense=Sense.BUSY, text=said, wait_s=wait_s)
    closed = response.status in _CLOSED or response.status < 400
    return Reply(sense=Sense.CLOSED if closed else Sense.WRONG, text=said)


def wait_of(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return how long the endpoint asks to wait: by `Retry-After`, or by the limit that is used up."""
    if milliseconds := _number(headers.get("retry-after-ms")):
        return milliseconds / 1000
    if after := headers.get("retry-after"):
        return _wait(after, now)
    waits = [
        _wait(headers.get(f"x-ratelimit-reset-{what}", ""), now)
        for what in _RESETS
        if _number(headers.get(f"x-ratelimit-remaining-{what}")) == 0
    ]
    return max((wait for wait in waits if wait is not None), default=None)


def _wait(text: str, now: datetime) -> float | None:
    """Read seconds, a span such as "6m0.5s", or a date."""
    text = text.strip()
    if (seconds := _number(text)) is not None:
        return seconds
    parts = _SPAN.findall(text)
    if parts and "".join(map("".join, parts)) == text:
        return sum(float(number) * _UNIT_S[unit] for number, unit in parts)
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (date - now).total_seconds())


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", text.strip()) else None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _completion(response: Response, content: Any) -> Reply:
    """A completion; anything else with status 200 is an endpoint, or a proxy before it, that is not well."""
    message = _at(content, "choices", 0, "message")
    if not isinstance(message, dict):
        return Reply(sense=Sense.BUSY, text=f"not a chat completion: {_said(response, content)}")
    spoken = cast("dict[str, Any]", message)
    text = spoken.get("content")
    if isinstance(text, list):  # of parts
        text = "".join(str(_at(part, "text") or "") for part in cast("list[Any]", text))
    return Reply(
        sense=Sense.COMPLETION,
        text=text if isinstance(text, str) else str(spoken.get("refusal") or ""),
        tokens_in=_count(_at(content, "usage", "prompt_tokens")),
        tokens_out=_count(_at(content, "usage", "completion_tokens")),
    )


def _said(response: Response, content: Any) -> str:
    """Return the endpoint's own words, on one line."""
    message = _at(content, "error", "message") or _at(content, "error") or _at(content, "message")
    words = message if isinstance(message, str) else ""
    if not words and content is None:
        kind = response.headers.get("content-type", "").partition(";")[0]
        words = f"{kind or 'no type'}: {response.body[:_SAID].decode(errors='replace')}"
    code = _at(content, "error", "code")
    words = f"{words} ({code})" if isinstance(code, str) and code not in words else words
    line = " ".join("".join(c if c.isprintable() else " " for c in words).split())
    return f"status {response.status}" + (f": {line[:_SAID]}" if line else "")


def _at(content: Any, *path: str | int) -> Any:
    for step in path:
        if isinstance(step, int):
            rows = cast("list[Any]", content) if isinstance(content, list) else []
            content = rows[step] if step < len(rows) else None
        else:
            content = cast("dict[str, Any]", content).get(step) if isinstance(content, dict) else None
    return content


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
