"""A run that a test drives step by step, with a clock of its own: hosts, their words and the deaths of controllers are a test's."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.engine_play import PATIENT

from evalfleet.engine.controller import take
from evalfleet.engine.dispatcher import Dispatcher
from evalfleet.engine.orders import Orders
from evalfleet.engine.placement.workers import WorkerTable
from evalfleet.engine.settings import EngineSettings
from evalfleet.hosts.base import AttemptEvent, HostInfo
from evalfleet.model import Attempt, Policy, Run, TaskSpec
from evalfleet.store.open import open_store
from evalfleet.testing.clock import FakeClock

SECOND = 3600.0  # as a price per hour: a dollar per second


class Books:
    """One run on hosts that all have `slots` workers, each for `price` dollars an hour."""

    def __init__(
        self,
        home: Path,
        specs: int | Sequence[TaskSpec] = 1,
        *,
        hosts: Sequence[str] = ("one",),
        slots: int = 1,
        price: float = SECOND,
        settings: EngineSettings = PATIENT,
        **policy: object,
    ) -> None:
        self.home, self.clock = home, FakeClock()
        self.hosts = {name: HostInfo(name=name, memory_mb=None, gpus=0, price_usd_per_hour=price) for name in hosts}
        self.numbers: dict[str, int] = {}  # of the last event of each attempt
        self.began: dict[str, float] = {}
        self._slots, self._settings = slots, settings
        self._launched: list[str] = []
        self.store = open_store(home, self.clock)
        made = [_spec(turn) for turn in range(1, specs + 1)] if isinstance(specs, int) else specs
        wanted: dict[str, object] = {"workers": 100, "timeout_s": 100.0, "retry_base_s": 0.001, "retry_cap_s": 0.001}
        wanted |= {"breaker": False, "max_lost": 1000, **policy}
        run = self.store.runs.submit("x", Policy(**wanted), made, folder="/", base_env={})  # pyright: ignore[reportArgumentType]
        self.run, self.dispatcher = self._driven(run)

    def _driven(self, run: Run) -> tuple[Run, Dispatcher]:
        taken = take(self.store, run)
        workers = WorkerTable(taken.policy.workers, [(name, self._slots) for name in self.hosts])
        dispatcher = Dispatcher(self.store, taken, self._settings, lambda _: {}, random.Random(1), workers)
        dispatcher.start()
        return taken, dispatcher

    def kill(self, hosts: Callable[[str], bool] = lambda _: True) -> None:
        """The controller dies where it stands, and another takes over; it reaches only these hosts."""
        self.store.close()
        self.store = open_store(self.home, self.clock)
        self.run, self.dispatcher = self._driven(self.store.runs.get(self.run.id))
        self.hosts = {name: info for name, info in self.hosts.items() if hosts(name)}

    def step(self, *seen: AttemptEvent, after_s: float = 0.0) -> Orders:
        self.clock.advance(after_s)
        orders = self.dispatcher.step(seen, list(self.hosts.values()))
        self._launched += [one.attempt_id for some in orders.launch.values() for one in some]
        return orders

    def start(self, *seen: AttemptEvent, after_s: float = 0.0) -> list[str]:
        """Begin what was launched since the last time, and now."""
        self.step(*seen, after_s=after_s)
        launched, self._launched = self._launched, []
        self.began |= dict.fromkeys(launched, self.clock())
        if launched:
            self.step(*(self.seen(one, "started") for one in launched), after_s=0.3)
        return launched

    def seen(self, attempt: str, kind: str, **data: object) -> AttemptEvent:
        self.numbers[attempt] = self.numbers.get(attempt, 0) + 1
        return AttemptEvent(attempt, self.numbers[attempt], self.clock(), kind, data)

    def reports(self, attempt: str, usd: float) -> AttemptEvent:
        """The task has reported so much in all."""
        return self.seen(attempt, "progress", cost_usd=usd, lines=[{"cost_usd": usd}])

    def ends(self, attempt: str, duration_s: float, usd: float = 0.0, exit_code: int = 0) -> AttemptEvent:
        end = {"cause": "exited", "exit_code": exit_code, "duration_s": duration_s, "reported_usd": usd}
        return self.seen(attempt, "ended", **end)

    def lost(self, attempt: str, cause: str = "worker_lost") -> AttemptEvent:
        """Nobody on its host tells the end."""
        return self.seen(attempt, "ended", cause=cause, message="gone")

    def attempt(self, attempt: str) -> Attempt:
        [found] = [one for one in self.store.attempts.all(self.run.id) if one.id == attempt]
        return found

    @property
    def spent(self) -> float:
        return self.store.costs.total_usd(self.run.id)


def _spec(turn: int) -> TaskSpec:
    return TaskSpec(key=f"t_{turn}", domain="t", command=("x",))
