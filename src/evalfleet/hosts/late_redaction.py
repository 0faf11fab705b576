"""Redaction on the controller: for files whose runner could not redact them, or has not yet."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from evalfleet.runner.attempt.collect import MAX_DEPTH, clean_file
from evalfleet.runner.redact import Redactor
from evalfleet.runner.safe_files import enter, open_folder, parts_of, walk

_EVERY = 1 << 30  # files: what is not looked into must not be kept

# Credentials that logs of machines hold and no task names: signed addresses, keys, headers.
_CREDENTIALS = re.compile(
    r"(?P<front>\b(?:sig|AccountKey|SharedAccessKey|password|passwd|token|secret|api[_-]?key)=|\bBearer\s+)[^\s&;,\"']{4,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.IGNORECASE | re.DOTALL,
)


def cleaned(data: bytes, secrets: Mapping[str, str]) -> bytes:
    """Replace the secrets in text that will be shown."""
    return Redactor(dict(secrets)).clean(data)


def without_credentials(text: str, secrets: Mapping[str, str]) -> str:
    """Replace the secrets in a log of a machine, and what looks like a credential."""
    clean = Redactor(dict(secrets)).text(text)
    return _CREDENTIALS.sub(lambda match: f"{match['front'] or ''}[redacted]", clean)


def redact(folder: Path, secrets: Mapping[str, str]) -> None:
    """Replace the secrets in all files below a folder. Files that cannot be read or cleaned are removed.

    Raises OSError: such a file could not be removed.
    """
    redactor = Redactor(dict(secrets))
    here = open_folder(str(folder))
    try:
        files, _ = walk(here, _EVERY, MAX_DEPTH + 1)
        for path, _ in files:
            *above, name = parts_of(path)
            inner = enter(here, above)
            try:
                _clean(inner, name, redactor)
            finally:
                os.close(inner)
    finally:
        os.close(here)


def _clean(folder: int, name: str, redactor: Redactor) -> None:
    try:
        clean_file(name, redactor, folder)
    except OSError:
        os.unlink(name, dir_fd=folder)
