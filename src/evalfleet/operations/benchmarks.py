"""The benchmarks that are installed here."""

from __future__ import annotations

from evalfleet.agents import registry as agents
from evalfleet.answers.server import BenchmarkRow
from evalfleet.benchmarks import registry as benchmarks
from evalfleet.benchmarks.base import Benchmark, OwnAgents
from evalfleet.config import Settings


def listed(settings: Settings) -> list[BenchmarkRow]:
    return [_row(name, settings) for name in benchmarks.names()]


def _row(name: str, settings: Settings) -> BenchmarkRow:
    try:
        return _brief(benchmarks.find(name, settings))
    except Exception as error:  # noqa: BLE001 - another package's code; the others are shown all the same
        said = " ".join(str(error).split()) or type(error).__name__
        return BenchmarkRow(name=name, title="", ready=False, broken=said, tasks=0, domains=[], agents=[])


def _brief(benchmark: Benchmark) -> BenchmarkRow:
    ready = all(need.present for need in benchmark.requirements())
    catalogue = benchmark.catalogue()
    return BenchmarkRow(
        name=benchmark.name,
        title=benchmark.title,
        broken=None,
        ready=ready,
        tasks=len(catalogue),
        domains=sorted({task.domain for task in catalogue}),
        agents=list(benchmark.agents) if isinstance(benchmark, OwnAgents) else agents.names(),
    )
