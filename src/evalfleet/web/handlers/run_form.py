"""What the forms of new runs and pools offer: benchmarks, agents and kinds of pools."""

from __future__ import annotations

from aiohttp import web

from evalfleet.agents import registry as agents
from evalfleet.answers.pools import BackendList
from evalfleet.answers.server import BenchmarkList, BenchmarkRow
from evalfleet.benchmarks import registry as benchmarks
from evalfleet.benchmarks.base import Benchmark, OwnAgents
from evalfleet.config import Settings
from evalfleet.operations.pools import backends
from evalfleet.web.answers import answered
from evalfleet.web.context import Site


class Choices:
    """Handler of the role reader."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def benchmarks(self, request: web.Request) -> web.Response:
        del request
        settings = self._site.settings
        return await answered(self._site, ("benchmarks",), lambda _: BenchmarkList(benchmarks=listed(settings)))

    async def backends(self, request: web.Request) -> web.Response:
        del request
        return await answered(self._site, ("backends",), lambda _: BackendList(backends=backends()))


def listed(settings: Settings) -> list[BenchmarkRow]:
    return [_row(name, settings) for name in benchmarks.names()]


def _row(name: str, settings: Settings) -> BenchmarkRow:
    try:
        return _brief(benchmarks.find(name, settings))
    except Exception as error:  # noqa: BLE001 - another package's code; the others are shown all the same
        said = " ".join(str(error).split()) or type(error).__name__
        return BenchmarkRow(name=name, title="", ready=False, broken=said, tasks=0, domains=[], agents=[])


def _brief(benchmark: Benchmark) -> BenchmarkRow:
    catalogue = benchmark.catalogue()
    return BenchmarkRow(
        name=benchmark.name,
        title=benchmark.title,
        broken=None,
        ready=all(need.present for need in benchmark.requirements()),
        tasks=len(catalogue),
        domains=sorted({task.domain for task in catalogue}),
        agents=list(benchmark.agents) if isinstance(benchmark, OwnAgents) else agents.names(),
    )
