"""Two controllers in any order: the SQLite store against its model.

`STORE_EXAMPLES=5000 pytest tests/unit/store/test_machine.py` for a long round with fresh examples.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import hypothesis
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


SqliteMachine.TestCase.settings = hypothesis.settings(
    max_examples=LONG or 120,
    stateful_step_count=60 if LONG else 50,
    derandomize=not LONG,
    database=None,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)

TestSqliteMachine = SqliteMachine.TestCase
