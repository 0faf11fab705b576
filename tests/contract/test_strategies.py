"""Every strategy against the contract."""

from __future__ import annotations

import pytest
from tests.contract.strategies import Make, StrategyContract

from evalfleet.tune.strategies.base import strategy_of


class TestGrid(StrategyContract):
    @pytest.fixture
    def make(self) -> Make:
        return lambda space, objective, seed: strategy_of("grid", space, objective, seed)


class TestRandom(StrategyContract):
    @pytest.fixture
    def make(self) -> Make:
        return lambda space, objective, seed: strategy_of("random", space, objective, seed)


@pytest.mark.filterwarnings("ignore::Warning:optuna")
class TestBayesian(StrategyContract):
    @pytest.fixture
    def make(self) -> Make:
        pytest.importorskip("optuna")
        return lambda space, objective, seed: strategy_of("bayesian", space, objective, seed)
