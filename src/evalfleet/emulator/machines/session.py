"""One command over SSH: a real process, with its pipes or its terminal joined to the channel."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import struct
import termios
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncssh

from evalfleet.emulator.faults import Fault

CHUNK = 65536


class Session:
    """Runs what the client asked for, or an interactive shell; ends as sshd does, with its exit status or signal."""

    def __init__(
        self, channel: asyncssh.SSHServerProcess[bytes], *, cwd: Path, environment: dict[str, str], fault: Fault | None
    ) -> None:
        self._channel = channel
        self._cwd = cwd
        self._environment = environment
        self._fault = fault
        self._terminal: int | None = None

    async def run(self) -> None:
        try:
            if not await self._faulty():
                await self._whole()
        except* (OSError, asyncssh.Error):
            pass  # the client is gone; what it started goes on, as under sshd

    async def _faulty(self) -> bool:
        """Do what the fault says; whether the command is not to run at all."""
        fault = self._fault
        if fault is None:
            return False
        await asyncio.sleep(fault.delay)
        if fault.hang:
            await asyncio.Event().wait()
        if fault.drop:
            self._channel.channel.get_connection().abort()
            return True
        if fault.exit is None:
            return False
        self._channel.stderr.write(fault.stderr.encode() + b"\n")
        self._channel.exit(fault.exit)
        return True

    async def _whole(self) -> None:
        command = self._channel.command
        argv = ["/bin/sh", "-c", command] if command else ["/bin/sh", "-l"]
        if self._channel.term_type:
            await self._in_terminal(argv)
        else:
            await self._in_pipes(argv)

    async def _in_pipes(self, argv: list[str]) -> None:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=self._cwd,
            env=self._environment | dict(self._channel.env),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.TaskGroup() as tasks:
            feeding = tasks.create_task(self._feed(process))
            shown = [
                tasks.create_task(_pass(process.stdout, self._channel.stdout)),
                tasks.create_task(_pass(process.stderr, self._channel.stderr)),
            ]
            await asyncio.wait(shown)
            self._end(await process.wait())
            feeding.cancel()

    async def _feed(self, process: Process) -> None:
        """Pass the client's input and signals on to the process."""
        assert process.stdin is not None
        with suppress(OSError, asyncssh.Error):
            while True:
                try:
                    data = await self._channel.stdin.read(CHUNK)
                except asyncssh.SignalReceived as received:
                    _signal_group(process.pid, received.signal)
                    continue
                except (asyncssh.BreakReceived, asyncssh.TerminalSizeChanged):
                    continue
                if not data:
                    break
                process.stdin.write(data)
                await process.stdin.drain()
            process.stdin.close()

    async def _in_terminal(self, argv: list[str]) -> None:
        ours, theirs = os.openpty()
        try:
            _resize(ours, self._channel.term_size)
            process = await asyncio.create_subprocess_exec(
                *("setsid", "--ctty", *argv),
                cwd=self._cwd,
                env=self._environment | {"TERM": self._channel.term_type or "dumb"},
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=False,
            )
        finally:
            os.close(theirs)
        loop = asyncio.get_running_loop()
        shown = asyncio.Event()

        def show() -> None:
            try:
                data = os.read(ours, CHUNK)
            except OSError:
                data = b""  # the last process has let go of the terminal
            if data:
                self._channel.stdout.write(data)
            else:
                loop.remove_reader(ours)
                shown.set()

        loop.add_reader(ours, show)
        try:
            async with asyncio.TaskGroup() as tasks:
                typing = tasks.create_task(self._type(ours))
                code = await process.wait()
                await shown.wait()
                self._end(code)
                typing.cancel()
        finally:
            loop.remove_reader(ours)
            os.close(ours)

    async def _type(self, terminal: int) -> None:
        with suppress(OSError, asyncssh.Error):
            while True:
                try:
                    data = await self._channel.stdin.read(CHUNK)
                except asyncssh.TerminalSizeChanged as changed:
                    _resize(terminal, changed.term_size)
                    continue
                except (asyncssh.BreakReceived, asyncssh.SignalReceived):
                    data = b"\x03"
                if not data:
                    data = b"\x04"
                os.write(terminal, data)
                if data == b"\x04":
                    return

    def _end(self, code: int) -> None:
        if code < 0:
            self._channel.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
        else:
            self._channel.exit(code)


async def _pass(reader: asyncio.StreamReader, writer: asyncssh.SSHWriter[bytes]) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()


def _signal_group(pid: int, name: str) -> None:
    number: Any = getattr(signal, f"SIG{name}", None)
    if number is not None:
        with suppress(ProcessLookupError):
            os.killpg(pid, number)


def _resize(terminal: int, size: tuple[int, int, int, int]) -> None:
    width, height, pixel_width, pixel_height = size
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, pixel_width, pixel_height))
