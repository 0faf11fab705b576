"""Pools from Python: orders that need no cloud."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import evalfleet
from evalfleet import errors

HOSTS = '[[host]]\nname = "box"\naddress = "127.0.0.1"\nslots = 3\nprice_usd_per_hour = 0.5\n'


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALFLEET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.toml").write_text(HOSTS)


def test_a_pool_of_machines_that_exist(tmp_path: Path):
    assert evalfleet.list_pools() == []
    pool = evalfleet.create_pool("lab", hosts=tmp_path / "hosts.toml", trust_first_use=True)
    facts = pool.status()
    assert (facts.name, facts.backend, facts.workers, [host.host for host in facts.hosts]) == ("lab", "ssh", 3, ["box"])
    assert evalfleet.list_pools() == [facts]
    assert pool.wait() == facts, "there is nothing to create"
    with pytest.raises(errors.InputError):
        pool.scale(4)
    with pytest.raises(errors.WrongState):
        evalfleet.create_pool("lab", hosts="hosts.toml", trust_first_use=True)
    assert evalfleet.create_pool("lab", hosts="hosts.toml", trust_first_use=True, replace=True).name == "lab"
    gone = pool.delete()
    assert (gone.machines, list(gone.left)) == ([], ["box"])
    assert "cannot be reached" in gone.left["box"], "our folder may be there"
    with pytest.raises(errors.NotFound):
        evalfleet.open_pool("lab")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Lab!", {"hosts": "hosts.toml"}),
        ("lab", {}),
        ("lab", {"backend": "moon"}),
        ("lab", {"hosts": "hosts.toml", "workers": 3}),
        ("lab", {"hosts": "hosts.toml", "luck": 3}),
        ("lab", {"backend": "azure-vm", "workers": 0}),
    ],
)
def test_wrong_orders_write_nothing(name: str, options: dict[str, object]):
    with pytest.raises(errors.InputError):
        evalfleet.create_pool(name, **options)  # pyright: ignore[reportArgumentType]
    assert evalfleet.list_pools() == []


def test_orders_for_machines_of_a_cloud_are_written_down(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EVALFLEET_AZURE_PROFILE", "emulator")
    monkeypatch.setenv("EVALFLEET_AZURE_EMULATOR", "http://127.0.0.1:9")
    pool = evalfleet.create_pool("vms", backend="azure-vm", workers=2, size="Standard_D8ds_v5", regions=["eastus"])
    assert pool.scale(3, budget_usd=4.0) == []
    assert pool.status().budget_usd == 4.0
    with pytest.raises(errors.InputError):
        pool.scale(min=5, max=2)
    with pytest.raises(errors.NotFound):
        pool.stop("vms-9")
    assert (pool.stop(), pool.start()) == ([], [])

    async def end() -> None:
        assert (await pool.delete_async()).machines == []
        assert (await pool.status_async()).deleting

    anyio.run(end)
