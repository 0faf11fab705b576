"""`evalfleet waa`: a group; its commands lie in `evalfleet.cli.waa`."""

from __future__ import annotations

from evalfleet.cli.lazy_group import subgroup

COMMANDS: dict[str, str] = {"image": "Build, check and store golden images: prepared disks of Windows."}

command = subgroup("waa", "evalfleet.cli.waa", COMMANDS, help="Windows Agent Arena: what it needs besides runs.")
