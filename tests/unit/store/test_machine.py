"""Two controllers in any order: each store against its model.

`STORE_EXAMPLES=5000 pytest tests/unit/store/test_machine.py` for a long round with fresh examples.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import hypothesis
import pytest
from tests.support.postgres import Server
from tests.support.store.machine import StoreMachine

from evalfleet.store.open import open_store
from evalfleet.store.store import Store

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
LONG = int(os.environ.get("STORE_EXAMPLES", "0"))


class SqliteMachine(StoreMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY)

    def open(self) -> Store:
        return open_store(Path(self.folder.name), self.clock)

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


class PostgresMachine(StoreMachine):
    server: ClassVar[Server]

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY))
        self.home = self.stack.enter_context(self.server.home(Path(folder)))

    def open(self) -> Store:
        return open_store(self.home, self.clock)

    def teardown(self) -> None:
        super().teardown()
        self.stack.close()


@pytest.fixture(scope="module")
def server(postgres: Server) -> None:
    PostgresMachine.server = postgres


def _settings(examples: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=LONG or examples,
        stateful_step_count=60 if LONG else 50,
        derandomize=not LONG,
        database=None,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
    )


SqliteMachine.TestCase.settings = _settings(120)
PostgresMachine.TestCase.settings = _settings(25)  # each step takes several times as long

TestSqliteMachine = SqliteMachine.TestCase
TestPostgresMachine = pytest.mark.usefixtures("server")(PostgresMachine.TestCase)
