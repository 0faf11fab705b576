"""What all changes of a run share: they are asked of its controller, or done here where it has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from evalfleet.errors import Refused
from evalfleet.model import JsonObject, Run, Verb
from evalfleet.operations.steer import ask_or_do
from evalfleet.store.base.store import Store
from evalfleet.web.context import Site, bearer_of

_MOST_WAITING = 8  # for one controller: a stopped one must not hold up what is asked of others


class Steering:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._waiting: Counter[str] = Counter()  # for the controller of each run

    async def run(self, request: web.Request) -> Run:
        """The one that the address names. Raises NotFound, AmbiguousId."""
        text = request.match_info["run"]
        return await self._site.readers.call(lambda store: store.find_run(text))

    async def steer(
        self,
        request: web.Request,
        run: Run,
        verb: Verb,
        args: Mapping[str, Any],
        finish: Callable[[Store, Run], None] | None = None,
    ) -> JsonObject:
        """Do it, or have the run's controller do it. `finish` is called where nobody drives the run."""
        by = str(bearer_of(request))

        def act(store: Store) -> JsonObject:
            owned, answer = ask_or_do(store, store.run(run.id), verb, dict(args), by=by)
            if owned is not None:
                try:
                    if finish is not None:
                        finish(store, owned)
                finally:
                    store.leave(owned)
            return answer

        if self._waiting[run.id] >= _MOST_WAITING:
            raise Refused(f"the controller of run {run.id} does not answer, and {_MOST_WAITING} wait for it already")
        self._waiting[run.id] += 1
        try:
            return await self._site.write(act, waits=True)
        finally:
            self._waiting[run.id] -= 1

    async def go_on(self, run: Run) -> str | None:
        """See to it that somebody drives tasks that wait again. Returns who does already; None: this server will."""
        driver = await self._site.readers.call(lambda store: store.driver(run.id))
        if driver is None:
            await self.drive(run, "resume")
        return driver

    async def drive(self, run: Run, command: str) -> None:
        if self._site.run_supervisor is None:
            raise Refused(f"done, but nobody drives it now: `evalfleet {command} {run.id}`, or start `evalfleet serve`")
        await self._site.run_supervisor.request(run.id)

    async def now(self, run: Run, answer: JsonObject) -> web.Response:
        state = await self._site.readers.call(lambda store: store.run(run.id).state)
        return web.json_response({"run": run.id, "state": str(state), **answer})
