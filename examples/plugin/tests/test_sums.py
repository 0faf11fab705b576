"""The plugin keeps the contracts of every benchmark and agent."""

from pathlib import Path

import pytest
from evalfleet_sums.agent import Adder
from evalfleet_sums.benchmark import SumEpisode, Sums

from evalfleet.agents.base import AgentClass, Press, Write
from evalfleet.benchmarks.base import Benchmark
from evalfleet.config import Settings
from evalfleet.testing.agent_contract import AgentContract
from evalfleet.testing.benchmark_contract import BenchmarkContract


class TestSums(BenchmarkContract):
    agent = "adder"

    @pytest.fixture
    def benchmark(self) -> Benchmark:
        return Sums(Settings(home=Path()))


class TestAdder(AgentContract):
    @pytest.fixture
    def agent(self) -> AgentClass:
        return Adder


def test_a_wrong_sum_scores_0():
    episode = SumEpisode("two-small", seed=1)
    episode.perform(Write(text="1"))
    assert episode.verdict() is None
    episode.perform(Press(key="Enter"))
    verdict = episode.verdict()
    assert verdict is not None
    assert verdict.score == 0.0
