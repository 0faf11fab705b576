"""The commands that look at an account, its images and what was left there, as people type them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import anyio
import pytest
from tests.support.cloud import Cloud, cloud

from evalfleet.azure import clients
from evalfleet.azure.account import policies
from evalfleet.azure.images import SNAPSHOT_API, Images
from evalfleet.azure.requests import image
from evalfleet.azure.requests.image import ImageSpec
from evalfleet.emulator.scenario import Policy, Scenario

pytestmark = pytest.mark.anyio


async def said(here: Cloud, folder: Path, *args: str) -> tuple[int, str, str]:
    env = {**os.environ, **here.emulator.settings(), "HOME": str(folder)}
    command = [sys.executable, "-m", "evalfleet", *args, "--home", str(folder / "home")]
    done = await anyio.run_process(command, env=env, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


async def test_a_good_account_is_told_to_be_good(tmp_path: Path):
    async with cloud() as here:
        code, out, _ = await said(here, tmp_path, "doctor", "--azure", "--regions", "eastus,westus2", "--json")
        told = json.loads(out)
        assert (code, told["healthy"]) == (0, True)
        assert {each["level"] for each in told["checks"]} == {"ok"}


async def test_nothing_is_bought_where_a_policy_forbids_it(tmp_path: Path):
    policy = Policy(definition=policies.NO_PUBLIC_IP, name="no public addresses")
    async with cloud(Scenario(policy=[policy])) as here:
        code, _, err = await said(here, tmp_path, "pool", "create", "p1", "--backend", "azure-vm")
        assert code == 3
        assert "policy 'no public addresses' forbids public addresses" in err
        assert "nothing was bought" in err
        tasks = tmp_path / "tasks.jsonl"
        tasks.write_text(json.dumps({"key": "a", "command": ["true"]}) + "\n")
        code, _, err = await said(here, tmp_path, "run", str(tasks), "--backend", "azure-vm", "--workers", "1")
        assert (code, "the run was not submitted" in err) == (2, True), err
        assert here.exchanges("PUT", "virtualMachines/") == []


async def test_images_are_listed_deleted_and_what_was_left_is_reaped(tmp_path: Path):
    async with cloud() as here, clients.opened(here.settings) as opened:
        view = await here.made(here.spec())
        assert view.disk_id is not None
        spec = ImageSpec(
            name="golden", owner="me", source_disk=view.disk_id, source_region="eastus", regions=("eastus",)
        )
        images = Images(opened)
        continuation = await images.create(spec)
        assert continuation is not None
        while not (await images.poll("golden", "1.0.0", continuation)).done:  # noqa: ASYNC110 - a cloud tells nobody
            await anyio.sleep(0.02)
        path = f"{here.settings.group_path()}/providers/Microsoft.Compute/snapshots/golden-1.0.1"
        await opened.arm.put(path, SNAPSHOT_API, image.snapshot_body(spec))  # of a bake that was killed
        code, out, _ = await said(here, tmp_path, "pool", "images")
        assert code == 0
        assert "golden 1.0.0  image, Succeeded  128 GB in eastus  at most $" in out
        assert "golden 1.0.1  snapshot" in out
        assert "left over" in out
        code, out, _ = await said(here, tmp_path, "reap", "--owner", "me", "--force", "--json")
        assert "golden 1.0.1" in [row["name"] for row in json.loads(out)["resources"]]
        code, out, _ = await said(here, tmp_path, "pool", "images", "--delete", "golden", "--json")
        assert (code, json.loads(out)["images"]) == (0, [])
        code, _, err = await said(here, tmp_path, "pool", "images", "--delete", "golden")
        assert (code, "there is no image 'golden'" in err) == (2, True), err
