"""Builds the runner's zipapp. Not part of it."""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import lru_cache
from pathlib import Path

PACKAGE = "evalfleet_runner"
MOMENT = (1980, 1, 1, 0, 0, 0)
VERSION_DIGITS = 12
APART = frozenset(
    {"build.py", "bootstrap.py", "visit/files.py", "visit/logs.py"}
)  # files here that the zipapp does not need
MAIN = f"""\
import hashlib
import sys

from {PACKAGE}.__main__ import main

with open(sys.argv[0], "rb") as file:
    version = hashlib.sha256(file.read()).hexdigest()[:{VERSION_DIGITS}]
sys.exit(main(sys.argv[0], sys.argv[1:], version))
"""


def sources() -> dict[str, bytes]:
    """File name in the archive to content, in the archive's order."""
    folder = Path(__file__).parent
    files: dict[str, bytes] = {}
    for path in folder.rglob("*.py"):
        name = path.relative_to(folder).as_posix()
        if name not in APART:
            files[f"{PACKAGE}/{name}"] = path.read_bytes()
    files["__main__.py"] = MAIN.encode()
    return dict(sorted(files.items()))


def bootstrap() -> bytes:
    """The program that a host runs before it has the runner."""
    return Path(__file__).with_name("bootstrap.py").read_bytes()


def visit_program() -> bytes:
    """The program that a host runs to show its logs and screens."""
    return (Path(__file__).parent / "visit" / "logs.py").read_bytes()


def live_files_program() -> bytes:
    """The program that a host runs to show the files of live attempts."""
    return (Path(__file__).parent / "visit" / "files.py").read_bytes()


@lru_cache(maxsize=None)
def build() -> tuple[bytes, str]:
    """The zipapp's bytes and its version: the same bytes for the same source, on every machine."""
    out = io.BytesIO()
    # stored, because the output of deflate differs between zlib versions
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sources().items():
            entry = zipfile.ZipInfo(name, MOMENT)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    data = out.getvalue()
    return data, hashlib.sha256(data).hexdigest()[:VERSION_DIGITS]
