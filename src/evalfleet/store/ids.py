"""Random ids of runs and other records."""

from __future__ import annotations

import os

ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # without letters and digits that look or sound alike


def new_id(length: int = 8) -> str:
    # Not the `secrets` module, which takes longer to load than the rest of a command: an id is a name, not a key.
    return "".join(ALPHABET[byte % len(ALPHABET)] for byte in os.urandom(length))
