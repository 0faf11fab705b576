"""The end of a command that runs until it is stopped."""

from __future__ import annotations

import signal

import anyio


async def until_told() -> None:
    """Return at Ctrl-C or SIGTERM, the normal end of such a command."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            return
