"""Why a pool or a run has stopped, on its page in a real Chromium: in words, and once."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.support.fleet import Fleet, wait_for
from tests.support.page_view import BUILT, CHROMIUM, MISSING, viewed
from tests.support.store.cases import drive
from tests.support.web_server import serve

from evalfleet.core.breaker import Breaker, Mark
from evalfleet.model import BreakerState, Kind
from evalfleet.pools.settings import PoolSettings
from evalfleet.store.open import open_store

pytestmark = [pytest.mark.skipif(CHROMIUM is None or not BUILT, reason=MISSING), pytest.mark.slow]

SPENT = "spent $5.02 of $5.00; `evalfleet pool scale lab --budget USD` allows more"
REFUSED = "the quota of eastus has 4 of 8 cores left"
OUTAGE = "the model is down"


def test_a_pool_says_why_it_makes_no_more_machines(fleet: Fleet, tmp_path: Path):
    made = msgspec.to_builtins(PoolSettings(size=("Standard_D8ds_v5",), workers=2, budget_usd=5.0))
    with closing(open_store(fleet.home)) as store:
        store.pools.create("lab", "azure-vm", made)
        store.pools.explain("lab", {"cause": "budget", "message": SPENT})
        store.pools.create("full", "azure-vm", made)
        store.pools.explain("full", {"cause": "quota", "message": REFUSED})
    with viewed(serve(fleet, "--no-drive"), tmp_path) as view:
        view.go("/pools/lab")
        view.sees("This pool has no machines")
        assert f"No more machines. {SPENT}" in view.text
        assert "Scale it to have some" not in view.text, "it would make none"
        view.go("/pools/full")
        view.sees("Breaker open.", REFUSED)
        assert view.text.count(REFUSED) == 1
        view.look_at({"pool-spent": "/pools/lab", "pool-refused": "/pools/full"})


def test_a_run_that_its_breaker_paused_says_why_once(fleet: Fleet, tmp_path: Path):
    mark = Mark(kind=Kind.SERVICE_FAILED, line=OUTAGE, evidence=OUTAGE, task="task_1", blamed=True)
    breaker = Breaker(state=BreakerState.OPEN, marks=(mark,))
    with closing(open_store(fleet.home)) as store:
        run = drive(store, 3)
        store.runs.store_breaker(run, breaker.to_json(), "breaker.opened", {"cause": str(breaker.cause)})
        store.runs.pause(
            run, {"cause": "breaker", "message": f"the breaker is open: {breaker.cause}, and 3 probes failed too"}
        )
    server = serve(fleet, "--no-drive")
    facts = f"runs/{run.id}"
    wait_for(
        lambda: sum(OUTAGE in one["text"] for one in server.get(facts)["problems"]) > 1, "an alert that repeats it"
    )
    with viewed(server, tmp_path) as view:
        view.go(f"/runs/{run.id}")
        view.sees("Paused (breaker).", OUTAGE)
        assert view.text.count(OUTAGE) == 1
        assert "Breaker open." not in view.text
        view.look_at({"run-paused": f"/runs/{run.id}"})
