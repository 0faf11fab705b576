"""Unreachable is not failed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evalfleet.core.hosts.health import Health, Observation, OtherWay, cause_of, health_of

SEEN = Observation(last_answer_at=1000.0, lease_expires_at=1060.0)
GIVEN_UP = replace(SEEN, reconnects_failed=3, other_way=OtherWay.SILENT)


def test_a_silent_host_is_suspected():
    assert health_of(SEEN, 1015) is Health.HEALTHY
    assert health_of(SEEN, 1016) is Health.SUSPECT
    assert health_of(replace(SEEN, reconnects_failed=1), 1001) is Health.SUSPECT


def test_an_expired_lease_alone_loses_nothing():
    assert health_of(SEEN, 1e9) is Health.SUSPECT
    assert health_of(replace(SEEN, reconnects_failed=99), 1e9) is Health.SUSPECT


def test_it_is_given_up_after_everything_was_tried():
    assert health_of(GIVEN_UP, 1120) is Health.LOST
    assert health_of(GIVEN_UP, 1119) is Health.SUSPECT
    assert health_of(replace(GIVEN_UP, lease_expires_at=1500), 1120) is Health.SUSPECT
    assert health_of(replace(GIVEN_UP, reconnects_failed=2), 1120) is Health.SUSPECT


@pytest.mark.parametrize(
    ("way", "health"), [(OtherWay.GONE, Health.LOST), (OtherWay.EVICTED, Health.LOST), (OtherWay.ALIVE, Health.SUSPECT)]
)
def test_what_the_other_way_is_certain_of_decides(way: OtherWay, health: Health):
    assert health_of(replace(GIVEN_UP, other_way=way), 1e9) is health


def test_a_host_that_announced_its_end_needs_no_long_silence():
    doomed = replace(GIVEN_UP, preempted=True)
    assert health_of(doomed, 1001) is Health.LOST
    assert health_of(replace(doomed, reconnects_failed=2), 1001) is Health.SUSPECT
    assert health_of(replace(doomed, other_way=OtherWay.ALIVE), 1e9) is Health.SUSPECT


@pytest.mark.parametrize("doomed", [True, False])
@pytest.mark.parametrize("way", OtherWay)
def test_only_what_the_cloud_took_is_preempted(way: OtherWay, doomed: bool):
    cause = cause_of(replace(SEEN, other_way=way, preempted=doomed))
    assert cause == ("preempted" if doomed or way is OtherWay.EVICTED else "worker_lost")


@given(silence=st.floats(0, 1e6), lease=st.floats(-1e6, 1e6), failed=st.integers(0, 50), way=st.sampled_from(OtherWay))
def test_nothing_is_lost_without_asking(silence: float, lease: float, failed: int, way: OtherWay):
    seen = Observation(last_answer_at=0.0, lease_expires_at=lease, reconnects_failed=failed, other_way=way)
    if health_of(seen, silence) is Health.LOST:
        assert way in (OtherWay.SILENT, OtherWay.GONE, OtherWay.EVICTED)
