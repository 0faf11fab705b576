"""Under which address this machine is seen from outside."""

from __future__ import annotations

import ssl
from urllib.request import urlopen

import anyio.to_thread

from evalfleet.azure.settings import AzureSettings

LIMIT_S = 8.0


async def echo(settings: AzureSettings) -> str:
    """Ask a service that answers with the address it was asked from. Raises OSError."""
    trusted = ssl.create_default_context(cafile=settings.certificate) if settings.certificate else None

    def ask() -> str:
        with urlopen(settings.echo_url, timeout=LIMIT_S, context=trusted) as answer:
            return answer.read(100).decode("ascii", "replace")

    return await anyio.to_thread.run_sync(ask)
