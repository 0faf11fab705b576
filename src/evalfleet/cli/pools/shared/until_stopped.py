"""The end of a command that goes on until somebody tells it to stop."""

from __future__ import annotations

import signal

import anyio


async def until_told() -> None:
    """Return at Ctrl-C or SIGTERM, which is how such a command is meant to end."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            return
