"""What all changes of a run share: the run, the thread that waits for its controller, and who drives it afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import msgspec
from aiohttp import web

from evalfleet.errors import Refused
from evalfleet.model import Run
from evalfleet.operations.runs.steer import Changed
from evalfleet.store.store import Store
from evalfleet.web.answers import told
from evalfleet.web.context import Site, bearer_of

C = TypeVar("C", bound=Changed)

_MOST_WAITING = 8  # for one controller: a stopped one must not hold up what is asked of others


class Steering:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._waiting: Counter[str] = Counter()  # for the controller of each run

    async def run(self, request: web.Request) -> Run:
        """The run in the address. Raises NotFound, AmbiguousId."""
        text = request.match_info["run"]
        return await self._site.readers.call(lambda store: store.runs.find(text))

    async def change(self, request: web.Request, run: Run, change: Callable[[Store, Run, str], C]) -> C:
        """Make the change, or have the run's controller make it. `change` is also given the name of the token that asks."""
        by = str(bearer_of(request))
        if self._waiting[run.id] >= _MOST_WAITING:
            raise Refused(f"the controller of run {run.id} does not answer, and {_MOST_WAITING} wait for it already")
        self._waiting[run.id] += 1
        try:
            return await self._site.write(lambda store: change(store, store.runs.get(run.id), by), waits=True)
        finally:
            self._waiting[run.id] -= 1

    async def go_on(self, run: Run) -> str | None:
        """See to it that tasks which wait again are driven. Returns the controller that drives them; None: this server will."""
        driver = await self._site.readers.call(lambda store: store.runs.driver(run.id))
        if driver is None:
            await self.drive(run, "resume")
        return driver

    async def drive(self, run: Run, command: str) -> None:
        if self._site.run_supervisor is None:
            raise Refused(
                f"done, but no controller drives it now: `evalfleet {command} {run.id}`, or start `evalfleet serve`"
            )
        await self._site.run_supervisor.request(run.id)

    async def answer(self, answer: Changed) -> web.Response:
        """The answer, with the state that the run is in now."""
        state = await self._site.readers.call(lambda store: store.runs.get(answer.run).state)
        return told(msgspec.structs.replace(answer, state=state))
