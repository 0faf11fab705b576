"""Golden images are built on a rented machine: the emulator's, with the stand-in's `docker` on it and blobs in Azurite."""

from __future__ import annotations

import json
import os
import shutil
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.fake_waa.arena import Arena, arena
from tests.support.azurite import azurite
from tests.support.fleet import wait_for
from tests.support.rented import Rented, rented
from tests.support.wheelhouse import wheelhouse

from evalfleet.benchmarks.waa.golden.transfer import golden_at
from evalfleet.emulator.docker import state

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
SPEED = 200
BUILD_S = 280  # of a busy machine; a build takes 20 s of one that is not
ASKED = ("waa", "image", "build", "win11", "--pool", "builder", "--accept-eula")


@pytest.fixture
def waa(tmp_path: Path) -> Iterator[Arena]:
    with arena(tmp_path / "arena", (f"waa-{uuid.uuid4().hex[:8]}",)) as made:
        yield made


def configure(here: Rented, waa: Arena, tmp_path: Path, **more: object) -> None:
    """The machine is as new as can be: it has a mirror of the packages, and nothing of ours."""
    wheels = wheelhouse(tmp_path / "wheels")
    setup = tmp_path / "setup.sh"
    mirror = f"[global]\\nno-index = true\\nfind-links = {wheels}\\n"
    setup.write_text(f"mkdir -p ~/.config/pip && printf '{mirror}' >~/.config/pip/pip.conf\n")
    limits = {"disk_gb": 0, "poll": "20ms", "install_timeout": "120s", "guest_timeout": "60s"}
    pool = f'[pool.builder]\nbackend = "azure-vm"\nregions = ["eastus"]\nsetup = {json.dumps(str(setup))}\n'
    (here.fleet.folder / "evalfleet.toml").write_text(waa.config(**{**limits, **more}) + pool)


def followed(here: Rented, *more: str, code: int = 0, **env: str) -> str:
    return patient(here, *ASKED, *more, code=code, **env)


def patient(here: Rented, *words: str, code: int = 0, **env: str) -> str:
    process = here.fleet.start(*words, **env)
    out = process.communicate(timeout=BUILD_S)[0]
    assert process.returncode == code, out
    return out


def builds(waa: Arena) -> int:
    return sum(call[0] == "run" and "evalfleet-golden-win11" in call for call in waa.calls())


def answer(here: Rented, *words: str, **env: str) -> dict[str, Any]:
    return here.fleet.json("waa", "image", *words, code=0, **env)


def test_a_build_outlives_its_command_and_leaves_the_image_and_no_machine(waa: Arena, tmp_path: Path) -> None:
    iso = tmp_path / "setup.iso"
    iso.write_bytes(b"an ISO" * 1000)
    with rented(tmp_path, SPEED) as here, azurite(tmp_path / "azurite") as storage:
        configure(here, waa, tmp_path, images=str(tmp_path / "there"))
        to, _, signature = storage.address().partition("?")
        refused = here.fleet.command(*ASKED, "--to", storage.address())
        assert (refused.returncode, "export WAA_GOLDEN_SAS=" in refused.stderr) == (2, True), refused.stderr
        reader = storage.address("r").partition("?")[2]
        refused = here.fleet.command(*ASKED, "--to", to, WAA_GOLDEN_SAS=reader)
        assert (refused.returncode, "cannot be written to: 403" in refused.stderr) == (2, True), refused.stderr
        assert here.is_empty()

        asked = ("--iso", str(iso), "--to", to)
        (waa.docker / "install-hangs").touch()
        first = here.fleet.start(*ASKED, *asked, WAA_GOLDEN_SAS=signature)
        wait_for((tmp_path / "there" / "win11.partial" / "windows.base").exists, "the installation", BUILD_S)
        other = here.fleet.command(*ASKED[:5], "other", "--accept-eula", *asked)
        assert "pool 'builder' builds win11 already" in other.stderr
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        (waa.docker / "install-hangs").unlink()
        (waa.docker / "silent").unlink()
        out = followed(here, *asked, WAA_GOLDEN_SAS=signature)

        assert "going on with the build of run" in out
        stages = ["docker", "image", "room", "iso", "install", "programs", "shutdown", "files", "store"]
        assert [stage for stage in stages if f"+ {stage}: " not in out] == [], out
        assert builds(waa) == 1
        assert here.is_empty(), here.leaks()
        shutil.rmtree(tmp_path / "there")  # gone with its machine, which had it on a disk of this one
        stored = golden_at(storage.address("r"))
        shown = answer(here, "show", "win11")
        assert (shown["folder"], shown["image"]["files"][0]["sha256"]) == (to, stored.files[0].sha256)
        assert (stored.name, stored.iso, stored.stages_s.keys() >= {"install"}) == ("win11", "setup.iso", True)
        assert [one["folder"] for one in answer(here, "list")["images"]] == [to]
        assert answer(here, "verify", "win11", WAA_GOLDEN_SAS=signature)["holds"] is True
        report = here.fleet.json("report")
        assert 0 < report["cost"]["total_usd"] <= here.billed_usd("builder")
        kept = [file for file in here.fleet.home.rglob("*") if file.is_file()]
        assert [file for file in kept if signature.encode() in file.read_bytes()] == []

        again = here.fleet.command(*ASKED, *asked, WAA_GOLDEN_SAS=signature)
        assert (again.returncode, "there is a golden image win11 already" in again.stderr) == (2, True)
        assert here.fleet.command("waa", "image", "delete", "win11", "--yes", WAA_GOLDEN_SAS=signature).returncode == 0
        assert answer(here, "list")["images"] == []
        gone = here.fleet.command(*ASKED, "--to", to, "--backend", "nowhere", WAA_GOLDEN_SAS=signature)
        assert "nowhere" in gone.stderr, "a new build is begun: there is no image any more"


def test_a_build_that_fails_brings_its_evidence_home_and_leaves_no_machine(waa: Arena, tmp_path: Path) -> None:
    with rented(tmp_path, SPEED) as here:
        configure(here, waa, tmp_path)
        (waa.docker / "lacks").write_text("soffice.exe")
        out = followed(here, "--bake", "windows", code=3)
        assert "- programs: not found in Windows: LibreOffice" in out
        assert "the build failed: " in out
        assert here.is_empty(), here.leaks()
        (picture,) = here.fleet.home.glob("runs/*/*/1/artifacts/screen.png")
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert (picture.parent / "container.log").is_file()
        assert builds(waa) == 1

        # The next build of the same name is a new one, and its machine becomes an image with the disk inside.
        (waa.docker / "lacks").unlink()
        out = followed(here, "--bake", "windows")
        assert "golden image win11 is ready" in out
        assert [one["name"] for one in here.fleet.json("pool", "images")["images"]] == ["windows"]
        assert here.leaks()["leaks"] == []
        assert not any("virtualMachines" in kind for kind in here.leaks()["resources"])
        assert answer(here, "list")["images"][0]["folder"] == "VM image windows"

        # A fresh machine with that image is ready without a hand: it has the disk, and its guests share it.
        both = [f"{waa.containers[0]}-{letter}" for letter in "ab"]
        configure(here, waa, tmp_path, golden="win11", reset="overlay", containers=both)
        (waa.docker / "silent").unlink()  # as Windows was when the build shut it down
        ready = ("--workers", "1", "--image", "windows", "--benchmark", "waa")
        patient(here, "pool", "create", "p1", "--backend", "azure-vm", "--regions", "eastus", *ready)
        (host,) = here.status()["hosts"]
        assert (host["state"], host["workers"]) == ("ready", 2)
        assert {"golden", *(f"guest {name}" for name in both)} <= host["checks_s"].keys()
        guests = state.load(waa.docker).containers
        assert all(any("-snapshot" in one for one in guests[name].env) for name in both)
        shown = here.fleet.command("pool", "status", "p1").stdout
        assert f"readiness checks took longest on {host['host']}: " in shown
        here.delete()
