"""The identity with which a home commands its pilots."""

from __future__ import annotations

import os
from contextlib import suppress

from evalfleet.layout import Home
from evalfleet.pilot.keys import KEY_BYTES, Identity, new_secret


def home_identity(home: Home) -> Identity:
    """Read the home's identity; made on first use. Raises OSError."""
    path = home.mailbox_key
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(new_secret())
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was faster: its key counts
            os.link(partial, path)
        partial.unlink()
    secret = path.read_bytes()
    if len(secret) != KEY_BYTES:
        raise OSError(f"{path} is damaged; the machines that were started with it cannot be reached any more")
    return Identity(secret)
