"""VMs as namespaces with a real sshd: needs root, and a kernel that lets it."""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from tests.support.cloud import cloud, connected

from evalfleet.azure import clients
from evalfleet.azure.images import Images
from evalfleet.azure.requests.image import ImageSpec
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.machines import netns
from evalfleet.emulator.scenario import Scenario
from evalfleet.pools.cloud.records import Verb

pytestmark = pytest.mark.anyio


def _possible() -> bool:
    if netns.missing() is not None:
        return False
    tried = ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "mount", "-t", "tmpfs", "x", "/mnt"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


HAS_KVM = Path("/dev/kvm").exists()
possible = pytest.mark.skipif(not _possible(), reason="this machine lets us make no namespaces")


@pytest.fixture
def _alone() -> Iterator[None]:
    """Such emulators are one at a time on a machine, and tests may run beside each other."""
    with (Path(tempfile.gettempdir()) / "evalfleet-test-netns.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@possible
@pytest.mark.usefixtures("_alone")
async def test_a_machine_of_its_own():
    async with cloud(hosts="netns") as here:
        spec = here.spec(spot=True)
        view = await here.made(spec)
        imds = "curl -sH Metadata:true 'http://169.254.169.254/metadata/{}?api-version=2020-07-01'"
        async with here.login(spec, view) as connection:
            told = await connection.run("hostname; whoami; pwd; echo x >kept", check=True)
            assert str(told.stdout).split()[:3] == ["evalfleet-1", "evalfleet", "/home/evalfleet"]
            instance = await connection.run(imds.format("instance"), check=True)
            assert json.loads(str(instance.stdout))["compute"]["name"] == "evalfleet-1"
            assert len(str((await connection.run("ls /proc | grep -c '^[0-9]'", check=True)).stdout)) <= 3
        assert "uid=0" in await here.vms.run_command(spec.name, "id; echo y >/mnt/f")

        await here.done(Verb.STOP, spec.name, await here.vms.stop(spec.name))
        await here.done(Verb.START, spec.name, await here.vms.start(spec.name))
        async with here.login(spec, view) as connection:
            assert (await connection.run("cat kept; ls /mnt", check=True)).stdout == "x\n"
        await here.done(Verb.DELETE, spec.name, await here.vms.delete(spec.name))
        assert (await here.control("GET", "leaks"))["leaks"] == []
    assert not netns.plugged(netns.BRIDGE)


@possible
@pytest.mark.usefixtures("_alone")
def test_a_killed_emulator_takes_its_machines_along():
    command = [sys.executable, "-m", "evalfleet", "emulator", "--speed", "0", "--hosts", "netns", "--json"]
    mark = f"300.{os.getpid()}"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            anyio.run(_start_a_daemon, json.loads(process.stdout.readline()), mark)
            daemon = os.pidfd_open(_pid_of(mark))
        finally:
            process.kill()
    ended, _, _ = select.select([daemon], [], [], 30)
    os.close(daemon)
    assert ended
    anyio.run(_begin_again)
    assert not netns.plugged(netns.BRIDGE)


async def _start_a_daemon(environ: dict[str, str], mark: str) -> None:
    async with connected(environ) as here:
        spec = here.spec()
        view = await here.made(spec)
        async with here.login(spec, view) as connection:
            begun = "until [ \"$(cut -d' ' -f2 /proc/$!/stat)\" = '(sleep)' ]; do :; done"
            await connection.run(f"setsid sleep {mark} >/dev/null 2>&1 </dev/null & {begun}", check=True)


def _pid_of(mark: str) -> int:
    """Return the process that sleeps so long, as this machine numbers it."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes() == f"sleep\0{mark}\0".encode():
                return int(path.parent.name)
    raise LookupError(mark)


async def _begin_again() -> None:
    async with cloud(hosts="netns") as here:
        assert await here.vms.list() == []


@possible
@pytest.mark.usefixtures("_alone")
async def test_a_machine_of_its_own_that_is_not_as_it_should_be():
    faults = [
        Fault(op="host.boot", match={"name": "bad"}, preset=preset) for preset in ("no_kvm", "disk_full", "clock_skew")
    ]
    probes = {
        "kvm": "kvm-ok >/dev/null && test -w /dev/kvm && grep -qE '^flags.*(svm|vmx)' /proc/cpuinfo; echo $?",
        "disk": "df -Pk / | awk 'NR == 2 {print ($4 > 0)}'",
        "clock": "date +%s; python3 -ISc 'import time; print(int(time.time()))'",
    }
    async with cloud(Scenario(fault=faults), hosts="netns") as here:
        for name, kvm, disk, skew in (("good", 0, 1, 0), ("bad", 1, 0, 600)):
            spec = here.spec(name)
            view = await here.made(spec)
            found = {probe: (await here.ssh(spec, view, command))[1].split() for probe, command in probes.items()}
            if HAS_KVM:
                assert found["kvm"] == [str(kvm)]
            assert found["disk"] == [str(disk)]
            assert [int(moment) - time.time() for moment in found["clock"]] == [pytest.approx(skew, abs=10)] * 2


@possible
@pytest.mark.usefixtures("_alone")
async def test_docker_on_a_machine_of_its_own():
    async with cloud(hosts="netns") as here:
        spec = here.spec()
        view = await here.made(spec)
        told = await here.ssh(
            spec, view, "docker run -d --name winarena windowsarena/winarena >/dev/null; docker ps -a"
        )
        assert "Up winarena" in told[1]
        inside = "docker exec winarena sh -c 'hostname; echo $HOME'"
        assert (await here.ssh(spec, view, inside))[1].splitlines()[0] == "evalfleet-1"
        probe = "import urllib.request as u; print(u.urlopen('http://20.20.20.21:5000/probe', timeout=5).status)"
        assert await here.ssh(spec, view, f'docker exec winarena python3 -c "{probe}"') == (0, "200\n")
        await here.control("POST", f"vms/{spec.name}/containers/winarena/kill")
        assert "Exited (137)" in (await here.ssh(spec, view, "docker ps -a"))[1]


@possible
@pytest.mark.usefixtures("_alone")
async def test_a_machine_of_its_own_begins_with_what_another_had():
    async with cloud(hosts="netns") as here, clients.opened(here.settings) as opened:
        images = Images(opened)
        first = here.spec("first")
        view = await here.made(first)
        assert view.disk_id is not None
        assert (await here.ssh(first, view, "echo kept >state; docker pull a/b"))[0] == 0
        wanted = ImageSpec(name="golden", owner="me", source_disk=view.disk_id, source_region="eastus", regions=())
        continuation = await images.create(wanted)
        assert continuation is not None
        await here.until("image.made")
        assert (await images.poll("golden", "1.0.0", continuation)).done
        golden = await images.find("golden")
        assert golden is not None
        second = here.spec("second", image=golden.id)
        status, told = await here.ssh(second, await here.made(second), "cat state; stat -c %U state; docker images")
        assert (status, told.split()[:3]) == (0, ["kept", "evalfleet", "a/b"])
        assert (await here.ssh(first, view, "cat state"))[1] == "kept\n"
