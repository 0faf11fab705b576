"""Fake system programs in a machine's `bin`: they show the machine in its configured condition."""

from __future__ import annotations

import sys
from functools import cache
from importlib import resources
from pathlib import Path

# `sudo` and `apt-get`, because the machine is no more than a folder of this one, and must not change it.
ALL = ("kvm-ok", "df", "date", "docker", "systemctl", "journalctl", "sudo", "apt-get")


@cache
def _text(name: str) -> str:
    folder = resources.files("evalfleet.emulator") / "programs"
    if name == "docker":
        # -I and -S: it needs nothing installed, and starts in a hundredth of a second.
        return f"#!{sys.executable} -IS\n" + (folder / "docker.py").read_text("utf-8")
    return (folder / f"{name}.sh").read_text("utf-8")


def install(folder: Path, names: tuple[str, ...]) -> None:
    """Write the programs that are missing; one that a person put there stays."""
    for name in names:
        file = folder / name
        if not file.exists():
            file.write_text(_text(name), "utf-8")
            file.chmod(0o755)
