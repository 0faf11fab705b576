"""The desktop's own promises, beyond the contract: pointer, windows, isolation, and parts that do not come up."""

from __future__ import annotations

import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.fleet import wait_for

from evalfleet.actions import Click, Drag, Move, Press, Scroll, Write
from evalfleet.environments.base import Size
from evalfleet.environments.desktop import environment, sandbox
from evalfleet.environments.desktop.environment import Desktop
from evalfleet.environments.desktop.sandbox import Mode
from evalfleet.errors import DesktopError, EnvironmentFailed

APPLICATIONS = {"xev": "x11-utils", "xterm": "xterm", "xclip": "xclip", "mousepad": "mousepad"}
LACKING = [need for need in environment.requirements({**environment.PROGRAMS, **APPLICATIONS}) if not need.present]

pytestmark = [
    pytest.mark.skipif(bool(LACKING), reason="; ".join(f"no {one.what}: {one.install}" for one in LACKING)),
    pytest.mark.timeout(300),
]
needs_sandbox = pytest.mark.skipif(bool(sandbox.refusal()), reason=f"no sandbox here: {sandbox.refusal()}")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Desktop]:
    with environment.launched(tmp_path / "its", size=Size(width=800, height=600)) as opened:
        yield opened


@pytest.fixture
def events(opened: Desktop) -> str:
    """The name of the file to which a window of 300 x 200 pixels at 100, 100 writes what happens to it."""
    opened.launch(["sh", "-c", "exec xev -geometry 300x200+100+100 > events"])
    opened.wait_for_windows(lambda windows: any(window.active for window in windows), "xev")
    return "events"


def test_the_pointer_does_what_it_is_told(opened: Desktop, events: str):
    opened.perform(Click(x=150, y=160, count=2, held=("Control",)))
    opened.perform(Drag(x=120, y=150, to_x=220, to_y=190))
    opened.perform(Scroll(x=200, y=200, dy=320))
    opened.perform(Scroll(x=200, y=200, dx=-1))
    opened.perform(Press(key="F5"))
    happened = (
        r"\b(\w+) event,.*\n.*?root:\((\d+),(\d+)\),\n\s+state (\w+), (?:button (\d)|keycode \d+ \(keysym \w+, (\w+)\))"
    )

    def found() -> list[tuple[str, ...]]:
        return re.findall(happened, opened.read(events).decode())

    wait_for(lambda: any(each[5] == "F5" for each in found()), "the last key")
    presses = [each for each in found() if each[0] == "ButtonPress"]
    releases = [each for each in found() if each[0] == "ButtonRelease"]
    assert [(each[1], each[2], each[4]) for each in presses] == [
        *[("150", "160", "1")] * 2,
        ("120", "150", "1"),
        *[("200", "200", "5")] * 3,
        ("200", "200", "6"),
    ]
    assert [int(each[3], 16) & 4 for each in presses[:3]] == [4, 4, 0]
    assert releases[2][1:3] == ("220", "190")


def test_clicks_are_not_overtaken_by_keys(opened: Desktop):
    for place in (0, 1):
        opened.write(f"typed{place}", b"")  # there to be read, though the shell may not have come up yet
        geometry = f"40x10+{10 + 400 * place}+50"
        opened.launch(["xterm", "-geometry", geometry, "-T", f"term{place}", "-e", "sh", "-c", f"cat > typed{place}"])
    windows = opened.wait_for_windows(lambda ws: {w.title for w in ws} == {"term0", "term1"}, "two terminals")
    assert {window.kind for window in windows} == {"XTerm"}
    opened.settle()  # a window that has just come up takes the focus
    places = {window.title: window for window in windows}
    expected = ["", ""]
    for number in range(10):
        window = places[f"term{number % 2}"]
        opened.perform(Click(x=window.x + 20, y=window.y + 20))
        opened.perform(Write(text=f"line {number}\n"))
        expected[number % 2] += f"line {number}\n"
    for place in (0, 1):
        wait_for(lambda: opened.read(f"typed{place}").decode() == expected[place], f"the text of terminal {place}")  # noqa: B023


def test_windows_are_told(opened: Desktop, events: str):
    (window,) = opened.windows()
    assert (window.title, window.active) == ("Event Tester", True)
    assert (window.width, window.height) == (300, 200)
    with pytest.raises(DesktopError, match=r"waited 0\.1 s for a miracle; the windows there are: 'Event Tester'"):
        opened.wait_for_windows(lambda _: False, "a miracle", timeout_s=0.1)


def test_the_screen_is_seen(opened: Desktop):
    opened.launch(["xterm", "-bg", "#204060", "-fg", "#204060", "-cr", "#204060", "-geometry", "80x24+0+0"])
    opened.wait_for_windows(lambda windows: any(window.active for window in windows), "xterm")
    opened.perform(Move(x=700, y=500))

    def pixel() -> tuple[int, ...]:
        data = opened.screenshot()
        begin = data.index(b"IDAT") + 4
        lines = zlib.decompress(data[begin : data.index(b"IEND") - 8])
        at = 200 * (800 * 3 + 1) + 1 + 3 * 200
        return tuple(lines[at : at + 3])

    wait_for(lambda: pixel() == (0x20, 0x40, 0x60), "the terminal's colour")


def test_the_clipboard_can_be_read(opened: Desktop):
    opened.write("text.txt", "copied: ü".encode())
    opened.launch(["mousepad", "--disable-server", "text.txt"])
    opened.wait_for_windows(lambda windows: any(w.active and "text.txt" in w.title for w in windows), "the editor")
    opened.perform(Press(key="a", held=("Control",)))
    opened.perform(Press(key="c", held=("Control",)))
    read = ["xclip", "-selection", "clipboard", "-o"]
    wait_for(lambda: opened.execute(read).stdout.decode() == "copied: ü", "the clipboard")


@needs_sandbox
def test_a_sandbox_shows_nothing_of_the_machine(tmp_path: Path):
    (tmp_path / "secret").write_text("secret")
    with environment.launched(tmp_path / "its", mode=Mode.BWRAP) as opened:
        assert opened.sandboxed
        look = f"id -u; ls /proc | grep -c '^[0-9]'; ls {tmp_path} {Path.home() / '.ssh'} 2>&1 | grep -v 'No such'; cat /proc/net/route"
        said = opened.execute(["sh", "-c", look]).stdout.decode().splitlines()
        assert said[0] == "1000"
        assert int(said[1]) < 15
        assert said[2:] == [said[2]]  # no folder, and of the network only the table's head
        assert opened.execute(["sh", "-c", "touch /usr/x /etc/x /home/user/x"]).code != 0
        assert opened.read("x") == b""
    assert not (tmp_path / "its").exists()


@pytest.mark.parametrize(
    ("name", "script", "said"),
    [
        ("openbox", "echo no theme >&2; exit 4", r"the window manager ended with status 4 \(no theme\)"),
        ("openbox", "exec sleep 600", r"the window manager did not come up within 2 s"),
        ("Xvfb", "echo no memory >&2; exit 1", r"the X server ended with status 1 \(no memory\)"),
        ("Xvfb", "exec sleep 600", "the X server did not come up in time"),
        ("dbus-daemon", "kill -9 $$", "D-Bus was killed by signal 9"),
        ("dbus-daemon", None, r"D-Bus: 'dbus-daemon' cannot be started: No such file"),
    ],
)
def test_the_part_that_does_not_come_up_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str | None, said: str
):
    programs = tmp_path / "bin"
    programs.mkdir()
    for each in (*environment.PROGRAMS, "sh", "sleep"):
        (programs / each).symlink_to(shutil.which(each) or each)
    (programs / name).unlink()
    if script is not None:
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    with (
        pytest.raises(EnvironmentFailed, match=said),
        environment.launched(tmp_path / "its", mode=Mode.PLAIN, timeout_s=2.0),
    ):
        pass
    assert list((tmp_path / "its").iterdir()) == []


def test_what_a_machine_needs(monkeypatch: pytest.MonkeyPatch):
    assert all(need.present for need in environment.requirements())
    monkeypatch.setenv("PATH", "/nowhere")
    sandbox.refusal.cache_clear()
    assert sandbox.refusal() == "bwrap is not installed"
    sandbox.refusal.cache_clear()
    (xvfb, *_) = environment.requirements()
    assert (xvfb.what, xvfb.present, xvfb.install) == ("Xvfb", False, "apt-get install -y --no-install-recommends xvfb")
