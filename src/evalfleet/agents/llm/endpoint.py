"""A client for a model behind an OpenAI-compatible chat endpoint, with rate limiting and retries."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any, NoReturn

from msgspec import Struct

from evalfleet.agents.base import Tell
from evalfleet.agents.llm.governor_file import Governor
from evalfleet.agents.llm.http_post import NoAnswer, post
from evalfleet.agents.llm.options import LlmOptions
from evalfleet.agents.llm.replies import Reply, Sense, understand
from evalfleet.errors import AgentFailed, ServiceFailed, ServiceRefused

TRIES = 6  # of a call that finds the endpoint broken; with the pauses between them about half a minute
_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 16.0
_TELL_S = 10.0


class Answer(Struct, frozen=True, kw_only=True):
    """What the model wrote, the tokens it used, and how long the request waited before."""

    text: str
    tokens_in: int
    tokens_out: int
    waited_s: float


class Endpoint:
    """Asks one model for one attempt. What it waits, over all its calls, is bounded by the options' patience."""

    def __init__(
        self,
        options: LlmOptions,
        key: str | None,
        governor: Governor,
        tell: Tell,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        rng: Random | None = None,
    ) -> None:
        self._options = options
        self._key = key
        self._governor = governor
        self._tell = tell
        self._clock = clock
        self._sleep = sleep
        self._rng = rng or Random()
        self._waited_s = 0.0

    def ask(self, messages: list[dict[str, Any]]) -> Answer:
        """Return the model's next message.

        Raises:
            ServiceFailed: it cannot be reached, or stayed busy for longer than `patience`.
            ServiceRefused: it refuses key, model or address.
            AgentFailed: it rejects the request itself: too long, no images.
        """
        body = self._body(messages)
        begun, broken = self._clock(), 0
        while True:
            turn = self._wait_for_turn(begun)
            sent = self._clock()
            reply = self._post(body)
            if reply.sense is Sense.COMPLETION:
                self._governor.answered(turn, reply.tokens)
                self._waited_s += sent - begun
                return Answer(
                    text=reply.text,
                    tokens_in=reply.tokens_in,
                    tokens_out=reply.tokens_out,
                    waited_s=sent - begun,
                )
            if reply.sense is Sense.LIMITED:
                self._governor.refused(turn, reply.wait_s)
                continue
            broken += 1
            self._give_up_or_pause(reply, begun, broken)

    def _body(self, messages: list[dict[str, Any]]) -> bytes:
        options = self._options
        chosen = {"temperature": options.temperature, "max_tokens": options.max_tokens}
        given = {name: value for name, value in chosen.items() if value is not None}
        return json.dumps({"model": options.model, "messages": messages, **given, **options.body}).encode()

    def _post(self, body: bytes) -> Reply:
        """Send one request; a request without an answer counts as a failure of the endpoint."""
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "evalfleet"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"

        def tick() -> None:
            self._tell(f"waiting for {self._options.model}")

        url = f"{self._options.base_url}/chat/completions"
        try:
            response = post(url, body, headers, timeout_s=self._options.timeout_s, tick=tick)
        except NoAnswer as problem:
            return Reply(sense=Sense.CLOSED if problem.lasting else Sense.BUSY, text=str(problem))
        return understand(response, datetime.now(UTC))

    def _give_up_or_pause(self, reply: Reply, begun: float, broken: int) -> None:
        where = f"{self._options.base_url}, model {self._options.model}"
        said = reply.text.replace(self._key, "…") if self._key else reply.text
        if reply.sense is Sense.WRONG:
            raise AgentFailed(f"{where}: the request was rejected: {said}")
        if reply.sense is Sense.CLOSED:
            raise ServiceRefused(f"{where}: {said}; check the key {self._options.secret}, the model and the address")
        if broken >= TRIES:
            raise ServiceFailed(f"{where}: failed {broken} times, the last time with {said}")
        pause = min(_LONGEST_PAUSE_S, _PAUSE_S * 2 ** (broken - 1)) * (0.5 + self._rng.random())
        if reply.wait_s is not None:
            self._governor.pause(reply.wait_s)  # it is for all who ask there
            pause = 0.0
        self._wait_until(self._clock() + pause, begun, said)

    def _wait_for_turn(self, begun: float) -> Any:
        """Return a turn whose moment has come."""
        while True:
            turn = self._governor.take_turn()
            self._wait_until(turn.at, begun, "the rate limit")
            if self._governor.holds(turn):
                return turn

    def _wait_until(self, moment: float, begun: float, why: str) -> None:
        """Sleep, and report it from time to time: silence would count as a stall."""
        if moment - begun + self._waited_s > self._options.patience_s:
            self._lose_patience(why)
        while (left := moment - self._clock()) > 0:
            if left >= 1.0:
                self._tell(f"waiting {left:.0f} s for {self._options.model}: {why}")
            self._sleep(min(left, _TELL_S))

    def _lose_patience(self, why: str) -> NoReturn:
        options = self._options
        raise ServiceFailed(
            f"{options.base_url}, model {options.model}: busy beyond the patience of {options.patience_s:g} s: {why}; "
            "use fewer workers, or set llm.patience or llm.requests_per_minute"
        )
