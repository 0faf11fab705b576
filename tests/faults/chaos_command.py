"""The `evalfleet` command as a user starts it: a process of its own, with a small environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

EVALFLEET = str(Path(sys.executable).parent / "evalfleet")
_KEPT = ("HOME", "PATH", "LANG", "TMPDIR", "XDG_RUNTIME_DIR")


def environment(**more: str) -> dict[str, str]:
    """What the command needs of ours, and nothing of the developer's own settings."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | more


def evalfleet(
    home: Path, *words: str, env: Mapping[str, str] | None = None, limit_s: float = 90.0
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; the caller judges its exit code."""
    return subprocess.run(
        [EVALFLEET, *words, "--home", str(home)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env or environment(), timeout=limit_s, check=False,
    )  # fmt: skip
