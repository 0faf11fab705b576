"""Signing in to Azure: what a person is told who has not, or not rightly, and how soon."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel
import pytest
from tests.support.cloud import emulated

from evalfleet import config
from evalfleet.azure import clients, quota, settings
from evalfleet.emulator.server import Emulator, Options

pytestmark = pytest.mark.anyio
SOON_S = 20.0  # the library looks for a managed identity, which takes it some seconds where there is none
SIGNING = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")


async def said(emulator: Emulator, folder: Path, *args: str, **changes: str) -> tuple[int, str]:
    """The exit code of a command in a shell of its own, and all that it wrote."""
    known: Mapping[str, Any] = {**os.environ, **emulator.settings(), "HOME": str(folder), **changes}
    env = {name: value for name, value in known.items() if value}
    done = await anyio.run_process(
        [sys.executable, "-m", "evalfleet", *args, "--home", str(folder / "home")], env=env, check=False
    )
    return done.returncode, (done.stdout + done.stderr).decode()


async def test_who_has_not_signed_in_is_told_so_at_once(tmp_path: Path):
    async with emulated(Options(speed=0, tls=True)) as emulator:
        began = time.monotonic()
        code, told = await said(
            emulator, tmp_path, "pool", "create", "p1", "--backend", "azure-vm", **dict.fromkeys(SIGNING, "")
        )
        assert time.monotonic() - began < SOON_S
        assert code == 3, told
        assert "not signed in to Azure; run `az login`" in told
        assert "does not answer" not in told
        assert "Unclosed" not in told


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"AZURE_CLIENT_SECRET": "guessed"}, "AADSTS7000215: Invalid client secret provided"),
        ({"AZURE_CLIENT_ID": "somebody"}, "AADSTS700016: Application with identifier 'somebody' was not found"),
    ],
)
async def test_a_wrong_secret_is_named(tmp_path: Path, change: dict[str, str], why: str):
    async with emulated(Options(speed=0, tls=True)) as emulator:
        began = time.monotonic()
        code, told = await said(emulator, tmp_path, "pool", "create", "p1", "--backend", "azure-vm", **change)
        assert time.monotonic() - began < SOON_S
        assert code == 3, told
        assert f"Azure refused the sign-in: {why}" in told
        assert "az login" in told
        assert "Unclosed" not in told


async def test_a_command_that_works_leaves_no_connection_open(tmp_path: Path):
    async with emulated(Options(speed=0, tls=True)) as emulator:
        code, told = await said(emulator, tmp_path, "quota", "--region", "eastus")
        assert (code, "Unclosed" in told) == (0, False), told


async def test_who_is_cancelled_closes_its_connections(monkeypatch: pytest.MonkeyPatch):
    unclosed: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unclosed.append(context["message"]))
    async with emulated(Options(speed=0, tls=True)) as emulator:
        for name, value in emulator.settings().items():
            monkeypatch.setenv(name, value)
        reach = settings.of(config.load("/nowhere", environ=emulator.settings(), folder="/nowhere"))
        with anyio.CancelScope() as scope:
            async with clients.opened(reach) as opened:
                await quota.usages(opened, "eastus")
                scope.cancel()
                await anyio.sleep_forever()
        gc.collect()
        await anyio.lowlevel.checkpoint()
    assert unclosed == []


async def test_only_tokens_that_were_given_out_are_taken():
    async with emulated(Options(speed=0, tls=True)) as emulator, aiohttp.ClientSession() as http:
        url = f"{emulator.world.plain_url}/subscriptions/s/resourcegroups?api-version=2024-03-01"
        async with http.get(url, headers={"Authorization": "Bearer none"}) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (401, "InvalidAuthenticationToken")
