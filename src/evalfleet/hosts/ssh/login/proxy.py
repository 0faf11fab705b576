"""The ProxyCommand of an OpenSSH configuration: a program that carries a connection to its host by standard input and output."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio


@asynccontextmanager
async def proxy_socket(command: str) -> AsyncGenerator[socket.socket]:
    """Start the command and give a socket that is connected to it; the caller closes it. The program has ended after the block.

    Its standard error is not part of the connection.

    Raises OSError: it cannot be started.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            ours.setblocking(False)
            process = await anyio.open_process(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is for us
            )
    except BaseException:
        ours.close()
        raise
    try:
        yield ours
    finally:
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with what it has started
            await process.wait()
