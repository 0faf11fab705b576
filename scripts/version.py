"""The version of this source tree: the next release, and the commit that it was built from.

Run by the build back end. A source distribution has no history, but says in PKG-INFO what it is.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

NEXT = "0.2.0"
ROOT = Path(__file__).resolve().parent.parent


def version() -> str:
    """`0.2.0.dev366+g1a2b3c4`: commits so far, and which one; without a history `0.2.0.dev0`."""
    packed = ROOT / "PKG-INFO"
    if packed.is_file():
        lines = packed.read_text("utf-8").splitlines()
        return next(line.partition(": ")[2] for line in lines if line.startswith("Version: "))
    count, commit = _git("rev-list", "--count", "HEAD"), _git("rev-parse", "--short=7", "HEAD")
    return f"{NEXT}.dev{count}+g{commit}" if count and commit else f"{NEXT}.dev0"


def _git(*args: str) -> str:
    if not (ROOT / ".git").exists():
        return ""  # or the history would be that of a folder above
    try:
        done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
