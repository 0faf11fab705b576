"""Golden images are built in WAA's container: against the stand-in's `docker`, in which Windows is installed in half a second."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.fake_waa.arena import Arena, arena
from tests.support.azurite import azurite
from tests.support.fleet import Fleet, wait_for

from evalfleet.emulator.docker import state

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def waa(tmp_path: Path, fleet: Fleet) -> Iterator[Arena]:
    with arena(tmp_path / "arena", (f"waa-{uuid.uuid4().hex[:8]}",)) as made:
        (tmp_path / "setup.iso").write_bytes(b"an ISO")
        limits = {"disk_gb": 0, "poll": "50ms", "install_timeout": "20s", "images": str(tmp_path / "images")}
        (fleet.folder / "evalfleet.toml").write_text(made.config(**limits))
        yield made


def build(fleet: Fleet, tmp_path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return fleet.command("waa", "image", "build", "win11", "--iso", str(tmp_path / "setup.iso"), *more)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def golden_containers(waa: Arena) -> list[str]:
    return [name for name in state.load(waa.docker).containers if name.startswith("evalfleet-golden")]


def test_an_image_is_built_shown_verified_and_deleted(waa: Arena, fleet: Fleet, tmp_path: Path) -> None:
    done = build(fleet, tmp_path, "--accept-eula")
    assert done.returncode == 0, done.stderr + done.stdout
    stages = ["room", "iso", "container", "install", "programs", "shutdown", "files"]
    assert [line.split(":")[0].removeprefix("+ ") for line in done.stdout.splitlines()[-8:-1]] == stages
    folder = tmp_path / "images" / "win11"
    assert names(folder) == ["data.img", "evalfleet-golden.json", "windows.base", "windows.boot"]
    assert (folder / "windows.base").read_text() == "iso"
    assert golden_containers(waa) == []
    assert names(folder.parent) == ["win11"]

    found: dict[str, Any] = fleet.json("waa", "image", "show", "win11")["image"]
    assert (found["iso"], found["eula_accepted"], len(found["iso_sha256"])) == ("setup.iso", True, 64)
    assert list(found["stages_s"]) == stages[:-1]
    assert [one["image"]["name"] for one in fleet.json("waa", "image", "list")["images"]] == ["win11"]
    assert fleet.json("waa", "image", "verify", "win11")["holds"] is True
    os.chmod(folder / "data.img", 0o644)
    with (folder / "data.img").open("r+b") as disk:
        disk.write(b"changed")
    assert fleet.json("waa", "image", "verify", "win11", code=3)["differences"] == ["data.img was changed"]

    again = build(fleet, tmp_path, "--accept-eula")
    assert (again.returncode, "is there already" in again.stderr) == (2, True)
    assert fleet.command("waa", "image", "delete", "win11", "--yes").returncode == 0
    assert names(folder.parent) == []


def test_the_licence_must_be_accepted(waa: Arena, fleet: Fleet, tmp_path: Path) -> None:
    refused = build(fleet, tmp_path)
    assert (refused.returncode, "--accept-eula" in refused.stderr) == (2, True)
    assert golden_containers(waa) == []


@pytest.mark.parametrize(
    ("fault", "content", "said"),
    [
        ("install-hangs", "", "Windows did not answer within 2 s"),
        ("lacks", "soffice.exe", "not found in Windows: LibreOffice"),
    ],
)
def test_a_stage_that_fails_leaves_the_screen_and_nothing_else(
    waa: Arena, fleet: Fleet, tmp_path: Path, fault: str, content: str, said: str
) -> None:
    config = fleet.folder / "evalfleet.toml"
    config.write_text(config.read_text().replace('install_timeout = "20s"', 'install_timeout = "2s"'))
    (waa.docker / fault).write_text(content)
    done = build(fleet, tmp_path, "--accept-eula")
    assert (done.returncode, said in done.stdout) == (3, True), done.stdout + done.stderr
    assert names(tmp_path / "images") == ["win11.failed"]
    failed = tmp_path / "images" / "win11.failed"
    assert (failed / "screen.png").read_bytes().startswith(b"\x89PNG")
    assert f"screen.png in {failed}" in done.stdout
    assert golden_containers(waa) == []


def test_an_iso_that_is_not_there_is_named(waa: Arena, fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "setup.iso").unlink()
    done = build(fleet, tmp_path, "--accept-eula")
    assert (done.returncode, "there is no file" in done.stdout) == (3, True)
    assert names(tmp_path / "images") == []


def test_a_build_that_was_killed_is_cleaned_up_by_the_next(waa: Arena, fleet: Fleet, tmp_path: Path) -> None:
    (waa.docker / "install-hangs").touch()
    arguments = ("waa", "image", "build", "win11", "--iso", str(tmp_path / "setup.iso"), "--accept-eula")
    process = fleet.start(*arguments)
    wait_for((tmp_path / "images" / "win11.partial" / "data.img").exists, "the installation")
    second = fleet.command(*arguments)
    assert (second.returncode, "another build" in second.stderr) == (2, True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert golden_containers(waa) != []
    (waa.docker / "lacks").write_text("soffice.exe")
    (waa.docker / "install-hangs").unlink()
    (waa.docker / "silent").unlink()
    assert fleet.command(*arguments).returncode == 3
    assert golden_containers(waa) == []
    assert names(tmp_path / "images") == ["win11.failed"]


def test_the_answer_is_one_json_document(waa: Arena, fleet: Fleet, tmp_path: Path) -> None:
    done = build(fleet, tmp_path, "--accept-eula", "--json")
    assert json.loads(done.stdout)["image"]["name"] == "win11", done.stderr


def prepared(fleet: Fleet, waa: Arena, *, code: int = 0, settings: dict[str, object], **env: str) -> dict[str, Any]:
    limits = {"disk_gb": 0, "poll": "50ms", "guest_timeout": "20s"}
    (fleet.folder / "evalfleet.toml").write_text(waa.config(**limits, **settings))
    done = fleet.command("prepare", "waa", "--json", **env)
    assert done.returncode == code, done.stderr + done.stdout
    return {one["check"]: one for one in json.loads(done.stdout)["checks"]}


def test_a_fresh_machine_brings_the_image_from_blob_storage(waa: Arena, fleet: Fleet, tmp_path: Path) -> None:
    made, there = tmp_path / "images", tmp_path / "there"
    assert build(fleet, tmp_path, "--accept-eula").returncode == 0
    new = f"waa-{uuid.uuid4().hex[:8]}"
    with azurite(tmp_path / "azurite") as storage:
        assert fleet.command("waa", "image", "store", "win11", storage.address()).returncode == 0
        address, _, signature = storage.address("r").partition("?")
        table = {"golden": "win11", "golden_from": address, "images": str(there), "containers": [new]}
        refused = prepared(
            fleet, waa, code=3, settings=table, WAA_GOLDEN_SAS=storage.address("r", hours=-1).partition("?")[2]
        )
        assert (refused["golden"]["holds"], "403" in refused["golden"]["seen"]) == (False, True)
        assert "sig=" not in json.dumps(refused)
        (waa.docker / "silent").unlink()
        checks = prepared(fleet, waa, settings=table, WAA_GOLDEN_SAS=signature)
    assert f"brought from {address}" in checks["golden"]["seen"]
    assert (there / "win11" / "data.img").read_bytes() == (made / "win11" / "data.img").read_bytes()
    copy = there / "win11.copies" / new
    assert (names(copy), os.access(copy / "data.img", os.W_OK)) == (["data.img", "windows.base", "windows.boot"], True)
    assert names(there) == ["win11", "win11.copies"]


def test_a_golden_image_that_is_not_there_is_named_with_its_remedy(waa: Arena, fleet: Fleet, tmp_path: Path) -> None:
    new = f"waa-{uuid.uuid4().hex[:8]}"
    checks = prepared(
        fleet, waa, code=3, settings={"golden": "win11", "images": str(tmp_path / "no"), "containers": [new]}
    )
    assert (checks["golden"]["holds"], "evalfleet waa image build win11" in checks["golden"]["remedy"]) == (False, True)
