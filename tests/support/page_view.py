"""The page in a real browser: opened at a real server, read, clicked and typed into. It notes what it must never do."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.fleet import wait_for
from tests.support.web_server import Served

from evalfleet.environments.base import Size
from evalfleet.environments.browser import environment
from evalfleet.environments.browser.page import Page
from evalfleet.web.app import STATIC

CHROMIUM = environment.find_chromium()
BUILT = (STATIC / "index.html").is_file()
MISSING = "this machine has no Chromium, or the page is not built: see scripts/browser and scripts/page"
WIDE, PHONE = Size(width=1280, height=900), Size(width=375, height=800)
# The browser of the environments reaches nothing; this one reaches our server, and nothing else.
_FLAGS = tuple(flag.replace("~NOTFOUND", "~NOTFOUND, EXCLUDE 127.0.0.1") for flag in environment._FLAGS)

# What a person can act on must have a name that a screen reader says. A browser puts off the layout of what is outside the window, or
# was put in since the last frame (content-visibility), and has no innerText of it: for this look all is laid out.
UNNAMED = """(() => {
    const laid = new CSSStyleSheet();
    laid.replaceSync("* { content-visibility: visible !important }");
    document.adoptedStyleSheets.push(laid);
    try {
        return [...document.querySelectorAll("main :is(a, button, input, select, textarea), header :is(a, button)")].filter((one) =>
            !(one.innerText ?? "").trim() && !one.getAttribute("aria-label") && !one.labels?.length && !one.querySelector("img[alt]"))
            .map((one) => one.outerHTML.slice(0, 120));
    } finally {
        document.adoptedStyleSheets.pop();
    }
})()"""


@dataclass
class View:
    """One window."""

    page: Page
    base: str
    shots: Path
    asked: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        connection = self.page._connection
        connection.on("Network.requestWillBeSent", lambda told: self.asked.append(told["request"]["url"]))
        connection.on(
            "Network.webSocketCreated", lambda told: self.asked.append(told["url"].replace("ws://", "http://"))
        )
        connection.on("Runtime.exceptionThrown", lambda told: self.errors.append(json.dumps(told)))
        connection.on("Log.entryAdded", lambda told: self._log(told["entry"]))
        for domain in ("Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.page._call(method, params)

    def open(self, path: str) -> None:
        self.page.open(self.base + path)

    def go(self, path: str) -> None:
        """Follow a link inside the page, which loads nothing anew."""
        self.js(f"""(() => {{ const link = document.createElement("a"); link.href = {json.dumps(path)};
            document.querySelector("main").append(link); link.click(); link.remove(); }})()""")

    def js(self, expression: str) -> Any:
        return self.page.evaluate(expression)

    @property
    def text(self) -> str:
        return self.js("document.body.innerText")

    def sees(self, *words: str) -> None:
        wait_for(lambda: all(word in self.text for word in words), f"{words} on the page: {self.text[:1500]!r}")

    def lacks(self, word: str) -> None:
        wait_for(lambda: word not in self.text, f"{word!r} to leave the page")

    def until(self, expression: str, what: str) -> None:
        wait_for(lambda: self.js(f"!!({expression})"), what)

    def click(self, name: str, within: str = "body") -> None:
        """A button or link, by what it says."""
        find = f"""[...document.querySelectorAll({json.dumps(within + " :is(button, a)")})].find(
            (one) => (one.getAttribute("aria-label") ?? one.innerText).trim().startsWith({json.dumps(name)}) && !one.disabled)"""
        self.until(f"!!{find}", f"a button {name!r}")
        self.js(f"{find}.click()")

    def fill(self, **fields: str) -> None:
        """Write into fields of a form or a question, by their names, as typing does."""
        for name, value in fields.items():
            find = f"document.querySelector('[name={name}]')"
            self.until(find, f"a field {name!r}")
            self.js(f"""(() => {{ const one = {find}; one.focus(); one.value = {json.dumps(value)};
                for (const type of ["input", "change"]) one.dispatchEvent(new Event(type, {{bubbles: true}})); }})()""")

    def confirm(self, button: str, question: str, yes: str, **fields: str) -> None:
        """Press a button of the page that asks first, fill in what it asks for, and say yes; it must be taken."""
        self.click(button, within="main")
        self.until(f"document.querySelector('dialog[open]')?.innerText.includes({json.dumps(question)})", question)
        self.fill(**fields)
        self.click(yes, within="dialog")
        self.until("!document.querySelector('dialog[open]')", f"{question!r} to be answered")

    def key(self, name: str, text: str = "") -> None:
        codes = {"ArrowRight": 39, "ArrowLeft": 37, "Enter": 13, "Tab": 9, "End": 35}
        params: dict[str, Any] = {"key": name, "code": name, "windowsVirtualKeyCode": codes.get(name, 0)}
        if text:
            params["text"] = text
        self.call("Input.dispatchKeyEvent", type="keyDown", **params)
        self.call("Input.dispatchKeyEvent", type="keyUp", **params)

    def wear(self, size: Size, scheme: str = "light") -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=size.width,
            height=size.height,
            deviceScaleFactor=1,
            mobile=size.width < 600,
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def shoot(self, name: str) -> None:
        """Keep a picture of the whole page, for people."""
        self.js("scrollTo(0, 0)")
        height = min(2600, max(500, self.js("document.documentElement.scrollHeight")))
        shot = self.call(
            "Page.captureScreenshot",
            clip={"x": 0, "y": 0, "width": self.js("innerWidth"), "height": height, "scale": 1},
            captureBeyondViewport=True,
        )
        (self.shots / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))

    def look_at(self, pages: dict[str, str]) -> None:
        """Go through pages on a screen and on a phone, light and dark; keep pictures; nothing is wider than the window."""
        for size in (WIDE, PHONE):
            for scheme in ("light", "dark"):
                self.wear(size, scheme)
                for name, path in pages.items():
                    self.go(path)
                    here = f"location.pathname + location.search === {json.dumps(path)}"
                    self.until(f"{here} && document.querySelector('main h1')", name)
                    self.until("document.querySelector('main .card') && !document.querySelector('main .wait')", name)
                    self.shoot(f"{name}-{size.width}-{scheme}")
                    wide = self.js("document.documentElement.scrollWidth")
                    assert wide <= size.width, f"{name} is {wide} wide on a window of {size.width}"
                    unnamed = self.js(UNNAMED)
                    assert not unnamed, f"{name}: without a name for those who cannot see: {unnamed}"
        self.wear(WIDE)

    @property
    def foreign(self) -> list[str]:
        return [url for url in self.asked if not url.startswith((self.base, "data:", "blob:"))]

    def _log(self, entry: dict[str, Any]) -> None:
        # A server that is away or refuses makes the browser say so; that is what some tests want.
        if entry["level"] == "error" and entry["source"] != "network":
            self.errors.append(f"{entry['source']}: {entry['text']}")


def type_in(view: View, text: str) -> None:
    """Small letters and Enter, as a keyboard sends them."""
    for letter in text:
        code = "Enter" if letter == "\r" else f"Key{letter.upper()}"
        key = "Enter" if letter == "\r" else letter
        for kind in ("keyDown", "keyUp"):
            view.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=ord(letter.upper())
            )


@contextmanager
def viewed(server: Served, folder: Path, token: str | None = "", size: Size = WIDE) -> Iterator[View]:
    """Open the page as a person does, by the address that was printed. Token "" is the server's own; None: none."""
    shots = Path(os.environ.get("EVALFLEET_PAGE_SHOTS", folder / "shots"))
    shots.mkdir(parents=True, exist_ok=True)
    assert CHROMIUM is not None
    with (
        mock.patch.object(environment, "_FLAGS", _FLAGS),
        environment.launched(CHROMIUM, folder / "view", size) as window,
    ):
        view = View(window.page, f"http://127.0.0.1:{server.port}", shots)
        view.open("/" if token is None else f"/?token={token or server.token}")
        yield view
        assert not view.errors, "the page threw, or broke its content policy"
        assert not view.foreign, "a request left the server's own origin"
