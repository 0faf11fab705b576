"""SSH host keys: a fresh one for each VM, made before the VM is, so that its first connection can be verified."""

from __future__ import annotations

from evalfleet.errors import InputError
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
    """Make an Ed25519 key pair. Keep its private half out of every record: it goes into cloud-init only.

    Raises:
        InputError: the library is not installed.
    """
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
