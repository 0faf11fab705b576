"""Standard output that may break while a run is driven: a report that cannot be printed must not cost the run."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from evalfleet.cli.shared.options import Command

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LOST = 2
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class Output(io.RawIOBase):
    """Writes to a file; once the disk is full it drops the output, and says so once."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._broken: OSError | None = None

    def code(self, code: int) -> int:
        """The exit code of a command that would end with `code`: not 0 where its answer was lost."""
        return LOST if self._broken is not None and code == 0 else code

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        if self._fd is None:
            raise OSError("no file behind it")
        return self._fd

    def isatty(self) -> bool:
        return self._fd is not None and os.isatty(self._fd)

    def write(self, data: ReadableBuffer, /) -> int:
        size = memoryview(data).nbytes
        if self._broken is not None:
            return size
        try:
            return os.write(self.fileno(), data)
        except OSError as error:
            self._broken = error
            if error.errno not in _NO_ROOM:
                raise  # such as a reader that is gone; what is left in buffers goes nowhere
            said = f"cannot write to standard output: {error.strerror}"
            click.echo(f"evalfleet: {said}; the run goes on, and `evalfleet report` will show it", err=True)
            return size


def lasting(function: Command) -> Command:
    """For commands that drive a run: a full disk behind standard output does not end them, but the exit code is not 0."""

    @wraps(function)
    def command(**given: Any) -> int:
        with _lasting_output() as output:
            code = function(**given)
        return output.code(code)

    return command


@contextmanager
def _lasting_output() -> Generator[Output]:
    before = sys.stdout
    try:
        fd = before.fileno()
    except (OSError, ValueError, AttributeError):  # a stand-in without a file behind it
        yield Output(None)
        return
    before.flush()
    output = Output(fd)
    wrapped = io.TextIOWrapper(
        io.BufferedWriter(output), before.encoding, before.errors, line_buffering=bool(before.line_buffering)
    )
    sys.stdout = wrapped
    try:
        yield output
    finally:
        sys.stdout = before
        with suppress(OSError, ValueError):
            wrapped.flush()
