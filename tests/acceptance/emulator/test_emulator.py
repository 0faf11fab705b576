"""The emulator itself: hosts, faults, links, bill, leaks, and that its answers are Azure's."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import anyio
import asyncssh
import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.compute import models as compute
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.resource.resources import ResourceManagementClient
from msgspec.structs import replace
from tests.support import azure_bodies
from tests.support.cloud import Cloud, cloud

from evalfleet.azure import quota
from evalfleet.azure.requests import vm
from evalfleet.core.hosts.lifecycle import Power
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import Eviction, Scenario, Times
from evalfleet.pools.cloud.problems import Refusal
from evalfleet.pools.cloud.records import Verb

pytestmark = pytest.mark.anyio


class Unsigned(SansIOHTTPPolicy[Any, Any]):
    """What lets Microsoft's clients talk plain HTTP."""

    def on_request(self, request: Any) -> None:
        request.http_request.headers["Authorization"] = "Bearer none"


def knobs(here: Cloud) -> dict[str, Any]:
    return {"base_url": here.emulator.url, "authentication_policy": Unsigned(), "polling_interval": 0.05}


def runs(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# Other clients than ours


async def test_the_synchronous_clients_see_the_same():
    async with cloud() as here:
        await here.made(here.spec())
        subscription, credential = here.settings.subscription, Any

        def look() -> None:
            groups = ResourceManagementClient(credential, subscription, **knobs(here))  # pyright: ignore[reportArgumentType]
            network = NetworkManagementClient(credential, subscription, **knobs(here))  # pyright: ignore[reportArgumentType]
            machines = ComputeManagementClient(credential, subscription, **knobs(here))  # pyright: ignore[reportArgumentType]
            with groups, network, machines:
                assert [group.name for group in groups.resource_groups.list()] == ["evalfleet"]
                assert groups.resource_groups.check_existence("none") is False
                found = list(groups.resources.list(filter="tagName eq 'evalfleet-pool' and tagValue eq 'p1'"))
                assert len(found) == 6
                (nic,) = network.network_interfaces.list("evalfleet")
                assert nic.as_dict()["properties"]["virtualMachine"]["id"].endswith("virtualMachines/evalfleet-1")
                (subnet,) = [network.subnets.get("evalfleet", "p1-eastus", vm.SUBNET)]
                assert subnet.name == vm.SUBNET
                with pytest.raises(HttpResponseError, match="is in use"):
                    network.virtual_networks.begin_delete("evalfleet", "p1-eastus").result()
                view = machines.virtual_machines.instance_view("evalfleet", "evalfleet-1").as_dict()
                assert [status["code"] for status in view["statuses"]][-1] == "PowerState/running"
                sizes = {sku.name for sku in machines.resource_skus.list(filter="location eq 'eastus'")}
                assert "Standard_D8ds_v5" in sizes
                with pytest.raises(ResourceNotFoundError):
                    machines.virtual_machines.get("evalfleet", "none")
                groups.resource_groups.begin_delete("evalfleet").result()
                assert list(groups.resource_groups.list()) == []

        await anyio.to_thread.run_sync(look)
        assert await here.control("GET", "leaks") == {"leaks": [], "resources": {}}


@pytest.mark.skipif(not azure_bodies.SPECS.exists(), reason="the official files are not here")
async def test_answers_about_vms_fit_the_official_schema():
    async with cloud() as here:
        view = await here.made(here.spec(spot=True))
        await here.vms.list()
        file, schema = azure_bodies.schema_of(azure_bodies.COMPUTE / "virtualMachine.json", "VirtualMachine")
        exchanges = here.exchanges("GET", f"virtualMachines/{view.name}") + here.exchanges("PUT", "virtualMachines")
        assert len(exchanges) >= 2
        for each in exchanges:
            if each["path"].endswith("/instanceView"):
                assert list(azure_bodies.by_model(each["answer"], compute.VirtualMachineInstanceView)) == []
                continue
            assert list(azure_bodies.by_schema(each["answer"], file, schema, request=False)) == []
            assert list(azure_bodies.by_model(each["answer"], compute.VirtualMachine)) == []


async def test_a_vm_that_says_detach_leaves_its_parts():
    async with cloud() as here:
        spec = here.spec()
        body = vm.vm_body(spec, subnet_id=here.network.subnet_id, nsg_id=here.network.nsg_id)
        del body["properties"]["storageProfile"]["osDisk"]["deleteOption"]
        del body["properties"]["networkProfile"]["networkInterfaceConfigurations"][0]["properties"]["deleteOption"]
        async with here.http.put(
            f"{here.emulator.url}{here.settings.group_path()}/providers/Microsoft.Compute/virtualMachines/{spec.name}",
            params={"api-version": "2026-04-01"},
            headers={"Authorization": "Bearer x"},
            json=body,
        ) as answer:
            assert answer.status == 201
        await here.until("vm.running")
        await here.done(Verb.DELETE, spec.name, await here.vms.delete(spec.name))
        leaks = (await here.control("GET", "leaks"))["leaks"]
        assert sorted(leak["type"].rpartition("/")[2] for leak in leaks) == ["disks", "networkInterfaces"]
        for owned in sorted(await here.vms.resources("p1"), key=lambda each: each.type.endswith("Addresses")):
            if owned.type.endswith(("disks", "networkInterfaces", "publicIPAddresses")):
                await here.vms.delete_resource(owned)
        assert (await here.control("GET", "leaks"))["leaks"] == []


async def test_signing_in_and_what_is_refused():
    async with cloud() as here:
        url = here.emulator.url
        async with here.http.get(f"{url}/t1/v2.0/.well-known/openid-configuration") as answer:
            endpoint = (await answer.json())["token_endpoint"]
        async with here.http.post(endpoint, data={"client_secret": "x"}) as answer:
            assert (await answer.json())["token_type"] == "Bearer"
        group = f"{url}{here.settings.group_path()}"
        signed = {"Authorization": "Bearer x"}
        for path, headers, status, code in (
            (f"{group}?api-version=1", {}, 401, "AuthenticationFailed"),
            (group, signed, 400, "MissingApiVersionParameter"),
            (f"{group}/providers/Microsoft.Web/sites/x?api-version=1", signed, 404, "InvalidResourceType"),
            (f"{url}/subscriptions/s/nonsense?api-version=1", signed, 404, "InvalidResourceType"),
            (f"{url}/imds/none/metadata/instance?api-version=1", {}, 400, "BadRequest"),
            (f"{url}/imds/none/metadata/instance?api-version=1", {"Metadata": "true"}, 404, "ResourceNotFound"),
        ):
            async with here.http.get(path, headers=headers) as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"hardwareProfile": {"vmSize": "Standard_Z1"}}, "InvalidParameter"),
        ({"hardwareProfile": {"vmSize": "Standard_D8_v3"}}, "BadRequest"),  # boots the first generation only
        ({"evictionPolicy": "Delete"}, "EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines"),
    ],
)
async def test_bodies_that_azure_refuses(change: dict[str, Any], code: str):
    async with cloud() as here:
        body = vm.vm_body(here.spec(), subnet_id=here.network.subnet_id, nsg_id=here.network.nsg_id)
        body["properties"] |= change
        url = f"{here.emulator.url}{here.settings.group_path()}/providers/Microsoft.Compute/virtualMachines/x"
        async with here.http.put(f"{url}?api-version=2026-04-01", headers={"Authorization": "b"}, json=body) as answer:
            assert (await answer.json())["error"]["code"] == code
        assert here.events("vm.creating") == []


async def test_a_vm_in_no_network_is_refused_and_leaves_nothing():
    async with cloud() as here:
        nowhere = replace(here.network, subnet_id="/x/subnets/y")
        with pytest.raises(Refusal, match="referenced by subnet was not found"):
            await here.vms.order(here.spec(), nowhere)
        assert await here.vms.list() == []


# Hosts


async def test_files_forwarding_and_terminals(tmp_path: Path):
    async with cloud() as here:
        spec = here.spec()
        view = await here.made(spec)
        (tmp_path / "up").write_text("content")
        async with here.login(spec, view) as connection:
            async with connection.start_sftp_client() as files:
                await files.put(tmp_path / "up", "folder-less")
            assert (await connection.run("cat folder-less", check=True)).stdout == "content"
            await asyncssh.scp((connection, "folder-less"), tmp_path / "down")
            assert (tmp_path / "down").read_text() == "content"
            assert (await connection.run("cat", input="through", check=True)).stdout == "through"
            shown = await connection.run("tty >/dev/null && stty size", term_type="xterm", term_size=(100, 30))
            assert str(shown.stdout).split() == ["30", "100"]
            port = int(here.emulator.url.rpartition(":")[2])
            listener = await connection.forward_local_port("127.0.0.1", 0, "127.0.0.1", port)
            async with here.http.get(f"http://127.0.0.1:{listener.get_port()}/emulator/faults") as answer:
                assert answer.status == 200
            killed = await connection.run("kill -TERM $$")
            assert killed.exit_signal is not None
            assert killed.exit_signal[0] == "TERM"


async def test_a_stopped_machine_loses_its_daemons_and_its_temporary_disk():
    async with cloud() as here:
        spec = here.spec()
        view = await here.made(spec)
        started = "echo x >$EVALFLEET_TEMPORARY_DISK/f; setsid env -i sleep 300 >/dev/null 2>&1 </dev/null & echo $!"
        async with here.login(spec, view) as connection:
            pid = int(str((await connection.run(started, check=True)).stdout))
        assert runs(pid)
        await here.done(Verb.STOP, spec.name, await here.vms.stop(spec.name))
        assert [leak for leak in (await here.control("GET", "leaks"))["leaks"] if leak["type"] == "process"] == []
        assert not runs(pid)
        await here.done(Verb.START, spec.name, await here.vms.start(spec.name))
        async with here.login(spec, view) as connection:
            assert (await connection.run("ls $EVALFLEET_TEMPORARY_DISK", check=True)).stdout == ""


async def test_a_partition_is_silence_and_heals():
    async with cloud() as here:
        spec = here.spec()
        view = await here.made(spec)
        async with here.login(spec, view) as connection:
            await here.control("POST", f"vms/{spec.name}/link", {"blocked": True})
            answers: list[Any] = []
            async with anyio.create_task_group() as tasks:

                async def ask() -> None:
                    answers.append(await connection.run("echo late", check=True))

                tasks.start_soon(ask)
                with anyio.move_on_after(0.3):
                    await connection.wait_closed()
                assert answers == []  # neither an answer nor an error
                await here.control("POST", f"vms/{spec.name}/link", {})
            assert answers[0].stdout == "late\n"


async def test_a_slow_link_is_slow_and_whole():
    async with cloud() as here:
        spec = here.spec()
        view = await here.made(spec)
        async with here.login(spec, view) as connection:
            await here.control("POST", f"vms/{spec.name}/link", {"latency_s": 0.2})
            begun = time.monotonic()
            done = await connection.run("head -c 100000 /dev/zero | tr '\\0' x", check=True)
            assert time.monotonic() - begun >= 0.4
            assert len(str(done.stdout)) == 100000


async def test_faults_of_commands_and_boots():
    faults = [
        Fault(op="host.exec", match={"command": "docker pull*"}, hang=True),
        Fault(op="host.exec", match={"command": "test -w /dev/kvm"}, exit=1, stderr="no /dev/kvm"),
        Fault(op="host.exec", match={"command": "cut"}, drop=True),
        Fault(op="host.boot", match={"name": "deaf"}, preset="no_ssh"),
        Fault(op="host.boot", match={"name": "mute"}, preset="mute_ssh"),
    ]
    async with cloud(Scenario(fault=faults)) as here:
        spec = here.spec()
        view = await here.made(spec)
        async with here.login(spec, view) as connection:
            done = await connection.run("test -w /dev/kvm")
            assert (done.exit_status, done.stderr) == (1, "no /dev/kvm\n")
            with pytest.raises(TimeoutError):
                await connection.run("docker pull x", timeout=0.3)
            lost = await connection.run("cut")
            assert lost.exit_status is None  # as of any host that is gone
        for name in ("deaf", "mute"):
            other = here.spec(name)
            seen = await here.made(other)
            assert seen.power == "running"
            with pytest.raises((OSError, TimeoutError)), anyio.fail_after(0.5):
                async with here.login(other, seen):
                    pass


async def test_a_crash_cuts_and_comes_back():
    async with cloud() as here:
        spec = here.spec()
        view = await here.made(spec)
        async with here.login(spec, view) as connection:
            process = await connection.create_process("echo on; sleep 300")
            assert await process.stdout.readline() == "on\n"
            await here.control("POST", f"vms/{spec.name}/crash")
            assert (await process.wait()).exit_status is None
        async with here.login(spec, view) as connection:
            await connection.run("true", check=True)


# Faults of the interface


async def test_faults_by_its_own_interface():
    async with cloud() as here:
        assert (await here.control("POST", "faults", {"op": "vm.get", "preset": "nonsense"}))["error"][
            "code"
        ] == "BadRequest"
        assert (await here.control("POST", "faults", {"op": "vm.get"}))["error"]["message"].endswith(
            "hang, drop or exit."
        )
        await here.control("POST", "faults", {"op": "usages.list", "drop": True, "times": 1})
        await here.control("POST", "faults", {"op": "usages.*", "preset": "server_error", "times": 1})
        assert "cores" in await quota.usages(here.clients, "eastus")  # the library tried again, twice
        faults = (await here.control("GET", "faults"))["faults"]
        assert [(fault["met"], fault["used"]) for fault in faults] == [(3, 1), (2, 1)]
        assert await here.control("DELETE", "faults") == 204
        assert (await here.control("GET", "faults"))["faults"] == []
        assert len(here.events("fault.hit")) == 2


async def test_the_same_seed_is_the_same_chance():
    async def statuses() -> list[int]:
        fault = Fault(op="vm.get", preset="authorization_failed", probability=0.5)
        async with cloud(Scenario(seed=3, fault=[fault])) as here:
            for _ in range(12):
                try:
                    await here.vms.view("none")
                except Refusal:
                    continue
            return [each["status"] for each in here.exchanges("GET", "virtualMachines")]

    first = await statuses()
    assert first == await statuses()
    assert set(first) == {403, 404}


async def test_evictions_of_a_scenario_hit_spot_machines_only():
    evictions = [Eviction(after=0.0, every=1.0, count=1)]
    async with cloud(Scenario(times=Times(create=0, notice=0), eviction=evictions), speed=50) as here:
        await here.made(here.spec("regular"))
        await here.made(here.spec("spot", spot=True))
        assert (await here.until("vm.evicted"))["subject"] == "spot"
        assert {event["subject"] for event in here.events("vm.evicted")} == {"spot"}


async def test_an_eviction_without_a_word_and_of_a_share():
    scenario = Scenario(seed=5, times=Times(create=0, notice=3600))
    async with cloud(scenario, speed=100) as here:
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(here.made, here.spec(f"spot-{number}", spot=True))
            tasks.start_soon(here.made, here.spec("regular"))
        answer = await here.control("POST", "evictions", {"share": 0.3, "silent": True})
        gone = set(answer["evicted"])
        assert len(gone) == 3
        last = 0
        for _ in gone:
            last = (await here.until("vm.deleted", after=last))["number"]
        assert not {view.name for view in await here.vms.list()} & gone
        assert here.events("vm.preempting") == []
        assert {event["subject"] for event in here.events("vm.evicted")} == gone
        assert all(event["data"] == {"silent": True, "policy": "Delete"} for event in here.events("vm.evicted"))
        assert (await here.control("GET", "leaks"))["leaks"] == []

        (told,) = (await here.control("POST", "evictions", {"name": f"spot-{_other(gone)}"}))["evicted"]
        assert (await here.until("vm.preempting"))["subject"] == told
        assert await here.vms.view(told) is not None  # its notice is an hour
        assert await here.control("POST", f"vms/spot-{_other(gone)}/evict", {"silent": True}) == 204
        for wrong in ({"share": 2}, {"count": 0}, {"shar": 0.3}):
            assert (await here.control("POST", "evictions", wrong))["error"]["code"] == "BadRequest"


def _other(gone: set[str]) -> int:
    """A number whose machine is still there."""
    return next(number for number in range(10) if f"spot-{number}" not in gone)


async def test_a_machine_whose_policy_is_to_deallocate_stays():
    async with cloud() as here:
        spec = here.spec(spot=True)
        body = vm.vm_body(spec, subnet_id=here.network.subnet_id, nsg_id=here.network.nsg_id)
        body["properties"]["evictionPolicy"] = "Deallocate"
        url = f"{here.emulator.url}{here.settings.group_path()}/providers/Microsoft.Compute/virtualMachines/{spec.name}"
        async with here.http.put(f"{url}?api-version=2026-04-01", headers={"Authorization": "b"}, json=body) as answer:
            assert answer.status == 201
        await here.until("vm.running")
        await here.vms.simulate_eviction(spec.name)
        await here.until("vm.deallocated")
        view = await here.vms.view(spec.name)
        assert view is not None
        assert view.power is Power.RELEASED


# What was said


async def test_a_planted_secret_is_found_wherever_it_went():
    async with cloud() as here:
        spec = here.spec(owner="in-a-tag-5ecret")
        view = await here.made(spec)
        assert {each["method"] for each in here.traffic("in-a-tag-5ecret")} >= {"PUT", "GET"}
        # The host key is in the cloud-init, encoded, and in no other request.
        line = spec.host_key.private.splitlines()[1]
        assert [(each["method"], each["path"].rpartition("/")[2]) for each in here.traffic(line[:40])] == [
            ("PUT", spec.name)
        ]
        await here.ssh(spec, view, "echo in-argv-5ecret")
        (command,) = here.traffic("in-argv-5ecret")
        assert (command["method"], command["path"]) == ("EXEC", f"ssh/{spec.name}")
        await here.ssh(
            spec, view, 'curl -s -H Metadata:true -H "X: in-a-header-5ecret" "$EVALFLEET_IMDS/metadata/instance"'
        )
        assert len(here.traffic("X: in-a-header-5ecret")) == 1  # as a command
        assert [each["method"] for each in here.traffic("in-a-header-5ecret")] == ["EXEC", "GET"]
        async with here.http.post(
            f"{here.emulator.url}/t/oauth2/v2.0/token", data={"client_secret": "in-a-form-5ecret"}
        ):
            pass
        assert len((await here.control("GET", "traffic?contains=in-a-form-5ecret"))["exchanges"]) == 1
        assert here.traffic("never-said") == []
        assert (await here.control("GET", "traffic?contains=never-said"))["exchanges"] == []
