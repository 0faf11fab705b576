"""What a new pool is given where nothing was said, and what its benchmark adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalfleet import config
from evalfleet.errors import InputError
from evalfleet.pools.kinds import registry
from evalfleet.pools.settings import PoolSettings, in_present_words


def kept(folder: Path = Path("/nowhere"), **options: Any) -> dict[str, Any]:
    environ = {
        "EVALFLEET_AZURE_PROFILE": "emulator",
        "EVALFLEET_AZURE_EMULATOR": "http://127.0.0.1:1",
    }
    settings = config.load("/nowhere", environ=environ, folder=folder)
    return registry.find("azure-vm").settings({"workers": 1, **options}, settings)


def test_the_prefix_is_stored_with_the_pool_so_that_another_default_renames_nothing():
    assert kept()["name_prefix"] == "evalfleet"
    assert kept(name_prefix="waa-eval")["name_prefix"] == "waa-eval"


@pytest.mark.parametrize(("benchmark", "kvm"), [("waa", True), ("miniwob", False), ("not-installed", False)])
def test_the_benchmark_says_whether_machines_need_kvm(benchmark: str, kvm: bool):
    assert kept(benchmark=benchmark)["kvm"] is kvm
    assert kept()["kvm"] is False


def test_the_settings_of_an_older_pool_are_read_in_the_words_of_today():
    old = {
        "workers": 3, "least": 1, "most": 4, "scales": True, "prefix": "waa-eval", "sizes": ["Standard_D8ds_v5"],
        "regions": ["eastus"], "idle": "delete", "idle_s": 60.0, "deadlines": {"ssh": 9.0}, "subscription": "s",
        "resource_group": "g", "stopped_at": None,
    }  # fmt: skip
    found = PoolSettings(**in_present_words(old))
    assert (found.min, found.max, found.limit, found.scales) == (1, 4, 4, True)
    assert (found.idle, found.idle_action, found.deadline) == (60.0, "delete", {"ssh": 9.0})
    assert (found.size, found.name_prefix) == (["Standard_D8ds_v5"], "waa-eval")
    assert found.account == {"subscription": "s", "resource_group": "g"}
    assert not PoolSettings(**in_present_words({**old, "scales": False})).scales
    assert in_present_words(found.to_json()) == found.to_json()


def test_a_machine_has_as_many_workers_as_guests_of_waa(tmp_path: Path):
    """What is too much for a machine is refused before anything is rented."""
    (tmp_path / "evalfleet.toml").write_text('[waa]\ncontainers = ["a", "b"]\n')
    assert kept(tmp_path, benchmark="waa", size=("Standard_D8ds_v5",))["slots"] == 2
    assert kept(tmp_path, benchmark="waa", slots=1)["slots"] == 1
    with pytest.raises(InputError, match="a machine runs 2 of waa at a time, not 3"):
        kept(tmp_path, benchmark="waa", slots=3)
    with pytest.raises(InputError, match="Standard_D4ds_v5 has 16 GB of memory, and 2 of waa at a time need 17 GB"):
        kept(tmp_path, benchmark="waa", size=("Standard_D4ds_v5",))
    assert kept(tmp_path, slots=3)["slots"] == 3, "any number without a benchmark"
