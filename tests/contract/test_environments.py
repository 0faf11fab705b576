"""The environments, each by itself and behind a guest, held to the same promises."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from evalfleet.actions import Press
from evalfleet.environments.base import Environment, Size
from evalfleet.environments.browser import environment as browser
from evalfleet.environments.desktop import environment as desktop
from evalfleet.environments.desktop import sandbox
from evalfleet.environments.desktop.sandbox import Mode
from evalfleet.environments.guest.client import GuestClient
from evalfleet.environments.guest.server import Guest
from evalfleet.testing.environment_contract import EnvironmentContract, mark, wait_until

__all__ = ["mark"]

CHROMIUM = browser.find_chromium()
LACKING = [need for need in desktop.requirements({**desktop.PROGRAMS, "mousepad": "mousepad"}) if not need.present]

pytestmark = pytest.mark.timeout(300)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason=f"there is no Chromium: {browser.INSTALL}")
needs_desktop = pytest.mark.skipif(bool(LACKING), reason="; ".join(f"no {one.what}: {one.install}" for one in LACKING))

HOLDER = """
import sys
from pathlib import Path
from evalfleet.environments.browser import environment as browser
from evalfleet.environments.desktop import environment as desktop
from evalfleet.environments.base import Size
from evalfleet.environments.desktop.sandbox import Mode
with {opened}:
    print("ready", flush=True)
    sys.stdin.read()
"""

PAGE = """<!DOCTYPE html><textarea id=t style="position:fixed;inset:0;width:100%;height:100%"></textarea>
<script>
const t = document.getElementById('t');
t.addEventListener('keydown', event => {
  if (event.key !== 'Tab') return;
  event.preventDefault();
  t.setRangeText('\\t', t.selectionStart, t.selectionEnd, 'end');
});
t.focus();
</script>"""


class BrowserContract(EnvironmentContract):
    vital = "chrom"
    holder = HOLDER.format(
        opened="browser.launched(browser.find_chromium(), Path(sys.argv[1]), Size(width=300, height=200))"
    )
    says = ("js", "'hello'")
    fails = ("js", "nonsense()")
    never_ends = ("js", "while (true) {}")
    is_loud = ("js", "'x'.repeat(9000000)")

    def edit(self, environment: Environment) -> None:
        environment.write("page.html", PAGE.encode())
        environment.launch(["open", "page.html"])

    def edited(self, environment: Environment) -> str:
        return json.loads(environment.execute(["js", "document.getElementById('t').value"]).stdout)

    @classmethod
    def open(cls, folder: Path) -> AbstractContextManager[Environment]:
        assert CHROMIUM
        return browser.launched(CHROMIUM, folder, Size(width=300, height=200))


class DesktopContract(EnvironmentContract):
    vital = "Xvfb"
    mode = Mode.AUTO
    holder = HOLDER.format(opened="desktop.launched(Path(sys.argv[1]))")

    def edit(self, environment: Environment) -> None:
        environment.write("text.txt", b"")
        environment.launch(["mousepad", "--disable-server", "text.txt"])
        active = ["xprop", "-root", "_NET_ACTIVE_WINDOW"]
        wait_until(lambda: re.search(rb"# 0x[1-9a-f]", environment.execute(active).stdout), "the editor's window")

    def edited(self, environment: Environment) -> str:
        environment.perform(Press(key="s", held=("Control",)))
        wait_until(lambda: environment.read("text.txt"), "the editor to save")
        return environment.read("text.txt").decode()

    @classmethod
    def open(cls, folder: Path) -> AbstractContextManager[Environment]:
        return desktop.launched(folder, size=Size(width=640, height=480), mode=cls.mode)


def behind_a_guest(
    open_in: Callable[[Path], AbstractContextManager[Environment]], folder: Path
) -> Iterator[Environment]:
    """Opened and served by a thread of its own, as by a process of its own."""
    begun: list[Guest] = []

    def serve() -> None:
        with open_in(folder) as environment, Guest(environment) as guest:
            begun.append(guest)
            guest.serve()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    wait_until(lambda: begun or not thread.is_alive(), "the guest")
    yield GuestClient(begun[0].address, begun[0].token)
    begun[0].stop()
    thread.join(60)
    assert not thread.is_alive()


@needs_chromium
class TestBrowser(BrowserContract):
    @pytest.fixture(scope="class")
    @classmethod
    def environment(cls, mark: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
        with cls.open(tmp_path_factory.mktemp("its")) as environment:
            yield environment


@needs_chromium
class TestBrowserBehindAGuest(BrowserContract):
    @pytest.fixture(scope="class")
    @classmethod
    def environment(cls, mark: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
        yield from behind_a_guest(cls.open, tmp_path_factory.mktemp("its"))


@needs_desktop
@pytest.mark.skipif(bool(sandbox.refusal()), reason=f"this machine does not allow a sandbox: {sandbox.refusal()}")
class TestSandboxedDesktop(DesktopContract):
    mode = Mode.BWRAP

    @pytest.fixture(scope="class")
    @classmethod
    def environment(cls, mark: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
        with cls.open(tmp_path_factory.mktemp("its")) as environment:
            yield environment


@needs_desktop
class TestPlainDesktop(DesktopContract):
    mode = Mode.PLAIN
    isolated = False
    holder = HOLDER.format(opened="desktop.launched(Path(sys.argv[1]), mode=Mode.PLAIN)")

    @pytest.fixture(scope="class")
    @classmethod
    def environment(cls, mark: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
        with cls.open(tmp_path_factory.mktemp("its")) as environment:
            yield environment


@needs_desktop
class TestDesktopBehindAGuest(DesktopContract):
    isolated = not sandbox.refusal()

    @pytest.fixture(scope="class")
    @classmethod
    def environment(cls, mark: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
        yield from behind_a_guest(cls.open, tmp_path_factory.mktemp("its"))
