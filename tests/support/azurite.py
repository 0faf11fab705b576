"""Real blob storage on loopback: Azurite, and addresses with real signatures for it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest

ROOT = Path(__file__).parents[2]
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # of every Azurite
VERSION = "2021-12-02"


class Azurite:
    """One server with one container for a start."""

    def __init__(self, port: int, container: str = "images") -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.url = f"{self.base}/{ACCOUNT}"  # of the account
        self._container = f"{self.url}/{container}"
        request = urllib.request.Request(
            f"{self.address()}&restype=container", b"", {"x-ms-version": VERSION}, method="PUT"
        )
        urllib.request.urlopen(request, timeout=10).close()

    def address(self, permissions: str = "rwdlac", *, hours: float = 1.0) -> str:
        """The container's address with an account signature."""
        expiry = (datetime.now(UTC) + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")
        signed = "\n".join([ACCOUNT, permissions, "b", "sco", "", expiry, "", "", VERSION, "", ""])
        digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
        signature = base64.b64encode(digest).decode()
        query = {"sv": VERSION, "ss": "b", "srt": "sco", "sp": permissions, "se": expiry, "sig": signature}
        return f"{self._container}?{urlencode(query)}"


def azurite_environment(server: Azurite) -> dict[str, str]:
    """What lets the library `obstore` use the server."""
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURITE_BLOB_STORAGE_URL": server.base,
        "AZURE_ALLOW_HTTP": "true",
    }


@contextmanager
def azurite(folder: Path) -> Iterator[Azurite]:
    """Start one; skips the test where it is not installed (scripts/azurite)."""
    found = sorted(ROOT.glob(".azurite/*/node_modules/.bin/azurite-blob"))
    if not found:
        pytest.skip("Azurite is not installed: scripts/azurite")
    folder.mkdir()
    quiet = ["--silent", "--disableTelemetry"]
    command = [found[-1], "--skipApiVersionCheck", "--inMemoryPersistence", *quiet, "--blobPort", "0"]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        for line in server.stdout:
            port = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if port:
                yield Azurite(int(port[1]))
                return
        raise RuntimeError("Azurite did not start")
    finally:
        server.kill()
        server.communicate()
