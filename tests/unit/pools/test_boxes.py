"""How long the box of a machine that is gone is kept: pure decisions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from evalfleet.model import DesiredState, HostState, JsonObject, PoolHost
from evalfleet.pools.machine.facts import BOX_KEPT_S, MachineFacts, keeps_box

AT = 1_800_000_000.0
BOX: JsonObject = {"box": "/boxes/w-1-1"}
HOST = PoolHost(
    name="w-1", pool="p", number=1, desired=DesiredState.RUNNING, state=HostState.LOST, reason=None, readiness_check=None,
    facts=BOX, usd_per_hour=1.0, kept_usd_per_hour=0.0, made_at=AT, allocated_since=None, allocated_s=0.0,
    created_at=AT, updated_at=AT, gone_at=None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("state", "facts", "after_s", "has_work", "kept"),
    [
        (HostState.LOST, {**BOX, "lost_at": AT}, 0.0, True, True),
        (HostState.LOST, {**BOX, "lost_at": AT}, BOX_KEPT_S - 1, True, True),
        (HostState.LOST, {**BOX, "lost_at": AT}, BOX_KEPT_S, True, False),  # it does not stay for ever
        (HostState.LOST, {**BOX, "lost_at": AT}, 0.0, False, False),  # everything is collected
        (HostState.LOST, {"lost_at": AT}, 0.0, True, False),  # a VM has no box
        (
            HostState.LOST,
            BOX,
            BOX_KEPT_S,
            True,
            False,
        ),  # an older version wrote no moment: the last change of the row counts
        (HostState.DRAINING, BOX, 10 * BOX_KEPT_S, True, True),  # it is not lost yet
    ],
)
def test_a_box_is_kept_while_it_may_hold_results_but_not_for_ever(
    state: HostState, facts: JsonObject, after_s: float, has_work: bool, kept: bool
) -> None:
    one = replace(HOST, state=state, facts={**MachineFacts().to_json(), **facts})
    assert keeps_box(one, AT + after_s, has_work=has_work) is kept
