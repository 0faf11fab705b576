"""A pool of tiers on the page: made by the form, and shown with the reason why each tier is used or not."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.support.fleet import Fleet
from tests.support.page_view import BUILT, CHROMIUM, MISSING, viewed
from tests.support.web_server import serve

from evalfleet.core.tiers import TierBreaker, TierTerms
from evalfleet.store.open import open_store

pytestmark = [pytest.mark.skipif(CHROMIUM is None or not BUILT, reason=MISSING), pytest.mark.slow]


def test_tiers_are_made_by_the_form_and_shown_with_their_reasons(fleet: Fleet):
    for name in ("lab", "attic"):
        hosts = fleet.folder / f"{name}.toml"
        hosts.write_text(f'[[host]]\nname = "{name}1"\naddress = "127.0.0.1"\nslots = 2\nprice_usd_per_hour = 0.5\n')
        fleet.json("pool", "create", name, "--hosts", str(hosts))
    with viewed(serve(fleet), fleet.folder) as view:
        view.go("/pools/new")
        view.sees("Other pools, in order (tiers)")
        view.js("document.querySelector('input[type=radio][value=tiers]').click()")
        view.fill(name="both", tiers="lab, attic", budget_usd="5")
        view.click("Create the pool")
        view.sees("Tiers", "4 workers at most", "not needed: no run uses the pool")
        with closing(open_store(fleet.home)) as store:
            tier = store.tiers.of_pool("both")[0]
            failed = TierBreaker().opened("lab1: no route to host", store.now(), TierTerms())
            store.tiers.move(tier, failed.to_json(), "tier.opened", {})
        view.sees("failed", "not used: lab1: no route to host", "tried again in")
        view.shoot("pool-tiers-1280-light")
