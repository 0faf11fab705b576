"""What every environment must do. An environment's tests subclass `EnvironmentContract` and give what it asks for.

The fixture `environment` of class scope opens a fresh one for all tests of a class, because opening takes longer than most
of them: the first test uses a new one, the last ones reset it. It must be opened while the variable
EVALFLEET_ATTEMPT is the value of the fixture `mark`, which it then passes on to its processes: by that they are found.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from evalfleet import config
from evalfleet.actions import Action, Click, Drag, Move, Press, Scroll, Wait, Write
from evalfleet.environments.base import LARGEST_OUTPUT, Environment
from evalfleet.environments.browser import keys
from evalfleet.errors import EnvironmentFailed, InputError

_DEADLINE_S = 60.0
_TEXT = 'Grüße, 世界! 100 € ("net") ~ {x} 😀 ЖЩ'


def marked(mark: str, name: str = "") -> list[int]:
    """Return the living processes that carry a mark, and whose program is called like that."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            environ = (entry / "environ").read_bytes()  # empty for one that is dead already
            if f"EVALFLEET_ATTEMPT={mark}".encode() in environ and name in (entry / "comm").read_text():
                found.append(int(entry.name))
    return found


def wait_until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {_DEADLINE_S:g} s for {what}"
        time.sleep(0.02)


@pytest.fixture(scope="class")
def mark() -> Iterator[str]:
    value = _new_mark()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVALFLEET_ATTEMPT", value)
        yield value


def _new_mark() -> str:
    return f"contract.{secrets.token_hex(6)}"


class Held(Struct, frozen=True, kw_only=True):
    """A process that holds one open, and the mark of all that belongs to it."""

    process: subprocess.Popen[str]
    mark: str


class EnvironmentContract:
    """The promises of `environments.base`, one test each."""

    vital: str  # part of the name of a program that it cannot live without
    isolated = True  # whether files of the machine are inaccessible
    holder: (
        str  # Python source: opens one in the folder sys.argv[1], prints "ready", and closes it at the end of its input
    )

    says: Sequence[str] = ("echo", "hello")  # a program that prints hello, among other things
    fails: Sequence[str] = ("sh", "-c", "exit 3")
    never_ends: Sequence[str] = ("sh", "-c", "sleep 1000 & sleep 1000")
    is_loud: Sequence[str] = ("sh", "-c", "head -c 9000000 /dev/zero; head -c 9000000 /dev/zero >&2")

    def edit(self, environment: Environment) -> None:
        """Open a text field that has the focus."""
        raise NotImplementedError

    def edited(self, environment: Environment) -> str:
        """Return the text that is there."""
        raise NotImplementedError

    # Looking

    def test_a_new_one_is_ready(self, environment: Environment) -> None:
        probe = environment.probe()
        assert (probe.ready, probe.waits_for) == (True, "")
        picture = environment.screenshot()
        assert picture[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", picture[16:24]) == (probe.screen.width, probe.screen.height)

    # Files

    def test_files_are_kept(self, environment: Environment) -> None:
        for name in ("a.txt", "notes/deep/ü 世.txt", "notes/../b.txt", "-x", "%2e"):
            for data in (b"\x00\xff\r\n", b"", b"x" * 300_000):
                environment.write(name, data)
                assert environment.read(name) == data

    def test_hostile_paths_are_refused(self, environment: Environment) -> None:
        environment.write("file", b"x")
        for name in ("", ".", "..", "a\0b", "file/below", "n" * 5000, "/proc/self/mem", "\udc80"):
            with pytest.raises(InputError):
                environment.read(name)
            with pytest.raises(InputError):
                environment.write(name, b"x")
        for name in ("nothing", "/dev/zero"):
            with pytest.raises(InputError):
                environment.read(name)
        assert environment.read("file") == b"x"

    def test_files_of_the_machine_are_out_of_reach(self, environment: Environment, tmp_path: Path) -> None:
        if not self.isolated:
            pytest.skip("this environment is not kept apart from its machine")
        secret = tmp_path / "secret"
        secret.write_text("secret")
        for name in (str(secret), "../" * 30 + str(secret)[1:], "/etc/shadow", f"file:{secret}"):
            with pytest.raises(InputError):
                environment.read(name)
        with contextlib.suppress(InputError):
            environment.write(str(secret), b"broken")
        assert secret.read_text() == "secret"

    # Programs

    def test_a_program_is_run_to_its_end(self, environment: Environment) -> None:
        done = environment.execute(self.says)
        assert done.code == 0
        assert b"hello" in done.stdout
        assert environment.execute(self.fails).code != 0

    def test_what_is_no_program_is_refused(self, environment: Environment) -> None:
        for command in ((), ("",), ("no-such-program-at-all",), ("a\0b",)):
            with pytest.raises(InputError):
                environment.execute(command)
            with pytest.raises(InputError):
                environment.launch(command)
        assert environment.probe().ready

    def test_a_program_that_never_ends_is_killed_at_its_limit(self, environment: Environment, mark: str) -> None:
        before = len(marked(mark))
        begun = time.monotonic()
        done = environment.execute(self.never_ends, timeout_s=0.5)
        assert done.timed_out
        assert done.code != 0
        assert time.monotonic() - begun < _DEADLINE_S / 2
        wait_until(lambda: len(marked(mark)) <= before, "the program's end")
        assert environment.execute(self.says).code == 0

    def test_a_loud_program_is_cut_short(self, environment: Environment) -> None:
        done = environment.execute(self.is_loud)
        assert (done.code, done.cut) == (0, True)
        assert len(done.stdout) == LARGEST_OUTPUT
        assert len(done.stderr) <= LARGEST_OUTPUT

    # Acting

    def test_every_action_can_be_done(self, environment: Environment) -> None:
        actions: list[Action] = [
            Click(x=5, y=5),
            Click(x=-5.5, y=1e6, count=2, held=("Control", "Shift")),
            Click(x=5, y=5, count=0),
            Move(x=100, y=100),
            Drag(x=10, y=10, to_x=60, to_y=60),
            Scroll(x=10, y=10, dx=-30, dy=250),
            Press(key="a", times=3),
            Press(key="a", times=-1, held=("Control",)),
            Wait(seconds=0.01),
            Wait(seconds=-1),
            Write(text=""),
        ]
        for action in actions:
            environment.perform(action)
            assert environment.probe().ready, action

    def test_every_key_can_be_pressed(self, environment: Environment) -> None:
        for key in keys.NAMES:
            environment.perform(Press(key=key))
        for wrong in (Press(key="Return"), Press(key=""), Press(key="a", held=("Ctrl",))):
            with pytest.raises(InputError):
                environment.perform(wrong)

    def test_text_of_any_script_arrives(self, environment: Environment) -> None:
        self.edit(environment)
        environment.perform(Write(text=_TEXT + "x"))
        environment.perform(Press(key="Backspace"))
        environment.perform(Press(key="Enter"))
        environment.perform(Write(text="two\tcolumns"))
        assert self.edited(environment).rstrip("\n") == f"{_TEXT}\ntwo\tcolumns"

    # Ends

    def test_reset_makes_it_new(self, environment: Environment) -> None:
        environment.write("made", b"x")
        environment.reset()
        assert environment.probe().ready
        with pytest.raises(InputError):
            environment.read("made")
        assert environment.execute(self.says).code == 0

    def test_a_broken_one_says_so_and_can_be_reset(self, environment: Environment, mark: str) -> None:
        for pid in marked(mark, self.vital):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(EnvironmentFailed):
            environment.screenshot()
        with pytest.raises(EnvironmentFailed):
            environment.perform(Move(x=1, y=1))
        probe = environment.probe()
        assert not probe.ready
        assert probe.waits_for
        environment.reset()
        assert environment.probe().ready

    @pytest.fixture
    def held(self, tmp_path: Path) -> Iterator[Held]:
        """An environment that is open in another process, in the folder `held` of the test."""
        (tmp_path / "held").mkdir()
        argv = [sys.executable, "-c", self.holder, str(tmp_path / "held")]
        pipe, mark = subprocess.PIPE, _new_mark()
        env = {**config.environment(), "EVALFLEET_ATTEMPT": mark}
        with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, env=env, start_new_session=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            assert marked(mark, self.vital)
            yield Held(process=process, mark=mark)
            process.kill()

    def test_nothing_is_left_after_its_end(self, held: Held, tmp_path: Path) -> None:
        held.process.communicate(timeout=_DEADLINE_S)
        assert held.process.returncode == 0
        wait_until(lambda: not marked(held.mark), "the end of all processes")
        assert list((tmp_path / "held").iterdir()) == []

    def test_no_process_is_left_when_its_owner_is_killed(self, held: Held) -> None:
        held.process.kill()
        held.process.wait(_DEADLINE_S)
        wait_until(lambda: not marked(held.mark), "the end of all processes")
