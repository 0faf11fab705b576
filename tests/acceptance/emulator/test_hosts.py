"""Machines of the emulator that are not as they should be, from inside: KVM, disk, clock, network, Docker."""

from __future__ import annotations

import ipaddress
import json
import sys
import time
from datetime import UTC, datetime
from typing import Any, cast

import aiohttp
import anyio
import pytest
from tests.support.cloud import Cloud, cloud

from evalfleet.azure import clients
from evalfleet.azure.requests import vm
from evalfleet.azure.responses import VmView
from evalfleet.benchmarks.waa import readiness
from evalfleet.benchmarks.waa.docker import Docker
from evalfleet.benchmarks.waa.settings import WaaSettings
from evalfleet.emulator.context import Addresses
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import LinkChange, Scenario, Times
from evalfleet.pools.cloud.records import MachineSpec, Verb

pytestmark = pytest.mark.anyio

# How the readiness checks asks.
KVM = "if command -v kvm-ok >/dev/null; then kvm-ok; else test -w /dev/kvm && grep -qE 'svm|vmx' /proc/cpuinfo; fi"
FREE_KB = "df -Pk ~ | awk 'NR == 2 {print $4}'"


def boot(preset: str, name: str = "*", **more: Any) -> Fault:
    return Fault(op="host.boot", match={"name": name}, preset=preset, **more)


async def one(here: Cloud, name: str = "evalfleet-1", **changes: Any) -> tuple[MachineSpec, VmView]:
    spec = here.spec(name, **changes)
    return spec, await here.made(spec)


async def free_gb(here: Cloud, spec: MachineSpec, view: VmView) -> float:
    status, told = await here.ssh(spec, view, FREE_KB)
    assert status == 0
    return int(told) / 2**20


# What a machine is


async def test_a_machine_as_it_should_be():
    async with cloud() as here:
        spec, view = await one(here)
        assert (await here.ssh(spec, view, KVM))[0] == 0
        assert await free_gb(here, spec, view) == pytest.approx(122, abs=0.1)
        seen = float((await here.ssh(spec, view, "date +%s.%N"))[1])
        assert abs(seen - time.time()) < 10
        assert await here.ssh(spec, view, "sudo -n -E X=1 sh -c 'echo $X; command -v docker'") == (
            0,
            f"1\n{here.folder(view)}/bin/docker\n",
        )
        assert (await here.ssh(spec, view, "sudo apt-get install -y docker.io && systemctl is-active docker"))[
            1
        ] == "active\n"


async def test_kvm_can_be_missing_for_four_reasons():
    async with cloud(Scenario(fault=[boot("no_kvm", "broken")])) as here:
        for name, size in (("broken", "Standard_D8ds_v5"), ("no-nested", "Standard_D8as_v4")):
            status, told = await here.ssh(*await one(here, name, size=size), KVM)
            assert (status, told.splitlines()[-1]) == (1, "KVM acceleration can NOT be used")
        spec, view = await one(here, "good")
        await here.control("POST", "vms/good/condition", {"kvm": False})
        assert (await here.ssh(spec, view, KVM))[0] == 1

        body = vm.vm_body(here.spec("bare"), subnet_id=here.network.subnet_id, nsg_id=here.network.nsg_id)
        del body["properties"]["securityProfile"]
        bare = here.spec("bare")
        body["properties"]["osProfile"]["customData"] = vm.vm_body(
            bare, subnet_id=here.network.subnet_id, nsg_id=here.network.nsg_id
        )["properties"]["osProfile"]["customData"]
        async with clients.opened(here.settings) as opened:
            poller = await opened.compute.virtual_machines.begin_create_or_update(
                "evalfleet", "bare", cast("Any", body)
            )
            await poller.result()
        seen = await here.vms.view("bare")
        assert seen is not None
        assert (await here.ssh(bare, seen, KVM))[0] == 1


async def test_a_full_disk_and_the_repair():
    async with cloud(Scenario(fault=[boot("disk_full", "full"), boot("disk_full_of_images", "wasted")])) as here:
        full, wasted = await one(here, "full"), await one(here, "wasted")
        assert await free_gb(here, *full) == 0
        status, told = await here.ssh(*full, "docker pull windowsarena/winarena:latest")
        assert status == 1
        assert "no space left on device" in told
        for which, left in ((full, 0), (wasted, 122)):
            assert (await here.ssh(*which, "docker system prune -af"))[0] == 0
            assert await free_gb(here, *which) == pytest.approx(left, abs=0.1)
        # Over a stop it stays as it is.
        await here.done(Verb.STOP, "wasted", await here.vms.stop("wasted"))
        await here.fault(op="host.boot", preset="disk_full", times=1)
        await here.done(Verb.START, "wasted", await here.vms.start("wasted"))
        assert await free_gb(here, *wasted) == 0


async def test_a_clock_that_is_wrong():
    async with cloud(Scenario(fault=[boot("clock_skew", "ahead"), boot("clock_skew", "behind", seconds=-90)])) as here:
        for name, skew in (("ahead", 600), ("behind", -90)):
            which = await one(here, name)
            print_it = "import time; print(time.time())"
            # As the runner does: into a new program with a small environment.
            again = f"import os, sys; os.execve(sys.executable, [sys.executable, '-ISc', '{print_it}'], {{}})"
            for command in ("date +%s", f"python3 -c '{print_it}'", f'python3 -c "{again}"'):
                status, told = await here.ssh(*which, command)
                assert status == 0
                assert float(told) - time.time() == pytest.approx(skew, abs=10)
            iso = (await here.ssh(*which, "date -u +%Y-%m-%dT%H:%M:%S+00:00"))[1].strip()
            assert datetime.fromisoformat(iso).timestamp() - datetime.now(UTC).timestamp() == pytest.approx(
                skew, abs=10
            )
            assert (await here.ssh(*which, "date -u -d @0 +%Y"))[1] == "1970\n"


# Networks


@pytest.mark.long
async def test_a_slow_host_takes_five_seconds_each_way():
    async with cloud(Scenario(fault=[boot("slow_host", "slow"), boot("slow_host", "slower", seconds=0.3)])) as here:
        _, view = await one(here, "slow")
        address = await here.vms.address(view)
        assert address is not None
        begun = time.monotonic()
        async with await anyio.connect_tcp(address, here.settings.ssh_port) as link:
            assert (await link.receive()).startswith(b"SSH-2.0")
        assert time.monotonic() - begun >= 5.0

        spec, view = await one(here, "slower")
        async with here.login(spec, view) as connection:
            begun = time.monotonic()
            await connection.run("true", check=True)
            assert time.monotonic() - begun >= 2 * 0.3


async def test_a_partition_at_its_time_that_heals():
    changes = [LinkChange(name="cut-*", at=20, blocked=True, lasts=30)]
    async with cloud(Scenario(link=changes, times=Times(create=0)), speed=100) as here:
        spec, view = await one(here, "cut-1")
        await one(here, "whole")
        async with here.login(spec, view) as connection:
            first = await here.until("link.changed")
            assert (first["subject"], first["data"]["blocked"]) == ("cut-1", True)
            assert (await connection.run("echo late", check=True)).stdout == "late\n"
        (cut, healed) = here.events("link.changed")
        assert healed["at"] - cut["at"] >= 0.25
        assert {event["subject"] for event in here.events("link.changed")} == {"cut-1"}


# Docker


async def ready(here: Cloud, which: tuple[MachineSpec, VmView], run: str = "") -> None:
    assert (await here.ssh(*which, "docker pull windowsarena/winarena"))[0] == 0
    status, told = await here.ssh(*which, f"docker run --detach --name winarena {run} windowsarena/winarena:latest")
    assert status == 0, told


RUNNING = "docker container inspect --format '{{.State.Running}}' winarena"


async def test_docker_from_a_pull_to_a_prune():
    async with cloud() as here:
        which = await one(here)
        assert await here.ssh(*which, "docker version --format '{{.Server.Version}}'") == (0, "28.0.0-emulated\n")
        image = "docker image inspect --format '{{.Id}}' windowsarena/winarena:latest"
        status, told = await here.ssh(*which, image)
        assert (status, "No such image" in told) == (1, True)
        assert "No such container" in (await here.ssh(*which, RUNNING))[1]
        await ready(here, which)
        assert (await here.ssh(*which, image))[1].startswith("sha256:")
        assert await free_gb(here, *which) == pytest.approx(110, abs=0.1)
        assert await here.ssh(*which, RUNNING) == (0, "true\n")
        assert (await here.ssh(*which, "docker ps --format '{{.Names}} {{.Status}}'"))[1] == "winarena Up\n"
        told = await here.ssh(*which, "X=1 docker exec --env X --workdir / winarena sh -c 'echo $X; pwd; exit 7'")
        assert told == (7, "1\n/\n")
        assert await here.ssh(*which, "echo in | docker exec -i winarena cat") == (0, "in\n")
        assert "already in use" in (await here.ssh(*which, "docker run -d --name winarena windowsarena/winarena"))[1]
        assert "container is running" in (await here.ssh(*which, "docker rm winarena"))[1]
        assert (await here.ssh(*which, "docker stop -t 1 winarena && docker rm winarena && docker system prune -af"))[
            0
        ] == 0
        assert await free_gb(here, *which) == pytest.approx(122, abs=0.1)
        assert (await here.ssh(*which, "docker nonsense"))[0] == 1
        assert (await here.ssh(*which, "docker run --rm alpine echo hello"))[1].endswith("hello\n")
        assert (await here.ssh(*which, "docker ps -aq"))[1] == ""


async def test_containers_do_not_live_over_a_stop_unless_told():
    async with cloud() as here:
        which = await one(here)
        await ready(here, which)
        assert (await here.ssh(*which, "docker run -d --name keeper --restart always windowsarena/winarena"))[0] == 0
        await here.done(Verb.STOP, which[0].name, await here.vms.stop(which[0].name))
        await here.done(Verb.START, which[0].name, await here.vms.start(which[0].name))
        assert (await here.ssh(*which, "docker ps --format '{{.Names}}'"))[1] == "keeper\n"
        assert await here.ssh(*which, "docker start winarena") == (0, "winarena\n")
        assert await here.ssh(*which, RUNNING) == (0, "true\n")


async def test_a_container_that_dies_takes_its_processes():
    async with cloud() as here:
        which = await one(here)
        await ready(here, which)
        async with here.login(*which) as connection:
            process = await connection.create_process(
                "docker exec winarena sh -c 'setsid sleep 300 & echo on; sleep 300'"
            )
            assert await process.stdout.readline() == "on\n"
            await here.control("POST", f"vms/{which[0].name}/containers/winarena/kill")
            assert (await process.wait()).exit_status == 137
        assert await here.ssh(*which, RUNNING) == (0, "false\n")
        assert "is not running" in (await here.ssh(*which, "docker exec winarena true"))[1]
        assert await here.ssh(*which, "docker restart winarena") == (0, "winarena\n")
        await here.fault(op="host.docker", match={"command": "restart *"}, preset="container_dies", times=1)
        assert (await here.ssh(*which, "docker restart winarena"))[0] == 0
        await here.until("container.died", after=here.events("fault.hit")[-1]["number"])
        assert await here.ssh(*which, RUNNING) == (0, "false\n")


async def test_the_client_killed_the_program_in_the_container_goes_on():
    async with cloud() as here:
        which = await one(here)
        await ready(here, which)
        async with here.login(*which) as connection:
            await connection.run(
                "sh -c 'echo $$ >~/pid; exec docker exec winarena sh -c \"echo on; sleep 0.3; echo done >~/mark\"'"
                " | { read x; kill $(cat ~/pid); }; true",
                check=True,
            )
            mark = "docker exec winarena sh -c 'until [ -e ~/mark ]; do sleep 0.05; done; cat ~/mark'"
            assert (await connection.run(mark, check=True)).stdout == "done\n"


async def test_pulls_that_fail_hang_and_fill_the_disk():
    pulls = {"op": "host.docker", "match": {"command": "pull *"}}
    async with cloud() as here:
        which = await one(here)
        await here.fault(**pulls, preset="pull_fails", times=2)
        for _ in range(2):
            status, told = await here.ssh(*which, "docker pull a/b")
            assert (status, "request canceled while waiting for connection" in told) == (1, True)
        assert (await here.ssh(*which, "docker pull a/b"))[0] == 0

        await here.fault(**pulls, hang=True, times=1)
        async with here.login(*which) as connection:
            with pytest.raises(TimeoutError):
                await connection.run("docker pull a/c", timeout=0.5)

        await here.fault(**pulls, preset="pull_fills_disk", times=1)
        assert "no space left on device" in (await here.ssh(*which, "docker pull a/c"))[1]
        assert await free_gb(here, *which) == 0
        assert "no space left on device" in (await here.ssh(*which, "docker pull a/c"))[1]
        assert (await here.ssh(*which, "docker system prune -f && docker pull a/c"))[0] == 0

        await here.fault(op="host.docker", exit=3, stderr="odd", times=1)
        assert await here.ssh(*which, "docker ps") == (3, "odd\n")
        await here.control("POST", f"vms/{which[0].name}/condition", {"docker": False})
        assert (await here.ssh(*which, "docker ps"))[1].startswith("Cannot connect to the Docker daemon")


async def test_a_private_registry_wants_a_login_and_docker_keeps_it():
    async with cloud() as here:
        which = await one(here)
        image = "ours.azurecr.io/winarena:1"
        assert "authentication required" in (await here.ssh(*which, f"docker pull {image}"))[1]
        login = "docker login ours.azurecr.io --username u --password-stdin"
        assert await here.ssh(*which, f"echo s3cret | {login}") == (0, "Login Succeeded\n")
        kept = json.loads((await here.ssh(*which, "cat ~/.docker/config.json"))[1])
        assert kept["auths"]["ours.azurecr.io"]["auth"] == "dTpzM2NyZXQ="
        assert (await here.ssh(*which, f"docker pull {image}"))[0] == 0
        assert (await here.ssh(*which, "docker logout ours.azurecr.io; grep -c dTpz ~/.docker/config.json"))[
            1
        ].endswith("0\n")
        aside = (
            f"export DOCKER_CONFIG=$(mktemp -d); echo s3cret | {login}; rm -r $DOCKER_CONFIG; cat ~/.docker/config.json"
        )
        assert "dTpz" not in (await here.ssh(*which, aside))[1]
        await here.fault(op="host.docker", match={"command": "login *"}, preset="login_denied", times=1)
        assert (await here.ssh(*which, f"echo bad | {login}"))[0] == 1
        assert "s3cret" not in json.dumps(here.events())


async def test_windows_answers_some_time_after_its_container_started():
    async with cloud(Scenario(times=Times(windows=50)), speed=100) as here:
        here.emulator.world.times.create = here.emulator.world.times.pull = 0
        which = await one(here)
        await ready(here, which)
        probe = "import urllib.request as u; print(u.urlopen('http://20.20.20.21:5000/probe', timeout=5).status)"
        ask = f'until docker exec winarena python3 -c "{probe}" 2>/dev/null; do :; done'
        begun = time.monotonic()
        assert await here.ssh(*which, ask) == (0, "200\n")
        assert time.monotonic() - begun < 30
        started = here.events("container.started")[0]["at"]
        assert time.time() - started >= 0.5
        await here.control("POST", f"vms/{which[0].name}/guest", {"silent": True})
        assert (await here.ssh(*which, f'docker exec winarena python3 -c "{probe}"'))[0] == 1


async def test_a_container_shows_its_screen_only_on_a_port_that_it_publishes():
    async with cloud(Scenario(times=Times(windows=5)), speed=100) as here:
        here.emulator.world.times.create = here.emulator.world.times.pull = 0
        which = await one(here)
        address = await here.vms.address(which[1])

        async def shown(port: int) -> str | None:
            try:
                async with here.http.get(f"http://{address}:{port}/") as answer:
                    return await answer.text()
            except aiohttp.ClientConnectorError:
                return None

        await ready(here, which)
        assert await shown(8006) is None, "it publishes nothing"
        await here.ssh(*which, "docker run --detach --name other -p 127.0.0.1:8016:8006 windowsarena/winarena:latest")
        assert which[0].name in (await shown(8016) or "")
        assert await shown(8006) is None
        told = json.loads((await here.ssh(*which, "docker inspect other"))[1])
        assert told[0]["NetworkSettings"]["Ports"] == {"8006/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8016"}]}
        await here.ssh(*which, "docker stop other")
        assert await shown(8016) is None


@pytest.mark.parametrize(("one", "other"), [(40000, 40001), (40000, 40256), (1024, 65535)])
def test_machines_of_two_emulators_have_different_addresses(one: int, other: int):
    taken = [{made.take() for _ in range(200)} for made in (Addresses(one), Addresses(other))]
    assert not taken[0] & taken[1]
    assert all(ipaddress.ip_address(each).is_loopback for each in taken[0] | taken[1])


async def test_two_machines_share_no_container():
    """All are processes of one machine; what a task in one container writes, locks or kills must be its own."""
    look = (
        "docker run -d --name w winarena >/dev/null; echo $EVALFLEET_CONTAINER_LOCKS; "
        "docker exec -e M=/tmp/evalfleet/w w sh -c 'echo $M; echo /tmp/evalfleet/w; echo 20.20.20.21'"
    )
    async with cloud(speed=1000) as here:
        found = [await one(here, "first"), await one(here, "second")]
        for which in found:
            folder = here.folder(which[1])
            told = [f"{folder}/container-locks", *[f"{folder}/docker/tmp/w"] * 2, await here.vms.address(which[1])]
            assert (await here.ssh(*which, look))[1].splitlines() == told


async def test_the_ladder_of_waa_finds_its_container_there():
    async with cloud(Scenario(times=Times(windows=20)), speed=100) as here:
        here.emulator.world.times.create = here.emulator.world.times.pull = 0
        which = await one(here)
        settings = WaaSettings(docker=str(here.folder(which[1]) / "bin" / "docker"), python=sys.executable, kvm=False)

        def climb() -> list[tuple[str, bool]]:
            docker = Docker(settings.docker)
            found = [(check.name, check.holds) for check in readiness.host_checks(settings)]
            docker.call("pull", settings.image)
            docker.run(["--name", "winarena", "--cap-add", "NET_ADMIN", settings.image, "-c", settings.entry])
            checks = [*readiness.host_checks(settings), *readiness.container_checks(settings, "winarena", start=False)]
            return found + [(check.name, check.holds) for check in checks]

        found = await anyio.to_thread.run_sync(climb)
        assert found[:3] == [("docker", True), ("kvm", True), ("image", False)]
        assert found[3:] == [(name, True) for name in ("docker", "kvm", "image", "container", "guest")]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"op": "vm.create", "preset": "no_kvm"}, "is for host.boot"),
        ({"op": "host.exec", "preset": "pull_fails"}, "is for host.docker"),
        ({"op": "host.boot", "preset": "throttled"}, "is an answer of Azure"),
    ],
)
async def test_a_fault_that_would_do_nothing_is_refused(fault: dict[str, Any], said: str):
    async with cloud() as here:
        assert said in (await here.control("POST", "faults", fault))["error"]["message"]
