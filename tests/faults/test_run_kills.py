"""Kill -9 of the controller of a run on a pool: every task has one verdict, none is run again, no machine is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.run_kills import rounds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.long
@pytest.mark.parametrize("seed", [1])
def test_a_run_on_a_pool_survives_its_controllers(tmp_path: Path, seed: int) -> None:
    died = rounds(tmp_path, seed, 4)
    print(f"seed {seed}: {died}")
    assert len(died) >= 3


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 116))
def test_a_run_on_a_pool_survives_fifty_more(tmp_path: Path, seed: int) -> None:
    died = rounds(tmp_path, seed, 4)
    print(f"seed {seed}: {died}")
    assert len(died) >= 3
