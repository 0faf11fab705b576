"""Taking secrets out of an attempt's files where its runner could not, or has not yet."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from evalfleet.runner.attempt.collect import MAX_DEPTH, clean_file
from evalfleet.runner.redact import Redactor
from evalfleet.runner.safe_files import enter, open_folder, parts_of, walk

_EVERY = 1 << 30  # files: what is not looked into must not be kept


def cleaned(data: bytes, secrets: Mapping[str, str]) -> bytes:
    """Replace the secrets in what somebody wants to see."""
    return Redactor(dict(secrets)).clean(data)


def redact(folder: Path, secrets: Mapping[str, str]) -> None:
    """Replace the secrets in all files below a folder of ours. What cannot be cleaned, or looked into, is removed.

    Raises OSError: something of that kind could not be removed.
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
