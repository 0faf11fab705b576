"""A real runner, and a connection to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.runner import RunnerClient, RunnerSpool


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[RunnerSpool]:
    runner = RunnerSpool(tmp_path / "spool")
    runner.start()
    yield runner
    runner.close()
    assert "Traceback" not in runner.log()


@pytest.fixture
def client(spool: RunnerSpool) -> Iterator[RunnerClient]:
    with spool.client() as connection:
        yield connection
