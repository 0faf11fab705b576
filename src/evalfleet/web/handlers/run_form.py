"""What the forms of new runs and pools offer: benchmarks, agents and kinds of pools."""

from __future__ import annotations

from aiohttp import web

from evalfleet.answers.pools import BackendList
from evalfleet.answers.server import BenchmarkList
from evalfleet.operations.benchmarks import listed
from evalfleet.operations.pools import backends
from evalfleet.web.answers import answered
from evalfleet.web.context import Handlers


class Choices(Handlers):
    """Handler of the role reader."""

    async def benchmarks(self, request: web.Request) -> web.Response:
        del request
        settings = self._site.settings
        return await answered(self._site, ("benchmarks",), lambda _: BenchmarkList(benchmarks=listed(settings)))

    async def backends(self, request: web.Request) -> web.Response:
        del request
        return await answered(self._site, ("backends",), lambda _: BackendList(backends=backends()))
