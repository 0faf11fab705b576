"""The interface of environments: what an agent sees and acts on in one attempt.

It is the same for a browser, a desktop and a virtual machine; `environments.guest` serves any of them over HTTP. Every call has
a time limit and raises `EnvironmentFailed` when the environment does not work; never a score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from evalfleet.actions import Action

LONGEST_WAIT_S = 10.0  # of one action
PRESS_LIMIT = 1000  # clicks or key presses of one action
LARGEST_FILE = 64 << 20  # that is read or written at once
LARGEST_OUTPUT = 4 << 20  # output of a program, per stream; the rest is dropped


class Size(Struct, frozen=True, kw_only=True):
    """The size of a window, screen or image, in pixels."""

    width: int
    height: int


class Probe(Struct, frozen=True, kw_only=True):
    """The state that an environment reports."""

    kind: str  # "browser", "desktop", …
    ready: bool
    waits_for: str  # the part that is not up yet; empty when ready
    screen: Size


class Requirement(Struct, frozen=True, kw_only=True):
    """Something that a machine must have to run a benchmark or an environment."""

    what: str
    present: bool
    found: str  # where, or why not
    install: str  # the command that installs it
    here: bool = False  # also needed where a run is submitted, not only where its tasks run


class Executed(Struct, frozen=True, kw_only=True):
    """How a program ended inside the environment."""

    code: int  # negative: minus the signal that ended it
    stdout: bytes
    stderr: bytes
    timed_out: bool = False  # it was killed at its limit
    cut: bool = False  # more output than is kept


class Environment(Protocol):
    """The environment of one attempt. Used by one thread at a time."""

    def probe(self) -> Probe:
        """Report whether it can be used. Returns quickly and never waits."""
        ...

    def screenshot(self) -> bytes:
        """Return the whole screen as PNG."""
        ...

    def perform(self, action: Action) -> None:
        """Carry out one action with pointer or keyboard, or wait. Raises InputError if it cannot be done."""
        ...

    def execute(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> Executed:
        """Run a program inside to its end. A browser runs JavaScript: `["js", expression]`, with its value as JSON."""
        ...

    def launch(self, command: Sequence[str]) -> None:
        """Start a program inside and leave it running. A browser opens a page: `["open", address]`."""
        ...

    def read(self, path: str) -> bytes:
        """Return a file's content. Relative paths begin at the environment's home. Raises InputError if there is none."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a file, with the folders above it."""
        ...

    def reset(self) -> None:
        """Return to the initial state, ready for use."""
        ...
