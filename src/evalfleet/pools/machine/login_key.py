"""The key with which we log in to the machines that we make: one per home, made when it is first needed."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from evalfleet.errors import StoreUnwritable
from evalfleet.layout import Home
from evalfleet.pools.machine.host_key import fresh_host_key


class LoginKey(Struct, frozen=True, kw_only=True):
    path: Path  # of the private half, which stays here
    public: str


def login_key(home: Home) -> LoginKey:
    """Return the home's key; make it where there is none. Raises StoreUnwritable where the home cannot be written."""
    path = home.login_key
    public = path.with_name(f"{path.name}.pub")
    try:
        if not public.exists():
            _make(path, public)
        return LoginKey(path=path, public=public.read_text("utf-8").strip())
    except OSError as error:
        raise StoreUnwritable(f"{path}: cannot be used: {error.strerror}; check its permissions") from error


def _make(path: Path, public: Path) -> None:
    """The first process wins: readers see both halves of one key, or none."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = fresh_host_key()
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(made.private)
    try:
        os.link(partial, path)
    except FileExistsError:
        pass  # of another process, or of one that died before it wrote the public half
    finally:
        partial.unlink()
    from cryptography.hazmat.primitives import serialization

    private = serialization.load_ssh_private_key(path.read_bytes(), None)
    text = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    half = public.with_name(f".{public.name}.{os.getpid()}")
    half.write_bytes(text + b"\n")
    os.replace(half, public)
