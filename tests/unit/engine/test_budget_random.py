"""Claims, reports, losses, late returns and deaths of controllers in any order: the books say what a ledger outside says, and the
budget holds.

`MONEY_EXAMPLES=2000 pytest tests/unit/engine/test_budget_random.py` for a long round with fresh examples.
"""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st
from msgspec import Struct
from tests.support.engine_books import Books

from evalfleet.model import TaskSpec

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
EXAMPLES = int(os.environ.get("MONEY_EXAMPLES", "40"))
TIMEOUT_S = 50.0
CENT = 1e-6
ACTIONS = ("wait", "report", "report", "end", "end", "fail", "lose", "return", "kill")


class Page(Struct):
    """What the ledger knows of one attempt; it never looks into the store."""

    price: float
    bound: float | None
    begun: float
    reported: float = 0.0
    booked: float | None = None  # None: it runs
    ran_s: float = 0.0

    def so_far(self, now: float) -> float:
        return self.booked if self.booked is not None else self.price * (now - self.begun) + self.reported

    def left(self, now: float) -> float:
        """What it may still report without breaking its word."""
        return 1e9 if self.bound is None else max(0.0, self.bound - self.price * (now - self.begun) - self.reported)


class Ledger:
    """Drives a run by words, and keeps the ledger."""

    def __init__(self, home: Path, rng: random.Random, price: float, bounds: list[float | None], budget: float) -> None:
        specs = [
            TaskSpec(key=f"t_{turn}", domain="t", command=("x",), max_cost_usd=bound)
            for turn, bound in enumerate(bounds, 1)
        ]
        self.rng, self.price, self.bounds, self.budget = rng, price, bounds, budget
        self.pages: dict[str, Page] = {}
        self.ghosts: dict[str, float] = {}  # given up, and perhaps still at work: until when their runner lets them
        self.window, self.dearest, self.known = 1, 0.0, False
        self.books = Books(
            home, specs, slots=16, price=price * 3600.0, budget_usd=budget, timeout_s=TIMEOUT_S, attempts=3
        )
        self.admit()

    @property
    def now(self) -> float:
        return self.books.clock()

    @property
    def live(self) -> list[str]:
        return [one for one, page in self.pages.items() if page.booked is None]

    def total(self) -> float:
        return sum(page.so_far(self.now) for page in self.pages.values())

    def admit(self, *seen: object) -> None:
        """A step; what it launches begins, and must have been allowed."""
        before = len(self.live)
        for attempt in self.books.start(*seen):  # pyright: ignore[reportArgumentType]
            bound = self.bounds[int(attempt.split(".")[1]) - 1]
            if bound is None:
                unsure = sum(self.pages[one].bound is None for one in self.live)
                assert unsure < self.window, f"{unsure + 1} of unknown cost in flight after {self.window - 1} confirmed"
            assert self.total() <= self.budget + CENT, f"admitted although ${self.total()} of ${self.budget} are spent"
            self.pages[attempt] = Page(price=self.price, bound=bound, begun=self.books.began[attempt])
        assert before <= len(self.live)

    def close(self, attempt: str, cost: float, *, verdict: bool) -> None:
        page = self.pages[attempt]
        page.booked = max(page.booked or 0.0, cost)
        if verdict:
            self.window += not self.known or cost <= self.dearest + 1e-9
            self.known = True
        self.dearest = max(self.dearest, cost)

    def do(self, action: str) -> None:
        books, rng = self.books, self.rng
        some = rng.choice(self.live) if self.live else None
        if action == "wait":
            self.wait(rng.choice((0.3, 1.0, 5.0)))
        elif action == "kill":
            books.kill()
            again = [books.reports(one, self.pages[one].reported) for one in self.live if self.pages[one].reported]
            self.admit(*again)  # a runner tells the next controller what it does not have yet
        elif action == "return" and self.ghosts:
            self.come_back(rng.choice(list(self.ghosts)))
        elif some is not None:
            page = self.pages[some]
            if action == "report":
                page.reported += rng.choice((0.01, 0.2, 1.0)) * min(1.0, page.left(self.now))
                self.admit(books.reports(some, page.reported))
            elif action in ("end", "fail"):
                ran = self.now - page.begun
                self.close(some, page.price * ran + page.reported, verdict=action == "end")
                self.admit(books.ends(some, ran or 1e-9, page.reported, exit_code=int(action == "fail")))
            elif action == "lose":
                page.ran_s = self.now - page.begun
                self.close(some, page.price * page.ran_s + page.reported, verdict=False)
                self.ghosts[some] = page.begun + TIMEOUT_S
                self.admit(books.lost(some))

    def wait(self, seconds: float) -> None:
        """Time passes; runners end what reaches its limits."""
        self.books.clock.advance(seconds)
        for one in self.live:
            page = self.pages[one]
            ran = min(TIMEOUT_S, self.now - page.begun)
            if page.bound is not None and page.price > 0:
                ran = min(ran, (page.bound - page.reported) / page.price)
            if ran < self.now - page.begun:
                self.close(one, page.price * ran + page.reported, verdict=False)
                self.admit(self.books.ends(one, ran or 1e-9, page.reported, exit_code=1))
        self.ghosts = {one: until for one, until in self.ghosts.items() if until >= self.now}
        self.admit()

    def come_back(self, attempt: str) -> None:
        """A given-up attempt went on meanwhile, reported more, and ended, well or not."""
        del self.ghosts[attempt]
        page = self.pages[attempt]
        ran = min(TIMEOUT_S, self.now - page.begun)
        if page.bound is not None and page.price > 0:
            ran = min(ran, (page.bound - page.reported) / page.price)
        ran = max(ran, page.ran_s)
        left = 1.0 if page.bound is None else max(0.0, page.bound - page.price * ran - page.reported)
        page.reported += self.rng.choice((0.0, 0.5, 1.0)) * left
        is_well = self.rng.random() < 0.5
        end = self.books.ends(attempt, ran or 1e-9, page.reported, exit_code=int(not is_well))
        self.close(attempt, page.price * ran + page.reported, verdict=is_well)
        self.admit(end)

    def check(self, word: str) -> None:
        if word == "wait":  # what was reported just now is not stored yet
            assert self.books.spent == pytest.approx(self.total(), abs=CENT)
        assert {one.id: one.cost_usd for one in self.books.store.attempts.all(self.books.run.id) if one.outcome} == {
            one: pytest.approx(page.booked, abs=CENT) for one, page in self.pages.items() if page.booked is not None
        }
        booked = sum(page.booked for page in self.pages.values() if page.booked is not None)
        assert self.books.dispatcher._budget._spent_usd == pytest.approx(booked, abs=CENT)
        if None not in self.bounds:
            assert self.total() <= self.budget + CENT, "every task stated what it costs at most"


def play(seed: int, words: list[str], price: float, bounds: list[float | None], budget: float) -> Ledger:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        ledger = Ledger(Path(folder) / "home", random.Random(seed), price, bounds, budget)
        for word in words:
            if ledger.books.store.runs.get(ledger.books.run.id).state != "running":
                break
            ledger.do(word)
            ledger.check(word)
        ledger.books.store.close()
    return ledger


WORDS = st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=60)
BOUND = st.sampled_from((0.5, 1.0, 2.0, 5.0))
SETTINGS = hypothesis.settings(max_examples=EXAMPLES, deadline=None, derandomize="MONEY_EXAMPLES" not in os.environ)


@SETTINGS
@hypothesis.given(
    seed=st.integers(0, 1 << 30),
    words=WORDS,
    price=st.sampled_from((0.0, 0.05)),
    bounds=st.lists(BOUND, min_size=12, max_size=12),
    budget=st.sampled_from((1.0, 4.0, 10.0)),
)
def test_a_budget_is_never_passed_where_tasks_state_their_costs(
    seed: int, words: list[str], price: float, bounds: list[float | None], budget: float
):
    play(seed, words, price, bounds, budget)


@SETTINGS
@hypothesis.given(
    seed=st.integers(0, 1 << 30),
    words=WORDS,
    price=st.sampled_from((0.0, 0.05)),
    bounds=st.lists(st.none() | BOUND, min_size=12, max_size=12),
    budget=st.sampled_from((1.0, 4.0, 10.0)),
)
def test_books_equal_the_ledger_and_what_is_in_flight_doubles_at_most(
    seed: int, words: list[str], price: float, bounds: list[float | None], budget: float
):
    play(seed, words, price, bounds, budget)
