"""A terminal on a host without the system's `ssh`: connects our standard input, output and error to a shell or command."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import struct
import termios
import threading
import tty
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import anyio
import asyncssh

from evalfleet.errors import HostUnreachable
from evalfleet.hosts.ssh.command import PIECE, Process, exit_of
from evalfleet.hosts.ssh.connection import words_of


async def run_in_terminal(
    connection: asyncssh.SSHClientConnection, command: str | None, *, terminal: str | None
) -> int:
    """Run a shell or a command with our standard streams. Returns its exit status.

    Args:
        terminal: request a terminal of this type, such as "xterm"; None for plain streams.

    Raises HostUnreachable where the connection broke.
    """
    with_terminal = terminal is not None and os.isatty(0)
    options: dict[str, Any] = {"term_type": terminal, "term_size": _size()} if with_terminal else {}
    try:
        process = await connection.create_process(command, encoding=None, **options)
    except (asyncssh.Error, OSError) as error:
        raise HostUnreachable(f"the host does not open a session: {words_of(error)}") from error
    try:
        with _raw() if with_terminal else _plain():
            await _pass(process, with_terminal)
    finally:
        process.close()
    if process.exit_status is None and process.exit_signal is None:
        raise HostUnreachable("the connection was lost")
    return exit_of(process)


async def _pass(process: Process, with_terminal: bool) -> None:
    loop = asyncio.get_running_loop()
    # A thread, because standard input may be a file; a daemon, because its last read may never return.
    threading.Thread(target=_read, args=(loop, process), daemon=True).start()
    if with_terminal:
        loop.add_signal_handler(signal.SIGWINCH, lambda: process.change_terminal_size(*_size()))
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_write, process.stdout, 1)
            group.start_soon(_write, process.stderr, 2)
        await process.wait_closed()
    finally:
        if with_terminal:
            loop.remove_signal_handler(signal.SIGWINCH)


def _read(loop: asyncio.AbstractEventLoop, process: Process) -> None:
    room = threading.Semaphore(16)

    def put(data: bytes) -> None:
        room.release()
        if not process.stdin.is_closing():
            process.stdin.write(data) if data else process.stdin.write_eof()

    while True:
        try:
            data = os.read(0, PIECE)
        except OSError:
            data = b""
        room.acquire()
        try:
            loop.call_soon_threadsafe(put, data)
        except RuntimeError:
            return  # the loop is over
        if not data:
            return


async def _write(reader: asyncssh.SSHReader[bytes], to: int) -> None:
    try:
        while data := await reader.read(PIECE):
            await anyio.to_thread.run_sync(_write_all, to, data)
    except asyncssh.Error:
        return  # the connection is lost; there is no exit status then


def _write_all(to: int, data: bytes) -> None:
    while data:
        data = data[os.write(to, data) :]


def _size() -> tuple[int, int, int, int]:
    """Columns, rows and pixels of our terminal."""
    packed = fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8)
    rows, columns, wide, high = struct.unpack("HHHH", packed)
    return columns, rows, wide, high


@contextmanager
def _raw() -> Generator[None]:
    """Raw mode: every key goes to the host, including Ctrl-C."""
    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)  # what was typed already counts
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextmanager
def _plain() -> Generator[None]:
    yield
