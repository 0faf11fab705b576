"""The DevTools client against a browser that is only a pair of pipes, and may misbehave."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evalfleet.environments.browser import keys
from evalfleet.environments.browser.cdp import Connection
from evalfleet.environments.browser.environment import Size, find_chromium, launched
from evalfleet.errors import BrowserError, BrowserGone, BrowserRefused, BrowserTimeout, InputError


class FakeBrowser:
    """The other end: `answer` gets each message and returns what to write, byte for byte."""

    def __init__(self) -> None:
        self.read_fd, ours_out = os.pipe()
        ours_in, self.write_fd = os.pipe()
        self.connection = Connection(ours_in, ours_out, timeout_s=10)
        self.heard: list[dict[str, Any]] = []
        self._thread: threading.Thread | None = None

    def serve(self, answer: Callable[[dict[str, Any]], bytes]) -> None:
        def loop() -> None:
            received = b""
            while block := os.read(self.read_fd, 1 << 16):
                *messages, received = (received + block).split(b"\0")
                for text in messages:
                    self.heard.append(json.loads(text))
                    os.write(self.write_fd, answer(self.heard[-1]))

        self._thread = threading.Thread(target=loop)
        self._thread.start()

    def hang_up(self) -> None:
        os.close(self.write_fd)
        self.write_fd = -1

    def close(self) -> None:
        self.connection.close()
        if self._thread:
            self._thread.join(10)
        for fd in (self.read_fd, self.write_fd):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def browser() -> Iterator[FakeBrowser]:
    fake = FakeBrowser()
    yield fake
    fake.close()


def said(**message: Any) -> bytes:
    return json.dumps(message).encode() + b"\0"


def test_a_call_returns_its_own_result(browser: FakeBrowser):
    browser.serve(lambda m: said(id=99, result={"no": 1}) + said(id=m["id"], result={"echo": m["params"]}))
    assert browser.connection.call("A.b", {"x": 1}, session="s") == {"echo": {"x": 1}}
    assert browser.connection.call("A.b") == {"echo": {}}
    assert browser.heard[0] == {"id": 1, "method": "A.b", "params": {"x": 1}, "sessionId": "s"}
    assert "sessionId" not in browser.heard[1]


def test_a_message_may_come_in_pieces_and_be_large(browser: FakeBrowser):
    browser.serve(lambda m: said(id=m["id"], result={"data": "x" * 3_000_000}))
    assert len(browser.connection.call("Page.captureScreenshot")["data"]) == 3_000_000


def test_events_go_to_their_handlers_and_a_handler_may_post(browser: FakeBrowser):
    seen: list[Any] = []

    def dialog(params: dict[str, Any]) -> None:
        seen.append(params)
        browser.connection.post("Page.handle", {"accept": True})

    def answer(message: dict[str, Any]) -> bytes:
        # The first call is stuck until the dialog that it brought up is answered.
        if message["method"] == "Page.handle":
            return said(id=message["id"], result={}) + said(id=1, result={"value": 7})
        return said(method="Other.event", params={}) + said(method="Page.dialog", params={"message": "?"})

    browser.connection.on("Page.dialog", dialog)
    browser.serve(answer)
    assert browser.connection.call("Runtime.evaluate") == {"value": 7}
    assert seen == [{"message": "?"}]


def test_waiting_for_an_event(browser: FakeBrowser):
    loaded: list[bool] = []
    browser.connection.on("Page.loaded", lambda _: loaded.append(True))
    os.write(browser.write_fd, said(method="Page.loaded", params={}))
    browser.connection.wait(lambda: bool(loaded), "the page")
    with pytest.raises(BrowserTimeout, match=r"waited 0.01 s for the moon"):
        browser.connection.wait(lambda: False, "the moon", timeout_s=0.01)


def test_an_error_is_told_with_the_method(browser: FakeBrowser):
    browser.serve(lambda m: said(id=m["id"], error={"code": -32601, "message": "'A.b' wasn't found"}))
    with pytest.raises(BrowserRefused, match=r"A\.b: 'A\.b' wasn't found"):
        browser.connection.call("A.b")


def test_silence_is_a_timeout_and_a_late_answer_is_nobodys(browser: FakeBrowser):
    with pytest.raises(BrowserTimeout, match=r"Slow\.call was not answered within 0\.01 s"):
        browser.connection.call("Slow.call", timeout_s=0.01)
    os.write(browser.write_fd, said(id=1, result={"late": True}) + said(id=2, result={"own": True}))
    assert browser.connection.call("Next.call") == {"own": True}


def test_a_browser_that_reads_nothing_does_not_hang_us(browser: FakeBrowser):
    with pytest.raises(BrowserTimeout, match="does not read"):
        browser.connection.call("Page.big", {"data": "x" * 1_000_000}, timeout_s=0.05)


def test_the_end_of_the_browser_is_told(browser: FakeBrowser):
    browser.hang_up()
    with pytest.raises(BrowserGone):
        browser.connection.call("A.b")
    os.close(browser.read_fd)
    browser.read_fd = -1
    with pytest.raises(BrowserGone):
        browser.connection.call("A.b")


def test_what_is_not_json_is_an_error(browser: FakeBrowser):
    os.write(browser.write_fd, b"oops\0")
    with pytest.raises(BrowserError, match="invalid JSON"):
        browser.connection.call("A.b")


def test_keys():
    down, up = keys.events("Enter")
    assert (down["type"], down["key"], down["text"], up["type"]) == ("keyDown", "Enter", "\r", "keyUp")
    assert keys.events("é")[0]["text"] == "é"
    command = keys.events("a", ("Control",))[0]
    assert command["modifiers"] == 2
    assert "text" not in command
    with pytest.raises(InputError, match="no key 'Return'"):
        keys.events("Return")
    with pytest.raises(InputError, match="not a modifier"):
        keys.events("a", ("Ctrl",))


def test_a_program_that_is_no_browser(tmp_path: Path):
    assert find_chromium("/no/such/chromium") is None
    with (
        pytest.raises(BrowserGone, match=r"/bin/false did not start"),
        launched("/bin/false", tmp_path, Size(width=1, height=1)),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
