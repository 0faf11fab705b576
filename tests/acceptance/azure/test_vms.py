"""The life of VMs through Microsoft's own libraries, against the emulator over loopback."""

from __future__ import annotations

import base64
import json
import random
import time
from pathlib import Path
from typing import Any, cast

import anyio
import asyncssh
import pytest
from msgspec.structs import replace
from tests.support.cloud import cloud, connected, emulated

from evalfleet.azure import clients, quota
from evalfleet.azure.cloud import AzureCloud
from evalfleet.azure.provider import AzureProvider
from evalfleet.azure.requests import vm
from evalfleet.core.hosts.lifecycle import Power, Stage
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import Scenario, Times
from evalfleet.emulator.server import Options
from evalfleet.layout import Home
from evalfleet.pools.cloud.problems import Action, Cause, Refusal
from evalfleet.pools.cloud.purchases import Closed, Plan, Try, candidates, next_offer
from evalfleet.pools.cloud.records import LABEL_POOL, LABEL_WORKER, HostKey, Verb, expires_of
from evalfleet.pools.machine.keys import STAGE, SWAP, fresh_host_key

pytestmark = pytest.mark.anyio


async def test_from_nothing_to_a_login_and_back_to_nothing():
    async with cloud() as here:
        spec = here.spec()
        view = await here.made(spec)
        assert (view.stage, view.power, view.size) == (Stage.MADE, Power.RUNNING, spec.size)
        async with here.login(spec, view) as connection:
            done = await connection.run("echo $USER; pwd; echo x >kept; echo bad >&2; exit 3")
            assert done.exit_status == 3
            assert str(done.stdout).splitlines()[0] == "evalfleet"
            assert done.stderr == "bad\n"

        await here.done(Verb.STOP, spec.name, await here.vms.stop(spec.name))
        stopped = await here.vms.view(spec.name)
        assert stopped is not None
        assert stopped.power is Power.RELEASED
        with pytest.raises(OSError, match="Connect call failed"):
            async with here.login(spec, view):
                pass

        await here.done(Verb.START, spec.name, await here.vms.start(spec.name))
        async with here.login(spec, view) as connection:
            assert (await connection.run("cat kept", check=True)).stdout == "x\n"

        await here.done(Verb.DELETE, spec.name, await here.vms.delete(spec.name))
        assert await here.vms.view(spec.name) is None
        assert await here.vms.delete(spec.name) is None
        await here.networks.drop("p1", "eastus")
        assert await here.control("GET", "leaks") == {"leaks": [], "resources": {}}


async def test_a_created_vm_has_all_four_parts_and_our_tags():
    async with cloud() as here:
        view = await here.made(here.spec())
        found = await here.vms.resources("p1")
        kinds = sorted(each.type.rpartition("/")[2] for each in found)
        wanted = "disks networkInterfaces networkSecurityGroups publicIPAddresses virtualMachines virtualNetworks"
        assert kinds == wanted.split()
        assert {each.labels[LABEL_POOL] for each in found} == {"p1"}
        assert view.labels[LABEL_WORKER] == "w-evalfleet-1"
        assert await here.vms.resources("other") == []
        assert [each.name for each in await here.vms.list("p1")] == ["evalfleet-1"]
        assert (await here.vms.list())[0].power == "running"
        assert await here.vms.list("other") == []


async def test_a_continuation_outlives_its_client():
    async with cloud(Scenario(times=Times(create=30)), speed=100) as here:
        spec = here.spec()
        continuation = await here.vms.order(spec, here.network)
        assert continuation is not None
        first = await here.vms.poll(Verb.CREATE, spec.name, continuation, spec)
        assert not first.done
        async with clients.opened(here.settings) as opened:
            here.vms = AzureCloud(opened, Home(Path("/nowhere")))
            assert (await here.done(Verb.CREATE, spec.name, continuation, spec)).problem is None
        assert len(here.exchanges("PUT", "virtualMachines")) == 1


async def test_an_operation_that_azure_has_forgotten():
    async with cloud() as here:
        spec = here.spec()
        continuation = await here.vms.order(spec, here.network)
        assert continuation is not None
        await here.until("vm.running")
        await here.control("DELETE", "operations")
        assert (await here.vms.poll(Verb.CREATE, spec.name, continuation, spec)).forgotten
        view = await here.vms.view(spec.name)
        assert view is not None
        assert view.stage is Stage.MADE


async def test_lists_before_anything_is_there():
    async with cloud() as here:
        elsewhere = replace(here.settings, resource_group="none")
        async with clients.opened(elsewhere) as opened:
            vms = AzureCloud(opened, Home(Path("/nowhere")))
            assert await vms.list() == []
            assert await vms.resources() == []
            assert await vms.view("x") is None
            assert await vms.delete("x") is None


async def test_what_is_stored_of_an_operation_holds_no_secret():
    async with cloud() as here:
        spec = here.spec()
        continuation = await here.vms.order(spec, here.network)
        assert continuation is not None
        stored = base64.b64decode(continuation).decode()
        for secret in (spec.host_key.private.splitlines()[1], "customData", "Bearer"):
            assert secret not in stored
        shown = json.dumps([each["answer"] for each in here.exchanges("GET", "") + here.exchanges("PUT", "")])
        assert "customData" not in shown


async def test_create_said_twice_makes_one():
    async with cloud() as here:
        spec = here.spec()
        view = await here.made(spec)
        again = replace(spec, host_key=fresh_host_key())
        assert await here.vms.order(again, here.network) is None
        assert len(here.events("vm.creating")) == 1
        async with here.login(spec, view) as connection:  # the first key is still the one
            await connection.run("true", check=True)


async def test_a_host_with_another_key_is_not_talked_to():
    async with cloud() as here:
        here.emulator.world.faults.add(Fault(op="host.boot", preset="wrong_host_key"))
        spec = here.spec()
        view = await here.made(spec)
        with pytest.raises(asyncssh.HostKeyNotVerifiable):
            async with here.login(spec, view):
                pass


async def test_the_first_connection_replaces_the_host_key():
    async with cloud() as here:
        spec = here.spec()
        view = await here.made(spec)
        async with here.login(spec, view) as connection:
            done = await connection.run(STAGE, check=True)
            async with here.login(spec, view):
                pass  # nothing has changed yet
            await connection.run(SWAP, check=True)
        public = " ".join(str(done.stdout).split()[:2])
        assert public != spec.host_key.public
        with pytest.raises(asyncssh.HostKeyNotVerifiable):
            async with here.login(spec, view):
                pass
        renewed = replace(spec, host_key=HostKey(public=public, private=""))
        async with here.login(renewed, view) as connection:
            await connection.run("true", check=True)


async def test_a_missing_quota_names_the_number():
    async with cloud(Scenario(quota={"eastus": {"standardDDSv5Family": 10}})) as here:
        await here.made(here.spec("a"))
        with pytest.raises(Refusal, match="standardDDSv5Family in eastus lacks 6 cores: limit 10, used 8") as caught:
            await here.vms.order(here.spec("b"), here.network)
        assert caught.value.problem.action is Action.ASK_QUOTA
        usages = await quota.usages(here.clients, "eastus")
        assert (usages["standardDDSv5Family"].used, usages["standardDDSv5Family"].limit) == (8, 10)
        # Deallocated machines count.
        await here.done(Verb.STOP, "a", await here.vms.stop("a"))
        assert (await quota.usages(here.clients, "eastus"))["standardDDSv5Family"].used == 8


FAULTS = [
    Fault(op="vm.create", match={"location": "eastus"}, preset="sku_not_available"),
    Fault(op="vm.create", match={"location": "westus2"}, preset="allocation_failed"),
]


async def test_the_third_region_is_used_and_the_second_left_clean():
    async with cloud(Scenario(fault=FAULTS)) as here:
        plan = Plan(offers=candidates(["Standard_D8ds_v5"], ["eastus", "westus2", "centralus"]))
        closed, rng, problem, causes = Closed(), random.Random(1), None, []
        for _ in range(4):
            plan, closed, step = next_offer(plan, problem, closed, time.time(), rng, AzureProvider().family)
            assert isinstance(step, Try)
            if step.clear and (gone := await here.vms.delete("w1")):
                await here.done(Verb.DELETE, "w1", gone)
            spec = here.spec("w1", region=step.offering.region)
            network = await here.networks.ensure("p1", spec.region, "me")
            try:
                continuation = await here.vms.order(spec, network)
                problem = (await here.done(Verb.CREATE, "w1", continuation, spec)).problem
            except Refusal as refusal:
                problem = refusal.problem
            if problem is None:
                break
            causes.append(problem.cause)
        assert causes == [Cause.SKU, Cause.CAPACITY]
        view = await here.vms.view("w1")
        assert view is not None
        assert (view.region, view.power) == ("centralus", "running")
        assert (await here.control("GET", "leaks"))["leaks"] == []


async def test_a_failed_record_stays_and_tells_why():
    async with cloud(Scenario(fault=[FAULTS[1]])) as here:
        network = await here.networks.ensure("p1", "westus2", "me")
        spec = here.spec(region="westus2")
        progress = await here.done(Verb.CREATE, spec.name, await here.vms.order(spec, network), spec)
        assert progress.problem is not None
        assert "no machine free for Standard_D8ds_v5 in westus2" in progress.problem.message
        view = await here.vms.view(spec.name)
        assert view is not None
        assert view.stage is Stage.FAILED
        assert view.problem is not None
        assert view.problem.code == "AllocationFailed"
        leaks = (await here.control("GET", "leaks"))["leaks"]
        assert [leak["why"] for leak in leaks] == ["failed, and was not deleted"]


async def test_a_storm_of_429_is_waited_out():
    fault = Fault(op="vm.create", preset="throttled", times=3, retry_after=0.3)
    async with cloud(Scenario(fault=[fault])) as here:
        begun = time.monotonic()
        await here.made(here.spec())
        assert time.monotonic() - begun >= 0.9
        statuses = [each["status"] for each in here.exchanges("PUT", "virtualMachines")]
        assert statuses == [429, 429, 429, 201]


async def test_a_storm_that_does_not_end_is_told():
    async with cloud(Scenario(fault=[Fault(op="vm.create", preset="throttled", retry_after=0.05)])) as here:
        with pytest.raises(Refusal) as caught:
            await here.vms.order(here.spec(), here.network)
        assert caught.value.problem.cause is Cause.THROTTLED
        assert caught.value.problem.wait_s == 0.05
        assert len(here.exchanges("PUT", "virtualMachines")) == clients.RETRIES + 1


async def test_trusted_launch_is_what_comes_if_nothing_is_said():
    async with cloud() as here:
        spec = here.spec()
        body = vm.vm_body(spec, subnet_id=here.network.subnet_id, nsg_id=here.network.nsg_id)
        del body["properties"]["securityProfile"]
        async with clients.opened(here.settings) as opened:
            poller = await opened.compute.virtual_machines.begin_create_or_update(
                "evalfleet", "bare", cast("Any", body)
            )
            made = await poller.result()
            assert made.as_dict()["properties"]["securityProfile"]["securityType"] == "TrustedLaunch"
        await here.made(here.spec("ours"))
        (ours,) = here.exchanges("PUT", "virtualMachines/ours")
        assert ours["answer"]["properties"]["securityProfile"] == {"securityType": "Standard"}


async def test_an_eviction_is_announced_and_deletes():
    async with cloud() as here:
        await here.made(here.spec("regular"))
        spot = here.spec("spot", spot=True)
        view = await here.made(spot)
        assert view.spot
        here.emulator.world.times.notice = 3600.0
        here.emulator.world.clock.speed = 100.0
        ask = 'curl -sH Metadata:true "$EVALFLEET_IMDS/metadata/scheduledevents?api-version=2020-07-01"'
        async with here.login(spot, view) as connection:
            assert json.loads(str((await connection.run(ask, check=True)).stdout))["Events"] == []
            await here.vms.simulate_eviction("spot")
            (event,) = json.loads(str((await connection.run(ask, check=True)).stdout))["Events"]
            assert (event["EventType"], event["EventStatus"], event["Resources"]) == ("Preempt", "Scheduled", ["spot"])
            # The machine agrees, and so need not wait for the end of its notice.
            agreed = json.dumps({"StartRequests": [{"EventId": event["EventId"]}]})
            await connection.run(f"{ask} -d '{agreed}'")
            with anyio.fail_after(30):
                await connection.wait_closed()
        await here.until("vm.deleted")
        assert await here.vms.view("spot") is None
        with pytest.raises(Refusal, match="Only Azure Spot"):
            await here.vms.simulate_eviction("regular")
        assert (await here.control("GET", "leaks"))["leaks"] == []


async def test_run_command_is_a_way_in():
    async with cloud() as here:
        await here.made(here.spec())
        told = await here.vms.run_command("evalfleet-1", "echo hello from $HOSTNAME\necho bad >&2")
        assert "[stdout]\nhello from evalfleet-1\n" in told
        assert "[stderr]\nbad\n" in told


async def test_the_deadline_holds_without_us_and_can_be_moved():
    async with cloud() as here:
        view = await here.made(here.spec())
        await here.vms.set_deadline(view.name, view.region, view.labels, time.time() + 2 * 3600)
        await here.vms.set_deadline(view.name, view.region, view.labels, time.time() + 5 * 3600)
        await here.control("POST", "clock", {"seconds": 3 * 3600})
        assert (await here.vms.view(view.name)).power == "running"  # pyright: ignore[reportOptionalMemberAccess]
        await here.control("POST", "clock", {"seconds": 3 * 3600})
        await here.until("vm.deallocated")
        stopped = await here.vms.view(view.name)
        assert stopped is not None
        assert stopped.power is Power.RELEASED
        gone = await here.vms.delete(view.name)
        await here.done(Verb.DELETE, view.name, gone)
        await here.vms.drop_deadline(view.name)  # not before: a deletion may fail
        assert (await here.control("GET", "leaks"))["leaks"] == []


async def test_tags_can_be_renewed():
    async with cloud() as here:
        view = await here.made(here.spec())
        await here.vms.extend(view, 2_000_000_000)
        renewed = await here.vms.view(view.name)
        assert renewed is not None
        assert expires_of(dict(renewed.labels)) == 2_000_000_000
        assert renewed.labels[LABEL_POOL] == "p1"


async def test_nobody_there():
    async with cloud() as here:
        gone = replace(here.settings, arm_url="http://127.0.0.1:9")
    async with clients.opened(gone) as opened:
        with anyio.fail_after(120), pytest.raises(Refusal, match="does not answer") as caught:
            await quota.usages(opened, "eastus")
        assert caught.value.problem.cause is Cause.SERVER


async def test_a_role_that_is_missing_is_told():
    fault = Fault(op="vm.create", preset="authorization_failed")
    async with cloud(Scenario(fault=[fault])) as here:
        with pytest.raises(Refusal, match="`evalfleet doctor --azure` shows which permissions") as caught:
            await here.vms.order(here.spec(), here.network)
        assert caught.value.problem.action is Action.GIVE_UP


async def test_signing_in_for_real_and_the_whole_life_of_a_vm_over_https(monkeypatch: pytest.MonkeyPatch):
    options = Options(speed=0, tls=True)
    async with emulated(options) as emulator:
        for name, value in emulator.settings().items():
            monkeypatch.setenv(name, value)
        async with connected(emulator.settings(), emulator) as here:
            assert here.settings.signed
            spec = here.spec()
            view = await here.made(spec)
            imds = 'curl -sH Metadata:true "$EVALFLEET_IMDS/metadata/instance?api-version=2020-07-01"'
            status, told = await here.ssh(spec, view, imds)
            assert (status, json.loads(told)["compute"]["name"]) == (0, spec.name)
            await here.done(Verb.DELETE, spec.name, await here.vms.delete(spec.name))
            assert (await here.control("GET", "leaks"))["leaks"] == []
            (token,) = {each["answer"]["access_token"] for each in here.exchanges("POST", "/oauth2/v2.0/token")}
            used = {each["headers"]["Authorization"] for each in here.exchanges("GET", "/subscriptions/")}
            assert used == {f"Bearer {token}"}
