"""`[waa] reset = "snapshot"`: a real QEMU behind the stand-in's container is put back before each task, memory and disk."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples.fake_waa.arena import Arena, arena
from msgspec.structs import replace
from tests.support.qemu_monitor import machine, needs_qemu

from evalfleet import config
from evalfleet.benchmarks.waa import readiness, snapshot
from evalfleet.benchmarks.waa.docker import Docker
from evalfleet.benchmarks.waa.settings import WaaSettings
from evalfleet.core.readiness import ReadinessCheck

pytestmark = [pytest.mark.timeout(120), needs_qemu]
CLEAN, POISON = 0x11, 0xAA


@pytest.fixture
def waa(tmp_path: Path) -> Iterator[Arena]:
    with arena(tmp_path / "arena", (f"waa-{uuid.uuid4().hex[:8]}",)) as made:
        yield made


def settings_of(waa: Arena, tmp_path: Path, port: int) -> WaaSettings:
    """A container that evalfleet makes, so that its QEMU gets `-snapshot`."""
    storage = tmp_path / "storage"
    storage.mkdir()
    (storage / "data.img").touch()
    text = waa.config(disk_gb=0, guest_timeout="60s", poll="50ms", reset="snapshot", storage=str(storage))
    (tmp_path / "evalfleet.toml").write_text(text)
    found = config.load(tmp_path / "home", environ={}, folder=tmp_path).table("waa", WaaSettings)
    return replace(found, qmp_port=port, containers=(f"{waa.containers[0]}-own",))


def prepared(settings: WaaSettings) -> list[ReadinessCheck]:
    means = readiness.Means(say=lambda _: None, secrets={})
    return readiness.prepare(settings, lambda _: None, means)


def test_windows_is_put_back_to_what_it_was_when_it_was_ready(waa: Arena, tmp_path: Path) -> None:
    with machine(tmp_path, "-snapshot") as qemu:
        settings = settings_of(waa, tmp_path, qemu.port)
        docker, (name,) = Docker(settings.docker), settings.containers
        qemu.write(CLEAN)
        checks = prepared(settings)
        assert [(check.name, check.holds) for check in checks[-3:]] == [
            *(("container", True), ("guest", True), ("snapshot", True))
        ], checks[-1]
        assert any("-snapshot" in one for one in docker.environment(name))
        assert (prepared(settings)[-1].seen, waa.restarts()) == ("there is one", 0), "what is saved stays"

        qemu.write(POISON)
        qemu.expect(POISON)
        assert snapshot.restore(docker, settings, name)
        qemu.expect(CLEAN)
        assert qemu.monitor("query-status")["running"]
        qemu.expect(POISON)  # the one that is otherwise
    assert qemu.mismatches() == 1
    assert not any((tmp_path / "data.img").read_bytes()), "the golden disk is only read"


def test_a_qemu_that_cannot_save_is_named_with_what_to_use_instead(waa: Arena, tmp_path: Path) -> None:
    with machine(tmp_path) as qemu:  # its disk is raw
        settings = settings_of(waa, tmp_path, qemu.port)
        last = prepared(settings)[-1]
        assert (last.name, last.holds) == ("snapshot", False)
        assert "is writable but does not support snapshots" in last.seen
        assert 'set [waa] reset = "overlay"' in last.remedy
        assert qemu.monitor("query-status")["running"], "Windows goes on"
        assert not snapshot.restore(Docker(settings.docker), settings, settings.containers[0])


def test_a_windows_that_has_worked_is_restarted_before_it_is_saved(waa: Arena, tmp_path: Path) -> None:
    with machine(tmp_path, "-snapshot") as qemu:
        settings = settings_of(waa, tmp_path, qemu.port)
        assert prepared(replace(settings, reset="overlay"))[-1].holds
        checks = prepared(settings)
        assert [check.seen for check in checks if check.name in ("container", "snapshot")] == ["restarted", "saved"]
        assert waa.restarts() == 1
