"""VMs as namespaces with a real sshd: needs root, and a kernel that lets it."""

from __future__ import annotations

import json
import subprocess

import pytest

from cloud import cloud
from evalfleet.azure.vms import Verb
from evalfleet.emulator import netns

pytestmark = pytest.mark.anyio


def _possible() -> bool:
    if netns.missing() is not None:
        return False
    tried = ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "mount", "-t", "tmpfs", "x", "/mnt"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _possible(), reason="this machine lets us make no namespaces, or an emulator has them")
async def test_a_machine_of_its_own():
    async with cloud(hosts="netns") as here:
        spec = here.spec(spot=True)
        view = await here.made(spec)
        imds = "curl -sH Metadata:true 'http://169.254.169.254/metadata/{}?api-version=2020-07-01'"
        async with here.login(spec, view) as connection:
            told = await connection.run("hostname; whoami; pwd; echo x >kept", check=True)
            assert str(told.stdout).split()[:3] == ["waa-eval-1", "evalfleet", "/home/evalfleet"]
            instance = await connection.run(imds.format("instance"), check=True)
            assert json.loads(str(instance.stdout))["compute"]["name"] == "waa-eval-1"
            assert len(str((await connection.run("ls /proc | grep -c '^[0-9]'", check=True)).stdout)) <= 3
        assert "uid=0" in await here.vms.run_command(spec.name, "id; echo y >/mnt/f")

        await here.done(Verb.DEALLOCATE, spec.name, await here.vms.deallocate(spec.name))
        await here.done(Verb.START, spec.name, await here.vms.start(spec.name))
        async with here.login(spec, view) as connection:
            assert (await connection.run("cat kept; ls /mnt", check=True)).stdout == "x\n"
        await here.done(Verb.DELETE, spec.name, await here.vms.delete(spec.name))
        assert (await here.control("GET", "leaks"))["leaks"] == []
    assert not netns.plugged(netns.BRIDGE)
