"""Taking secrets out of an attempt's files where its runner died before it could."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evalfleet.runner.collect import clean_file, walk
from evalfleet.runner.redact import Redactor


def redact(folder: Path, secrets: Mapping[str, str]) -> None:
    redactor = Redactor(dict(secrets))
    files, _ = walk(str(folder))
    for name, _size in files:
        clean_file(str(folder / name), redactor)
