"""The model of an attempt: run.py asks it through a proxy of ours, which stays on this side of the container.

The container gets a token that is worth nothing elsewhere. What the endpoint refuses ends the attempt at once with the provider's own
words: WAA itself would ask 30 times, for about 12 minutes, and tell nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evalfleet.agents.llm.http_post import NoAnswer, post
from evalfleet.agents.llm.options import LlmOptions, options_of
from evalfleet.agents.llm.replies import Reply, Sense, understand
from evalfleet.benchmarks.waa.recorder import Recorder
from evalfleet.errors import AgentFailed, EvalfleetError, ServiceFailed, ServiceRefused
from evalfleet.proxy.server import Call, Proxy, Upstream

_REJECTIONS = 3  # of a request in a row: WAA would send the same one 30 times
_ASK_S = 40.0
# A request that no task's could pass: the model does not take what the agent sends.
_UNFIT = re.compile(r"unsupported_(?:parameter|value)|[Uu]nsupported (?:parameter|value)")


class Model:
    """The endpoint's proxy for one attempt, and what its answers mean for the attempt.

    Args:
        options: of the payload.
        key: the endpoint's; None: it needs none.
        recorder: hears of each call.
    """

    def __init__(self, options: LlmOptions, key: str | None, recorder: Recorder) -> None:
        self._options = options
        self._key = key
        self._recorder = recorder
        self._stop: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._failing_since: float | None = None
        self._rejections = 0
        self.token = f"evalfleet-{secrets.token_hex(16)}"
        self.trouble: EvalfleetError | None = None
        upstream = Upstream(base_url=options.base_url, key=key, timeout_s=options.timeout_s)
        self.proxy = Proxy(upstream, self.token, self._hear)

    def on_trouble(self, stop: Callable[[], None]) -> None:
        """Let `stop` be called once, from another thread, when the attempt cannot go on; `trouble` says why."""
        self._stop = stop

    def _hear(self, call: Call) -> None:
        reply, options = call.reply, self._options
        if reply.sense is Sense.COMPLETION:
            note = f"{options.model} answered in {call.took_s:.1f} s"
            self._recorder.spent(
                note, tokens=reply.tokens, cost_usd=options.cost_usd(reply.tokens_in, reply.tokens_out)
            )
        else:
            self._recorder.note(f"{options.model}: {self._words(reply)}")  # run.py asks again: that is no stall
        with self._lock:
            trouble = self._judge(reply)
            if trouble is None or self.trouble is not None:
                return
            self.trouble = trouble
        self._stop()

    def _judge(self, reply: Reply) -> EvalfleetError | None:
        now = time.monotonic()
        if reply.sense is Sense.COMPLETION:
            self._failing_since, self._rejections = None, 0
            return None
        if reply.sense is Sense.WRONG:
            self._rejections += 1
            return None if self._rejections < _REJECTIONS and not _UNFIT.search(reply.text) else self._refusal(reply)
        if reply.sense is Sense.CLOSED:
            return self._refusal(reply)
        begun = self._failing_since = self._failing_since or now
        if now - begun < self._options.patience_s:
            return None
        return ServiceFailed(f"{self._where}: failing for {now - begun:.0f} s, the last time with {self._words(reply)}")

    def _refusal(self, reply: Reply) -> EvalfleetError:
        return refusal(self._options, reply, self._words(reply))

    @property
    def _where(self) -> str:
        return f"{self._options.base_url}, model {self._options.model}"

    def _words(self, reply: Reply) -> str:
        return reply.text.replace(self._key, "…") if self._key else reply.text


def refusal(options: LlmOptions, reply: Reply, words: str) -> EvalfleetError:
    """The error that a refusal is: of the request itself it is the agent's, else only a person can change it."""
    where = f"{options.base_url}, model {options.model}"
    if reply.sense is Sense.WRONG and not _UNFIT.search(reply.text):
        return AgentFailed(f"{where}: the request was rejected: {words}")
    return ServiceRefused(f"{where}: {words}; check the key {options.secret or '(none)'}, the model and the address")


def ask_once(options: LlmOptions, key: str | None, marks: Path, attempt: str) -> None:
    """Ask the model for one word before the first task of a run, as the agent will ask it.

    Args:
        options: of the payload.
        key: the endpoint's.
        marks: a folder of this user's, where is noted which endpoints have answered.
        attempt: its id, `run.task.number`.

    Raises:
        ServiceRefused: it refuses the key, the model or the request.
    """
    run = attempt.partition(".")[0]
    mark = (
        marks / f"asked-{hashlib.sha256(f'{run} {options.base_url} {options.model} {key}'.encode()).hexdigest()[:24]}"
    )
    if mark.exists():
        return
    body = {
        "model": options.model,
        "messages": [{"role": "user", "content": "Say yes."}],
        "max_tokens": 16,
        "temperature": 1.0,
    }
    headers = {"Content-Type": "application/json", "User-Agent": "evalfleet"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    try:
        response = post(
            f"{options.base_url}/chat/completions",
            json.dumps(body).encode(),
            headers,
            timeout_s=min(_ASK_S, options.timeout_s),
        )
        reply = understand(response, datetime.now(UTC))
    except NoAnswer as problem:
        reply = Reply(sense=Sense.CLOSED if problem.lasting else Sense.BUSY, text=str(problem))
    words = reply.text.replace(key, "…") if key else reply.text
    if reply.sense is Sense.CLOSED or reply.sense is Sense.WRONG:
        raise ServiceRefused(str(refusal(options, Reply(sense=Sense.CLOSED), words)))
    if reply.sense is Sense.BUSY:
        raise ServiceFailed(f"{options.base_url}, model {options.model}: {words}")
    marks.mkdir(mode=0o700, exist_ok=True)
    mark.touch()


def of_payload(payload: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[LlmOptions, str | None] | None:
    """The endpoint of a task and its key; None where the agent asks its model by itself."""
    given = payload.get("model_options")
    if not given:
        return None
    options = options_of(given)
    return options, environ.get(options.secret, "").strip() or None if options.secret else None


class Carrier:
    """Carries the connections that come out of the container to the proxy, and its bytes back.

    Args:
        port: of the proxy, on loopback.
        send: gives a line to the program inside.
    """

    def __init__(self, port: int, send: Callable[[dict[str, Any]], None]) -> None:
        self._port = port
        self._send = send
        self._links: dict[int, socket.socket] = {}

    def deliver(self, number: int, data: str) -> None:
        """Pass on what came; nothing means that the caller is done."""
        link = self._links.get(number)
        if link is None:
            link = self._links[number] = socket.create_connection(("127.0.0.1", self._port), 10.0)
            link.settimeout(None)
            threading.Thread(target=self._read, args=(number, link), daemon=True).start()
        with suppress(OSError):
            if data:
                link.sendall(base64.b64decode(data))
            else:
                link.shutdown(socket.SHUT_WR)

    def _read(self, number: int, link: socket.socket) -> None:
        data = b"\0"
        while data:
            try:
                data = link.recv(1 << 16)
            except OSError:
                data = b""
            self._send({"link": number, "data": base64.b64encode(data).decode()})

    def close(self) -> None:
        for link in self._links.values():
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()
