"""Which boxes may go: pure decisions."""

from __future__ import annotations

import pytest

from evalfleet.hosts.mailbox.boxes import KeptBox
from evalfleet.pools.cloud.box_reaper import BoxNeeds, find_boxes, others_boxes

US, FORMER, OTHER = "a" * 32, "b" * 32, "c" * 32
NEEDS = BoxNeeds(homes=(US, FORMER), addresses={"/needed"})
LABEL = f"me@here-{OTHER[:12]}"


def box(home: str, address: str, pool: str = "p") -> KeptBox:
    return KeptBox(home=home, pool=pool, address=address)


def goes(needs: BoxNeeds, *boxes: KeptBox) -> list[str]:
    return [each.box.address for each in find_boxes(boxes, needs)]


@pytest.mark.parametrize("home", [US, FORMER])
def test_of_ours_those_go_that_no_machine_needs(home: str):
    assert goes(NEEDS, box(home, "/needed"), box(home, "/left"), box(home, "/old", "gone")) == ["/left", "/old"]


def test_of_others_none_goes_and_they_are_counted():
    theirs = [box(OTHER, "/x"), box(OTHER, "/y")]
    assert goes(NEEDS, *theirs) == []
    assert others_boxes([box(US, "/needed"), *theirs], NEEDS) == {OTHER[:12]: 2}


@pytest.mark.parametrize("name", [LABEL, OTHER[:12]])
@pytest.mark.parametrize(
    ("in_use", "forced", "expected"),
    [
        ((), False, ["/x"]),
        ({(LABEL, "p")}, False, []),
        ({(LABEL, "q")}, False, ["/x"]),  # its machines of another pool have other boxes
        ({(LABEL, "p")}, True, ["/x"]),
    ],
)
def test_of_a_named_home_those_go_whose_pool_has_no_machine(
    name: str, in_use: set[tuple[str, str]], forced: bool, expected: list[str]
):
    needs = BoxNeeds(homes=(US,), addresses=(), named=[name], forced=forced, in_use=in_use)
    assert goes(needs, box(OTHER, "/x"), box("d" * 32, "/stranger")) == expected
