"""The parts of the `vm` environment that need no guest, and QEMU where nothing boots."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from pathlib import Path

import msgspec
import pytest

from evalfleet import config
from evalfleet.benchmarks.base import ReadinessCheck, Selection
from evalfleet.benchmarks.desk.benchmark import Desk
from evalfleet.environments.vm import accelerator, checks, golden
from evalfleet.environments.vm import environment as vm
from evalfleet.environments.vm.prepared import _is_outdated, prepared
from evalfleet.environments.vm.readiness import PICTURE
from evalfleet.environments.vm.settings import Accelerator, Reset, VmSettings
from evalfleet.errors import InputError, VmError
from evalfleet.testing.environment_contract import marked

QEMU = shutil.which("qemu-system-x86_64")
needs_qemu = pytest.mark.skipif(QEMU is None, reason=f"there is no QEMU: {checks.INSTALL}")


@pytest.fixture
def nothing(tmp_path: Path) -> VmSettings:
    """A disk with nothing on it."""
    image = tmp_path / "golden.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "1G"], check=True)
    return VmSettings(
        image=str(image),
        folder=str(tmp_path / "cache"),
        memory_mb=64,
        cpus=1,
        machine="pc",
        accelerator=Accelerator.TCG,
        boot_timeout_s=4.0,
    )


@needs_qemu
def test_a_trial_guest_tells_whether_an_accelerator_works() -> None:
    assert QEMU
    assert accelerator.trial_refusal(QEMU, ["-accel", "tcg"], timeout_s=120) == ""
    assert "did not run within" in accelerator.trial_refusal(QEMU, ["-accel", "tcg", "-S"], timeout_s=0.5)
    assert "nonsense" in accelerator.trial_refusal(QEMU, ["-accel", "nonsense"])
    assert "cannot be started" in accelerator.trial_refusal("/no/qemu", [])


@needs_qemu
def test_kvm_is_used_only_where_a_guest_runs_with_it() -> None:
    assert QEMU
    works = not accelerator.kvm_refusal(QEMU)
    assert accelerator.chosen(Accelerator.AUTO, QEMU) is (Accelerator.KVM if works else Accelerator.TCG)
    if not works:
        with pytest.raises(VmError, match="KVM does not work here: "):
            accelerator.chosen(Accelerator.KVM, QEMU)
    assert accelerator.chosen(Accelerator.TCG, QEMU) is Accelerator.TCG


@needs_qemu
@pytest.mark.parametrize("reset", [Reset.SNAPSHOT, Reset.OVERLAY, Reset.RESTART])
def test_a_guest_that_does_not_come_leaves_a_picture_and_nothing_else(
    nothing: VmSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reset: Reset
) -> None:
    monkeypatch.setenv("EVALFLEET_ATTEMPT", f"vm.{os.getpid()}.{reset}")
    settings = msgspec.structs.replace(nothing, reset=reset, shutdown_timeout_s=0.1)
    said = r"the guest agent was not ready within 4 s: .* a picture of its screen: vm-screen.png"
    with pytest.raises(VmError, match=said), vm.launched(settings, evidence=tmp_path):
        pass
    picture = (tmp_path / PICTURE).read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", picture[16:24]) == (720, 400)  # a text screen
    assert marked(f"vm.{os.getpid()}.{reset}") == []
    left = {path.name for path in Path(settings.folder or "").rglob("*")} - {"token", "empty.qcow2", "about.json"}
    assert not any(name.endswith((".new", "memory", "state")) for name in left)


@needs_qemu
def test_what_qemu_refuses_is_told_in_its_words(nothing: VmSettings) -> None:
    settings = msgspec.structs.replace(nothing, arguments=("-device", "no-such-card"), reset=Reset.OVERLAY)
    with pytest.raises(VmError, match=r"QEMU ended with status 1 .*no-such-card"), vm.launched(settings):
        pass


@needs_qemu
def test_what_is_missing_is_named(nothing: VmSettings, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no image is named"):
        golden.find(VmSettings())
    replace = msgspec.structs.replace
    with pytest.raises(VmError, match="qemu-none is not installed"):
        golden.find(replace(nothing, qemu="qemu-none"))
    with pytest.raises(VmError, match="No such file"):
        golden.find(replace(nothing, image=str(tmp_path / "none.qcow2")))
    with pytest.raises(VmError, match="No such file"):
        golden.find(replace(nothing, kernel=str(tmp_path / "kernel")))
    Path(tmp_path, "raw").write_bytes(b"x" * 1000)
    with pytest.raises(VmError, match="is not a qcow2 file"):
        golden.find(replace(nothing, image=str(tmp_path / "raw")))
    found = checks.recheck(replace(nothing, image=str(tmp_path / "raw")))
    assert [(check.name, check.holds) for check in found] == [("vm image", False)]


@needs_qemu
def test_the_key_follows_the_image_and_the_machine_only(nothing: VmSettings) -> None:
    replace = msgspec.structs.replace
    first = golden.find(nothing)
    assert golden.find(replace(nothing, boot_timeout_s=9.0)).key == first.key
    assert first.disk_bytes == 1 << 30
    others = [
        replace(nothing, memory_mb=65),
        replace(nothing, cpus=2),
        replace(nothing, arguments=("-snapshot",)),
        replace(nothing, reset=Reset.OVERLAY),
    ]
    assert len({golden.find(each).key for each in [nothing, *others]}) == 5
    os.utime(first.disk, ns=(1, 1))
    assert golden.find(nothing).key != first.key


@needs_qemu
def test_what_was_made_of_an_earlier_image_is_removed_unless_it_is_used(nothing: VmSettings) -> None:
    settings = msgspec.structs.replace(nothing, reset=Reset.OVERLAY)  # prepared without a boot
    first = golden.find(settings)
    with prepared(first) as old:
        os.utime(first.disk, ns=(1, 1))
        with prepared(golden.find(settings)) as second:
            assert old.folder.exists()
            assert old.folder != second.folder
    os.utime(first.disk, ns=(2, 2))
    with prepared(golden.find(settings)) as third:
        assert [path for path in third.folder.parent.iterdir() if path.is_dir()] == [third.folder]
        # Another configuration of the same image stays.
        with prepared(golden.find(msgspec.structs.replace(settings, cpus=3))) as fourth:
            assert third.folder.exists()
            assert fourth.folder.exists()


@needs_qemu
def test_a_host_is_checked(nothing: VmSettings) -> None:
    found = {check.name: check for check in checks.recheck(nothing)}
    assert list(found) == ["vm image", "vm accelerator", "vm memory"]
    assert all(check.holds for check in found.values())
    assert found["vm accelerator"].seen == "TCG: as configured"
    huge = msgspec.structs.replace(nothing, memory_mb=1 << 24)
    assert not checks.memory_check(huge).holds


def test_settings_are_checked() -> None:
    for wrong in ({"memory_mb": 1}, {"cpus": 0}, {"guest_port": 0}, {"reset": "none"}, {"boot_timeout": 0}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, VmSettings)
    assert VmSettings(memory_mb=1024).request_mb == 1184


@needs_qemu
def test_desk_in_guests_asks_for_their_memory_and_tells_hosts_what_they_need(nothing: VmSettings) -> None:
    asked = {name: value for name, value in msgspec.structs.asdict(nothing).items() if value is not None}
    settings = config.Settings(home=Path(), tables={"desk": {"environment": "vm"}, "vm": asked})
    desk = Desk(settings)
    (task,) = desk.tasks(Selection(agent="oracle", tasks=1))
    assert task["requests"] == {"memory_mb": nothing.request_mb}
    assert msgspec.convert(json.loads(json.dumps(task["payload"]["vm"])), VmSettings) == nothing
    assert desk.settings(Selection(agent="oracle"))["start_timeout"] > nothing.boot_timeout_s
    # A host gets the same settings, and finds its own QEMU and image.
    shipped = json.loads(json.dumps(config.for_workers(settings, desk.tools.settings)))
    there = Desk(config.from_controller(shipped))
    told: list[ReadinessCheck] = []
    found = there.prepare(told.append, lambda _line: None, {})
    assert found == told
    assert [(check.name, check.holds) for check in told] == [
        ("vm image", True),
        ("vm accelerator", True),
        ("vm memory", True),
        ("vm guest", False),  # nothing is on the disk
    ]
    assert "was not ready within 4 s" in told[-1].seen
    assert Desk(config.Settings(home=Path())).tools.settings == {}


def test_a_snapshot_is_outdated_when_any_file_of_its_guest_was_replaced(tmp_path: Path) -> None:
    parts = [tmp_path / "disk.qcow2", tmp_path / "initrd"]
    for part in parts:
        part.write_text("first")
    folder, lock = tmp_path / "made", tmp_path / "made.lock"
    folder.mkdir()
    lock.touch()
    (folder / "about.json").write_text(json.dumps({"files": [golden.identity(part) for part in parts]}))
    assert not _is_outdated(folder, lock)
    parts[1].write_text("another agent")
    assert _is_outdated(folder, lock)
