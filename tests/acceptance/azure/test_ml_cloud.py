"""Azure ML as a cloud: what becomes of a job whose container does not start, and what its logs say then."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.support.cloud import Cloud, cloud

from evalfleet.azure import clients
from evalfleet.azure.ml import cloud as ml
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import Scenario
from evalfleet.layout import Home
from evalfleet.pools.cloud.problems import Action, Cause, Problem
from evalfleet.pools.cloud.records import MachineSpec, Pilot, Verb

PATIENCE_S = 60


@asynccontextmanager
async def workspace(folder: Path, *faults: Fault) -> AsyncGenerator[tuple[Cloud, ml.MlCloud]]:
    async with (
        cloud(Scenario(fault=list(faults)), speed=1000) as here,
        clients.opened(replace(here.settings, workspace="evalfleet")) as opened,
    ):
        yield here, ml.MlCloud(opened, Home(folder))


def pilot_spec(here: Cloud, **changes: Any) -> MachineSpec:
    pilot = Pilot(command="echo here; sleep 600", secrets={"TOKEN": "t"})
    return here.spec("m-1", worker="m-1.mark", pilot=pilot, **changes)


async def created(found: ml.MlCloud, spec: MachineSpec) -> Problem | None:
    """Ask for a machine, and poll until that is over."""
    made = await found.create(spec, time.time() + 3600)
    assert made.continuation is not None
    with anyio.fail_after(PATIENCE_S):
        while True:
            progress = await found.poll(Verb.CREATE, spec.name, made.continuation, spec.offering)
            if progress.done:
                return progress.problem
            await anyio.sleep(progress.look_again_s)


@pytest.mark.anyio
async def test_kvm_is_asked_for_and_a_node_without_it_is_said(tmp_path: Path):
    async with workspace(tmp_path) as (here, found):
        assert await created(found, pilot_spec(here, size="Standard_D4ds_v5", kvm=True)) is None
        await found.delete("m-1")
    async with workspace(tmp_path) as (here, found):
        problem = await created(found, pilot_spec(here, size="Standard_D2_v2", kvm=True))
        assert problem is not None
        assert (problem.cause, problem.action) == (Cause.SKU, Action.NEXT_SIZE)
        assert "its nodes have no KVM" in problem.message


@pytest.mark.anyio
async def test_an_image_that_does_not_come_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ml, "COLD_IMAGE_S", 0.5)
    hang = Fault(op="host.docker", match={"command": "pull *"}, hang=True)
    async with workspace(tmp_path, hang) as (here, found):
        problem = await created(found, pilot_spec(here))
        assert problem is not None
        assert problem.cause is Cause.START
        assert "had no image within" in problem.message


@pytest.mark.anyio
async def test_logs_of_a_job_are_read(tmp_path: Path):
    async with workspace(tmp_path) as (here, found):
        assert await created(found, pilot_spec(here)) is None
        with anyio.fail_after(PATIENCE_S):
            while True:
                if "here" in await found.read_log("m-1", "job", 1000):
                    break
                await anyio.sleep(found.poll_s)
        assert {"job", "setup"} <= set(await found.logs("m-1"))
        assert await found.read_log("m-1", "nothing", 1000) == ""
