"""Commands and messages that hold for every kind of pool name none of them."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from evalfleet import config
from evalfleet.api.pools import open_pool
from evalfleet.cli import main as entry
from evalfleet.errors import InputError, Refused
from evalfleet.layout import Home
from evalfleet.model import Pool, PoolHost
from evalfleet.operations.machines import pools
from evalfleet.pools.kinds import registry
from evalfleet.pools.machine.keys import fresh_host_key
from evalfleet.store.open import open_store


class Box:
    name, slots, price_usd_per_hour = "box", 1, 0.0


class BoxKind:
    """A plug-in's kind: one host, whose runner can be ended."""

    name, title, creates_machines, options = "box", "One box", False, ()

    def settings(self, options: Any, settings: Any) -> dict[str, Any]:
        return {}

    def hosts(self, pool: Pool, rows: Collection[PoolHost]) -> list[Box]:
        return [Box()]

    def slots(self, pool: Pool) -> int:
        return 1

    def reachable(self, pool: Pool, rows: Collection[PoolHost]) -> tuple[()]:
        return ()

    async def end_idle_runners(
        self, pool: Pool, busy: Collection[str], home: Home, say: Callable[[str], None]
    ) -> list[str]:
        say(f"{pool.name} was asked")
        return ["box"]


KIND = BoxKind()


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BUILT_IN, "box", f"{__name__}:KIND")


def test_reap_ends_the_idle_runners_of_any_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    settings = config.load(str(tmp_path))
    with closing(open_store(settings.home)) as store:
        pools.create(settings, store, "mine", {}, backend="box")
        with pytest.raises(InputError, match=r"host name 'box' belongs to pool 'mine'.*or for the pool"):
            pools.create(settings, store, "other", {}, backend="box")
    assert entry.run(["reap", "--json", "--home", str(tmp_path)]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["runners"] == ["box"]
    assert "mine was asked" in output.err


def test_the_help_of_pool_create_names_no_cloud_before_its_options(capsys: pytest.CaptureFixture[str]):
    assert entry.run(["pool", "create", "--help"]) == 0
    text = capsys.readouterr().out
    assert "azure-vm:" not in text
    assert "cloud: number of machines" in text


def test_a_missing_library_is_named_without_a_cloud(monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match="pip install cryptography"):
        fresh_host_key()


def test_the_twin_of_a_pool_is_named_as_one(tmp_path: Path):
    async def inside() -> None:
        settings = config.load(str(tmp_path))
        with closing(open_store(settings.home)) as store:
            pools.create(settings, store, "mine", {}, backend="box")
        with pytest.raises(Refused, match=r"await pool\.delete_async\(\)"):
            open_pool("mine", home=tmp_path).delete()

    anyio.run(inside)
