"""Homes that earlier versions made, kept as they were: `fixtures/homes/COMMIT.tar.gz`.

Each holds one run of three tasks (a verdict of 0.5, a verdict of 1, a failure after two attempts), made by the code of
that commit; the runner's spool and the lock files are left out.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

_HOMES = Path(__file__).parents[1] / "fixtures" / "homes"
# The commit that made it, and its schema.
OLD = {"3e0062d": 1, "929e5cd": 3, "2cf261f": 4, "cc6608d": 6, "78c0f00": 9}
# Made before the first migration was frozen, and on a branch whose third migration was another one.
FOREIGN = {"759386f": "table run lacks cancelling", "358cecb": "table access_token already exists"}


def unpacked(commit: str, home: Path) -> Path:
    with tarfile.open(_HOMES / f"{commit}.tar.gz") as archive:
        archive.extractall(home, filter="data")
    return home
