"""A process tree keeps the contract of every backend."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from evalfleet_sums.process_trees import KIND, TreeHost, tree, tree_home

from evalfleet.config import Settings
from evalfleet.errors import InputError
from evalfleet.hosts.base import Backend
from evalfleet.hosts.local.launcher import runner_info
from evalfleet.layout import Home
from evalfleet.testing.backend_contract import BackendContract

END_S = 10.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class TestProcessTree(BackendContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[Backend]:
        home, host = Home(tmp_path), TreeHost(name="trees-1")
        yield tree(home, host, sys.executable, idle_s=60.0)
        runner = runner_info(tree_home(home, host.name).spool)
        if runner is not None:
            os.kill(runner.pid, signal.SIGTERM)
            deadline = time.monotonic() + END_S
            while runner_info(tree_home(home, host.name).spool) is not None:
                assert time.monotonic() < deadline, "the runner did not end"
                time.sleep(0.01)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"count": "0"}, "from 1 to 64, not '0'"),
        ({"count": "two"}, "from 1 to 64, not 'two'"),
        ({"count": "2", "cout": "2"}, "option cout: is not known"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], said: str):
    with pytest.raises(InputError, match=said):
        KIND.settings({"options": options}, Settings(home=Path()))


def test_one_host_is_the_default():
    assert KIND.settings({}, Settings(home=Path())) == {"count": 1}
