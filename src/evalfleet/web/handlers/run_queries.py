"""The reading half of the API. Every handler is a question to `queries`, asked in a thread and answered for all who ask the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fnmatch import fnmatchcase

from aiohttp import web
from msgspec import Struct

from evalfleet import __version__
from evalfleet.answers.alerts import AlertChannel, AlertPage
from evalfleet.answers.attempts import LogPiece
from evalfleet.answers.comparison import Comparison
from evalfleet.answers.pools import BackendList, PoolList
from evalfleet.answers.runs import EventPage, EventRow
from evalfleet.answers.server import BenchmarkList, Me, RequestAnswer
from evalfleet.daemon.alerts import state as alerts
from evalfleet.model import RunFilter, RunState, TaskState
from evalfleet.operations.benchmarks import listed
from evalfleet.operations.controllers import controller_list
from evalfleet.operations.machines.pools import backends, status
from evalfleet.operations.runs.ownership import tags_of
from evalfleet.report.pools import pool_count
from evalfleet.report.terminal.events import event_row
from evalfleet.store.reader import StoreReader
from evalfleet.web import params, queries
from evalfleet.web.answers import answered
from evalfleet.web.context import Handlers, bearer_of, place_of
from evalfleet.web.handlers import attempts
from evalfleet.web.handlers.attempts import Stream, Wanted
from evalfleet.web.queries import Choice, Page

_RUN_STATES = tuple(str(state) for state in RunState)
_TASK_STATES = tuple(str(state) for state in TaskState)


class Reading(Handlers):
    """Handlers of the role reader."""

    async def me(self, request: web.Request) -> web.Response:
        bearer = bearer_of(request)
        drives, home = self._site.run_supervisor is not None, str(self._site.settings.home)

        def ask(store: StoreReader) -> Me:
            return Me(
                role=bearer.role,
                name=bearer.name,
                user=bearer.user,
                version=__version__,
                drives=drives,
                home=home,
                now=store.now(),
                event=store.events.last_number(),
            )

        return await self._told(None, ask)

    async def controllers(self, request: web.Request) -> web.Response:
        return await self._told(("controllers",), controller_list)

    async def runs(self, request: web.Request) -> web.Response:
        page = params.page(request)
        wanted = RunFilter(
            states=params.words(request, "state", _RUN_STATES),
            search=params.text(request, "search"),
            owner=params.text(request, "owner"),
            project=params.text(request, "project"),
            tags=tags_of(params.texts(request, "tag")),
        )
        key = ("runs", page, str(wanted))
        return await self._told(key, lambda store: queries.runs(store, page, wanted))

    async def run(self, request: web.Request) -> web.Response:
        text = _run(request)
        return await self._told(("run", text), lambda store: queries.run(store, text))

    async def tasks(self, request: web.Request) -> web.Response:
        text, page = _run(request), params.page(request)
        choice = Choice(
            states=params.words(request, "state", _TASK_STATES),
            domain=params.text(request, "domain"),
            search=params.text(request, "search"),
            key=params.text(request, "key"),
        )
        return await self._told(("tasks", text, page, choice), lambda store: queries.tasks(store, text, page, choice))

    async def grid(self, request: web.Request) -> web.Response:
        text = _run(request)
        return await self._told(("grid", text), lambda store: queries.grid(store, text))

    async def lanes(self, request: web.Request) -> web.Response:
        text, since = _run(request), params.moment(request, "after_at")
        return await self._told(("lanes", text, since), lambda store: queries.lanes(store, text, since))

    async def series(self, request: web.Request) -> web.Response:
        text = _run(request)
        return await self._told(("series", text), lambda store: queries.series(store, text))

    async def host_series(self, request: web.Request) -> web.Response:
        text, host, since = _run(request), params.text(request, "host"), params.moment(request, "since_at")
        return await self._told(
            ("host_series", text, host, since), lambda store: queries.host_series(store, text, host, since)
        )

    async def failures(self, request: web.Request) -> web.Response:
        text, page = _run(request), params.page(request, parts=3)
        kind, blame = params.text(request, "kind"), params.text(request, "blame")
        return await self._told(
            ("failures", text, page, kind, blame),
            lambda store: queries.failures(store, text, page, kind, blame),
        )

    async def queue(self, request: web.Request) -> web.Response:
        text, limit = _run(request), params.page(request).limit
        return await self._told(("queue", text, limit), lambda store: queries.queue(store, text, limit))

    async def events(self, request: web.Request) -> web.Response:
        text, page = _run(request), params.page(request)
        back = params.word(request, "order", ("asc", "desc")) == "desc"
        name = "before" if back else "after"
        edge = params.whole(request, name, None)
        pattern, task = params.text(request, "type"), params.text(request, "task")

        def ask(store: StoreReader) -> EventPage:
            run_id = store.runs.find(text).id
            start = int(page.cursor) if page.cursor is not None else edge
            return _events(store, run_id, start, page, pattern, task, back=back)

        return await self._told(None, ask)

    async def task(self, request: web.Request) -> web.Response:
        text, number, home = _run(request), params.number(request, "task"), self._site.home
        return await self._told(None, lambda store: attempts.task(store, home, text, number))

    async def attempt(self, request: web.Request) -> web.Response:
        text, task, number = _attempt(request)
        home = self._site.home
        seen = await self._site.remote.seen_or_problem(await place_of(self._site, request))
        return await self._told(None, lambda store: attempts.attempt(store, home, text, task, number, seen))

    async def log(self, request: web.Request) -> web.Response:
        offset, tail = params.whole(request, "offset", None), params.whole(request, "tail", None, 0, 1 << 20)
        limit = params.whole(request, "limit", 1 << 18, 1, 1 << 20) or 1
        stream: Stream = "stderr" if request.match_info["stream"] == "stderr" else "stdout"
        wanted = Wanted(stream=stream, offset=offset, limit=max(limit, tail or 0), tail=tail)
        found = await place_of(self._site, request)
        remote = self._site.remote
        seen = await remote.seen(found)
        if seen is not None:
            size = seen.logs.get(stream, 0)
            data = await remote.log(found, stream, wanted.begin(size), wanted.limit)
            return await self._told(None, lambda _: attempts.log_row(found, wanted, size, data))
        text, task, number = _attempt(request)
        home = self._site.home

        def ask(store: StoreReader) -> LogPiece:
            return attempts.log(attempts.place(store, home, text, task, number), wanted)

        return await self._told(None, ask)

    async def compare(self, request: web.Request) -> web.Response:
        a, b = params.text(request, "a"), params.text(request, "b")
        params.some(a and b, "one of the runs `a` and `b`")
        different = params.text(request, "different") == "allowed"

        def ask(store: StoreReader) -> Comparison:
            return queries.compare(store, a or "", b or "", allow_different=different)

        return await self._told(("compare", a, b, different), ask)

    async def pools(self, request: web.Request) -> web.Response:
        def ask(store: StoreReader) -> PoolList:
            found = [status(self._site.settings, store, pool) for pool in store.pools.all()]
            return PoolList(pools=[pool_count(pool) for pool in found])

        return await self._told(("pools",), ask)

    async def pool(self, request: web.Request) -> web.Response:
        name, settings = request.match_info["pool"], self._site.settings
        return await self._told(("pool", name), lambda store: status(settings, store, store.pools.get(name)))

    async def alerts(self, request: web.Request) -> web.Response:
        page, text = params.page(request), params.text(request, "run")
        state = params.word(request, "state", ("firing", "resolved"))
        settings = self._site.settings.alerts

        def ask(store: StoreReader) -> AlertPage:
            run = store.runs.find(text).id if text else None
            before = int(page.cursor) if page.cursor else None
            found, following = alerts.listed(store, run=run, state=state, limit=page.limit, before=before)
            return AlertPage(
                alerts=found,
                next=None if following is None else str(following),
                rules=alerts.rules(settings),
                channels=[AlertChannel(channel=name) for name in settings.channels],
            )

        return await self._told(("alerts", page, text, state), ask)

    async def benchmarks(self, _request: web.Request) -> web.Response:
        settings = self._site.settings
        return await self._told(("benchmarks",), lambda _: BenchmarkList(benchmarks=listed(settings)))

    async def backends(self, _request: web.Request) -> web.Response:
        return await self._told(("backends",), lambda _: BackendList(backends=backends()))

    async def answer(self, request: web.Request) -> web.Response:
        number = params.number(request, "request")
        return await self._told(None, lambda store: RequestAnswer(number=number, answer=store.requests.answer(number)))

    async def _told(self, key: Hashable | None, ask: Callable[[StoreReader], Struct]) -> web.Response:
        return await answered(self._site, key, ask)


def _run(request: web.Request) -> str:
    return request.match_info["run"]


def _attempt(request: web.Request) -> tuple[str, int, int]:
    return _run(request), params.number(request, "task"), params.number(request, "attempt")


def _events(
    store: StoreReader, run_id: str, start: int | None, page: Page, pattern: str | None, task: str | None, *, back: bool
) -> EventPage:
    """Up to a page of those that fit. Looks at a bounded number, so that a rare type does not hold a thread for long."""
    found: list[EventRow] = []
    last = start
    for _ in range(20):
        read = (
            store.events.before(run_id, last, params.MOST)
            if back
            else store.events.of_run(run_id, last or 0, params.MOST)
        )
        for event in read:
            last = event.number
            if (pattern is None or fnmatchcase(event.type, pattern)) and (task is None or event.task == task):
                found.append(event_row(event))
                if len(found) == page.limit:
                    return EventPage(events=found, next=str(last))
        if len(read) < params.MOST:
            return EventPage(events=found, next=None)
    return EventPage(events=found, next=str(last))
