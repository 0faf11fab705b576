"""A launch over SSH whose connection is closed while its files are looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from evalfleet.errors import RunnerUnavailable
from evalfleet.hosts.base import Launch
from evalfleet.hosts.remote.host import RemoteHost


class Sums:
    async def of(self, files: object) -> dict[str, tuple[str, Path]]:
        return {"agent.py": ("0" * 64, Path("agent.py"))}


class Files:
    def has(self, files: object) -> bool:
        return False


async def test_a_connection_that_is_closed_costs_the_launch_and_not_the_controller():
    async with anyio.create_task_group() as group:
        pass
    host: Any = object.__new__(RemoteHost)
    host._waiting, host._sums, host._files, host._group = set(), Sums(), Files(), group
    launch = Launch(attempt_id="r.1.1", spec={"command": ["true"], "env": {}}, secrets={}, valid_for_s=60.0)
    with pytest.raises(RunnerUnavailable):
        await host.launch([launch])
    assert host._waiting == set()
