"""SSH keys: a fresh host key for each VM, made before the VM is, so that its first connection can be verified; and one key per home
with which we log in."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from evalfleet.errors import InputError, StoreUnwritable
from evalfleet.layout import Home
from evalfleet.pools.cloud.records import HostKey

# Run on a VM over its first connection, one after the other. The first makes a key that never leaves the VM, beside the one
# that we put in, and prints its public half; the second puts it in place. A host that is no whole machine names the file.
_BEGIN = """set -e
file=${EVALFLEET_SSH_HOST_KEY:-/etc/ssh/ssh_host_ed25519_key}
as=; [ -w "$file" ] || as='sudo -n'
"""
STAGE = (
    _BEGIN
    + """$as rm -f "$file.next" "$file.next.pub"
$as ssh-keygen -q -t ed25519 -N '' -C evalfleet -f "$file.next"
cat "$file.next.pub"
"""
)
SWAP = (
    _BEGIN
    + """$as mv -f "$file.next.pub" "$file.pub"
$as mv -f "$file.next" "$file"
[ -n "${EVALFLEET_SSH_HOST_KEY:-}" ] || $as systemctl reload ssh
"""
)


def fresh_host_key() -> HostKey:
    """Make an Ed25519 key pair. Keep its private half out of every record: it goes into cloud-init only. Raises InputError."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise InputError(
            "pools of a cloud need the package cryptography; install it with: pip install cryptography"
        ) from None
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return HostKey(private=private.decode(), public=public.decode())


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
