"""Polling is quick in a conversation, rare without one, and its price is known."""

from __future__ import annotations

import pytest

from evalfleet.hosts.mailbox.costs import READ_USD, WRITE_USD, box_costs
from evalfleet.hosts.mailbox.pilot_view import Beat
from evalfleet.pilot.carrier import Traffic
from evalfleet.pilot.pace import BLOBS, FOLDER, Pace


def polls(pace: Pace, *, busy: bool, found_every_s: float | None = None) -> int:
    """Requests of one poller in an hour."""
    pauses, now, count, found_at = pace.start(), 0.0, 0, 0.0
    while now < 3600:
        if found_every_s is not None and now - found_at >= found_every_s:
            pauses.found()
            found_at = now
        now += pauses.next(busy=busy)
        count += 1
    return count


@pytest.mark.parametrize(("busy", "most"), [(False, 3610), (True, 6020)])
def test_a_quiet_hour_has_few_requests(busy: bool, most: int):
    assert BLOBS.per_hour(busy=busy) <= polls(BLOBS, busy=busy) <= most


def test_a_conversation_every_five_seconds_is_bounded_too():
    assert polls(BLOBS, busy=True, found_every_s=5.0) < 2.5 * BLOBS.per_hour(busy=True)


@pytest.mark.parametrize("pace", [BLOBS, FOLDER])
@pytest.mark.parametrize("busy", [True, False])
def test_a_message_is_found_within_two_seconds(pace: Pace, busy: bool):
    pauses = pace.start()
    assert all(pauses.next(busy=busy) <= 1.0 for _ in range(100))
    pauses.found()
    assert pauses.next(busy=busy) <= 0.2


def test_costs_are_those_of_both_sides():
    beat = Beat(
        number=9,
        generation=1,
        at=7200.0,
        started_at=0.0,
        reads=6000,
        writes=500,
        controllers_reads=4000,
        controllers_writes=1500,
    )
    costs = box_costs(beat, "https://x.blob.core.windows.net/box")
    assert costs.requests == 12_000
    assert costs.requests_per_hour == 6000
    assert costs.usd == pytest.approx(10_000 * READ_USD + 2000 * WRITE_USD) == pytest.approx(0.014)
    assert costs.usd_per_hour == pytest.approx(0.007)
    assert box_costs(beat, "/shared/box").usd_per_hour == 0
    assert box_costs(beat, "/shared/box").requests_per_hour == 6000


def test_requests_are_reported_once():
    traffic = Traffic()
    traffic.read()
    traffic.write()
    traffic.deletion()
    assert traffic.unreported() == (1, 1)
    assert traffic.unreported() == (0, 0)
    traffic.read()
    assert traffic.unreported() == (1, 0)
