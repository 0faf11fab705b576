"""Pools whose machines pull the image of a benchmark: a pull that hangs ends, is tried again, and costs no second machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.support.cloud import Cloud
from tests.support.web_site import Site, site
from tests.support.wheelhouse import wheelhouse

from evalfleet.benchmarks.waa.image import PAUSES_S

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.timeout(600)]
NAME = "evalfleet-1"
IMAGE = "windowsarena/winarena:latest"
PULL = {"command": "pull *"}
PULL_S = 3.0
LIVES = ("worker.requested", "worker.ordered", "worker.created", "worker.quarantined", "worker.readied")
# The machine is as new as can be: it has a mirror of the packages, and nothing of ours.
SETUP = (
    "mkdir -p ~/.config/pip && printf '[global]\\nno-index = true\\nfind-links = {wheels}\\n' >~/.config/pip/pip.conf"
)


def configure(folder: Path) -> None:
    (folder / "storage").mkdir()
    (folder / "storage" / "data.img").touch()
    (folder / "evalfleet.toml").write_text(
        f'[waa]\nkvm = false\ndisk_gb = 0\nimage = "{IMAGE}"\npull_timeout = "{PULL_S:g}s"\nguest_timeout = "60s"\n'
        f'poll = "100ms"\npython = "{sys.executable}"\nstorage = "{folder / "storage"}"\n'
    )


async def settle(here: Site, *, unquarantine: bool = False) -> None:
    """As `pool create` does, or `pool prepare` with what is in quarantine."""
    with anyio.fail_after(240):
        async with here.controller() as controller:
            if unquarantine:
                await controller.retry_quarantined()
            await controller.settle()


def calls(here: Cloud, command: str) -> list[dict[str, Any]]:
    """What Docker was asked for on the machine."""
    return [event for event in here.events("docker.called") if event["data"]["command"].startswith(command)]


def pullers(here: Cloud) -> list[str]:
    """The clients of Docker that still pull on the machine."""
    ours = str(here.emulator.world.folder)
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended meanwhile
        if words[-3:-1] == ["pull", IMAGE] and any(word.startswith(ours) for word in words):
            found.append(" ".join(words))
    return found


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not holds():  # noqa: ASYNC110 - the end of a process on another machine tells nobody
            await anyio.sleep(0.05)


async def a_pull_hangs(here: Site) -> None:
    await here.cloud.fault(op="host.docker", match=PULL, hang=True)
    await settle(here)
    assert here.states() == {NAME: "quarantined"}
    reason = here.host(NAME).reason or ""
    assert reason.startswith(f"benchmark: image: docker pull did not end within {PULL_S:g} s (1 of 3 layers)")
    assert "(tried 3 times)" in reason
    assert f"docker pull {IMAGE}" in reason
    tries = [event["at"] for event in calls(here.cloud, "pull")]
    assert len(tries) == 3
    assert all(later - at >= PULL_S + pause for at, later, pause in zip(tries, tries[1:], PAUSES_S, strict=False))
    assert len(calls(here.cloud, "container prune")) == 3, "what each of them left is removed"
    assert pullers(here.cloud) == []
    assert here.told("worker.pulling", "worker.pulled", "worker.quarantined") == [
        *("worker.pulling", "worker.pulled", "worker.quarantined")
    ], "what alerts about long pulls are made of"
    await settle(here)  # it waits for a person: nothing is tried again, nothing replaced
    assert len(calls(here.cloud, "pull")) == 3


async def the_time_of_the_rung_ends_before_that_of_the_pull(here: Site) -> None:
    """The machine has the tools by now; only the pull can take the check's time."""
    patient = here.settings
    here.settings = replace(patient, tables={"waa": {**patient.tables["waa"], "pull_timeout_s": 3600.0}})
    here.wants(deadline={"benchmark": 15.0})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(settle, here, unquarantine=True))
        await until(lambda: len(pullers(here.cloud)) == 1)
    reason = here.host(NAME).reason or ""
    assert reason.startswith(f"benchmark: does not hold after 15 s: pulls {IMAGE}: ")
    assert here.states() == {NAME: "quarantined"}
    assert len(calls(here.cloud, "pull")) == 4
    await until(lambda: pullers(here.cloud) == [])
    here.settings = patient
    here.wants(deadline={})


async def a_pull_fails_twice_and_then_works(here: Site) -> None:
    await here.cloud.control("DELETE", "faults")
    await here.cloud.fault(op="host.docker", match=PULL, preset="pull_fails", times=2)
    await settle(here, unquarantine=True)
    assert (here.states(), here.host(NAME).reason) == ({NAME: "ready"}, None)
    assert len(calls(here.cloud, "pull")) == 7
    assert [event["data"]["container"] for event in here.cloud.events("container.started")] == ["winarena"]


async def test_a_pull_that_hangs_is_ended_and_its_machine_is_ready_once_it_can_be(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One machine for all of it: to bring the tools takes most of the time."""
    configure(tmp_path)
    wheels = wheelhouse(tmp_path_factory.mktemp("wheels"))
    async with site(tmp_path) as here:
        here.wants(workers=1, benchmark="waa", setup=SETUP.format(wheels=wheels))
        await a_pull_hangs(here)
        await the_time_of_the_rung_ends_before_that_of_the_pull(here)
        await a_pull_fails_twice_and_then_works(here)
        assert here.creations() == 1
        tries = ["worker.created", "worker.quarantined"]
        assert here.told(*LIVES) == [
            "worker.requested",
            "worker.ordered",
            *tries * 2,
            "worker.created",
            "worker.readied",
        ]
        assert here.reason() == ("", "")
        here.advance(3 * 3600)
        assert here.shown_usd() == pytest.approx(await here.billed_usd(), rel=0.05)
