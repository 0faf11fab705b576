"""Plans on the page: made by its form, drawn as time against money, and shown beside what came."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from tests.support.fleet import Fleet
from tests.support.page_view import BUILT, CHROMIUM, MISSING, viewed
from tests.support.report_builders import RunBuilder
from tests.support.web_server import serve

from evalfleet.store.open import open_store

pytestmark = [pytest.mark.skipif(CHROMIUM is None or not BUILT, reason=MISSING), pytest.mark.slow]


def followed(home: Path, plan: str) -> str:
    """A run of two tasks that follows the plan, and is over."""
    builder = RunBuilder(home, ["a_1", "a_2"], name="planned").begin()
    builder.store.plans.take(plan, builder.run.id)
    builder.attempt("a_1", 1.0, seconds=600, cost_usd=2.0)
    builder.attempt("a_2", 1.0, seconds=600, cost_usd=2.0)
    builder.complete().leave().close()
    return builder.run.id


def test_a_plan_is_made_drawn_and_compared_with_its_run(fleet: Fleet, tmp_path: Path):
    with closing(open_store(fleet.home)):
        pass
    server = serve(fleet, "--no-drive")
    with viewed(server, tmp_path) as view:
        view.click("Plans")
        view.sees("No plans")
        view.click("New plan")
        view.until("document.querySelector('[name=benchmark]')?.value === 'waa'", "the benchmarks")
        view.fill(deadline="180", size="huge")
        view.click("Create the plan")
        view.until("document.querySelector('.refused')?.innerText.includes('huge')", "what the server said against it")
        view.fill(size="", budget_usd="8")
        view.click("Create the plan")
        view.sees("154 tasks of waa, within 3.0 h and for at most $8.00", "tasks of 8 minutes on average")
        plan = str(view.js("location.pathname")).rpartition("/")[2]
        facts = server.get(f"plans/{plan}")
        drawn = view.js("[...document.querySelectorAll('svg [data-option]')].map((one) => Number(one.dataset.option))")
        assert drawn == list(range(len(facts["options"]))), "every fleet of the front has its point"
        assert view.js("document.querySelector('path.chosen[data-option]').dataset.option") == str(facts["chosen"])
        assert view.js("document.querySelector('tr.chosen').dataset.fleet") == str(facts["chosen"])
        assert view.js("document.querySelectorAll('.limit').length") == 2, "the deadline and the budget"
        view.sees(f"evalfleet run waa --plan {plan}", "such runs a month")
        view.look_at({"plan": f"/plans/{plan}", "plan-new": "/plans/new"})
        run = followed(fleet.home, plan)
        view.open(f"/runs/{run}")
        view.sees("Plan and truth", "20 min below the interval", "$4.00")
        view.look_at({"run-planned": f"/runs/{run}", "plan-truth": f"/plans/{plan}", "plans": "/plans"})
        view.until("document.querySelector('[data-plan]')", "the list")
        view.click(plan)
        view.until("document.querySelector('[data-actual]')", "the truth in the chart")
        view.sees("Plan and truth", f"run {run}")
