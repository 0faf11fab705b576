"""What a new pool is given where nothing was said, and what its benchmark adds."""

from __future__ import annotations

import pytest

from evalfleet.pools.options import wanted_pool


def test_the_prefix_is_stored_with_the_pool_so_that_another_default_renames_nothing():
    assert wanted_pool({}, {"workers": 1})["prefix"] == "evalfleet"
    assert wanted_pool({}, {"workers": 1, "prefix": "waa-eval"})["prefix"] == "waa-eval"


@pytest.mark.parametrize(
    ("benchmark", "kvm"), [("waa", True), ("miniwob", False), ("not-installed", False), (None, False)]
)
def test_the_benchmark_says_whether_machines_need_kvm(benchmark: str | None, kvm: bool):
    assert wanted_pool({}, {"workers": 1, "benchmark": benchmark})["kvm"] is kvm
