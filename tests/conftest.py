"""What every test shares."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.support.postgres import Server

# The contracts are shipped in the package; here, as in a test module, a failing assert shall show its values.
pytest.register_assert_rewrite("evalfleet.testing", "tests.contract.store", "tests.support")

# Tasks and hosts of tests start `python3` thousands of times. Where that is the shim of a version manager, each start runs twenty
# shell scripts first; this one is started directly.
os.environ["PATH"] = f"{Path(sys.base_prefix) / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"

# A shell that starts the tests in the background lets them ignore SIGINT, and what they start inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every machine and day: a red test is red for everybody. Time is judged by the test's limit.
settings.register_profile("evalfleet", deadline=None, derandomize=True, database=None)
# `pytest --hypothesis-profile search` looks for new ones.
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("evalfleet")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, as the product does."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the developer's own home, variables and colours out of the tests."""
    for name in ("EVALFLEET_DEBUG", "EVALFLEET_RUNNER_PYTHON", "EVALFLEET_LOG_LEVEL", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EVALFLEET_HOME", str(tmp_path_factory.getbasetemp() / "no-home"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder that does not exist yet."""
    return tmp_path / "home"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server, one for all tests of a process."""
    from tests.support.postgres import running  # its driver takes a while to load

    with running() as server:
        yield server
