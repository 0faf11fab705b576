"""The built-in benchmarks and agents keep the contracts of every benchmark and agent."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.chat import ChatServer, completion, script

from evalfleet.agents.base import AgentClass, Observation, TaskPrompt
from evalfleet.agents.llm.agent import Llm
from evalfleet.agents.oracle import Oracle
from evalfleet.agents.random import RandomAgent
from evalfleet.benchmarks.base import Benchmark
from evalfleet.benchmarks.miniwob.benchmark import Miniwob
from evalfleet.config import Settings
from evalfleet.testing.agent_contract import AgentContract
from evalfleet.testing.benchmark_contract import BenchmarkContract
from evalfleet.testing.pages import looking


class TestMiniwob(BenchmarkContract):
    sample = "click-button"

    @pytest.fixture
    def benchmark(self) -> Benchmark:
        return Miniwob(Settings(home=Path()))


class TestRandom(AgentContract):
    @pytest.fixture
    def agent(self) -> AgentClass:
        return RandomAgent


class TestOracle(AgentContract):
    @pytest.fixture
    def agent(self) -> AgentClass:
        return Oracle

    @pytest.fixture
    def prompt(self) -> TaskPrompt:
        return TaskPrompt(benchmark="miniwob", task="click-button", goal='Click on the "Ok" button.', seed=7)

    @pytest.fixture
    def seen(self, prompt: TaskPrompt) -> Observation:
        return looking(prompt.goal, "Cancel", "Ok")


class TestMiniwobWithAModel(BenchmarkContract):
    """An agent with options and secrets changes nothing about the tasks' validity."""

    agent = "llm"
    sample = "click-button"
    more = {"model": "stub", "base_url": "http://127.0.0.1:9/v1"}  # noqa: RUF012 - as the contract declares it
    has_episodes = False  # nobody answers there; acceptance/benchmarks/test_llm_runs.py lets a model act

    @pytest.fixture
    def benchmark(self) -> Benchmark:
        return Miniwob(Settings(home=Path()))


class TestLlm(AgentContract):
    @pytest.fixture
    def agent(self) -> AgentClass:
        return Llm

    @pytest.fixture
    def prompt(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskPrompt]:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        reply = {"thought": "there", "actions": [{"do": "click", "x": 40, "y": 50}, {"do": "press", "key": "Enter"}]}
        with ChatServer(script(completion(json.dumps(reply)))) as server:
            options = {"base_url": server.url, "model": "stub"}
            yield TaskPrompt(benchmark="contract", task="click-ok", goal='Click "Ok".', seed=7, options=options)
