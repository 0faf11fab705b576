"""Who keeps a pool: one at a time, interrupted in any moment, in front of a cloud that is away for a while; and what it hides."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import anyio
import pytest
from tests.support.web_site import NAME, opened, site

from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import Scenario
from evalfleet.errors import Owned
from evalfleet.layout import Home
from evalfleet.model import DesiredState
from evalfleet.pools.record import NotOwned

pytestmark = pytest.mark.anyio


async def test_a_pool_has_one_keeper(tmp_path: Path) -> None:
    async with site(tmp_path) as here, opened(here.cloud, here.settings.home) as other:
        here.wants(workers=1)
        async with here.controller("run r1 on box 7") as controller:
            with pytest.raises(Owned, match="kept by run r1 on box 7, which carries out what was asked for"):
                await other.settle()
            await controller.settle()
        await other.settle()
        assert here.states() == {"evalfleet-1": "ready"}
        assert here.creations() == 1


async def test_a_keeper_that_was_overtaken_changes_nothing_any_more(tmp_path: Path) -> None:
    async with site(tmp_path, Scenario(fault=[Fault(op="vm.create", delay=0.5)])) as here:
        here.wants(workers=2)

        async def overtake() -> None:
            await here.cloud.until("fault.hit")
            await here.thread.call(here.kept.pools.take, NAME, "another")

        async with here.controller() as controller:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(overtake)
                with pytest.raises(NotOwned, match="is kept by another process now"):
                    await controller.settle()
            states = here.states()
            here.wants(workers=3)
            with pytest.raises(NotOwned):
                await controller.serve()
            assert here.states() == states
        await here.settle()
        assert list(here.states().values()) == ["ready"] * 3
        assert len(here.cloud.events("vm.creating")) == 3


@pytest.mark.parametrize("moment", ["vm.creating", "vm.running"])
async def test_an_interrupted_keeper_leaves_rows_that_the_next_goes_on_with(tmp_path: Path, moment: str) -> None:
    async with site(tmp_path, speed=400) as here:
        here.wants(workers=3)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def interrupt() -> None:
                    await here.cloud.until(moment)
                    scope.cancel()

                tasks.start_soon(interrupt)
                await here.settle()
        assert scope.cancelled_caught
        assert here.store.pools.owner(NAME) is None
        assert "ready" not in here.states().values() or moment == "vm.running"
        await here.settle()
        assert list(here.states().values()) == ["ready"] * 3
        assert len(here.cloud.events("vm.creating")) == 3


async def test_a_wish_that_changes_on_the_way_is_followed_at_once(tmp_path: Path) -> None:
    async with site(tmp_path, Scenario(fault=[Fault(op="host.boot", preset="no_ssh")])) as here:
        here.wants(workers=2, deadline={"ssh": 300.0})
        async with here.controller() as controller, anyio.create_task_group() as tasks:
            tasks.start_soon(controller.settle)
            await here.until(lambda: [host.readiness_check for host in here.hosts()] == ["ssh", "ssh"])
            here.store.pools.mark_for_deletion(NAME)
            await here.until(lambda: here.store.pools.all() == [])
        assert await here.leaks() == {"leaks": [], "resources": {}}


async def test_machines_of_another_home_with_the_same_name_are_left_alone(tmp_path: Path) -> None:
    async with site(tmp_path / "one") as here, opened(here.cloud, tmp_path / "two" / "home") as other:
        here.wants(workers=2)
        await here.settle()
        other.wants(workers=1)
        await other.settle()
        assert other.states() == {"evalfleet-3": "ready"}
        assert "there is a machine 'evalfleet-1' that" in (other.host("evalfleet-1").reason or "")
        other.store.pools.mark_for_deletion(NAME)
        await other.settle()
        assert here.states() == {"evalfleet-1": "ready", "evalfleet-2": "ready"}
        assert {view.name: view.power for view in await here.cloud.vms.list()} == dict.fromkeys(
            here.states(), "running"
        )
        assert len(here.cloud.events("vm.deleted")) == 1
        await here.settle()
        assert len(here.cloud.events("vm.creating")) == 3
        here.store.pools.mark_for_deletion(NAME)
        await here.settle()
        assert await here.leaks() == {"leaks": [], "resources": {}}


@pytest.mark.long
@pytest.mark.parametrize("away_s", [5.0])
async def test_a_cloud_that_is_away_for_seconds_is_waited_for(tmp_path: Path, away_s: float) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2)
        await here.settle()
        here.set_desired(DesiredState.STOPPED)
        async with anyio.create_task_group() as tasks:
            here.fault(op="vm.*", drop=True)
            tasks.start_soon(here.settle)
            await here.cloud.until("fault.hit")
            await anyio.sleep(away_s)
            here.cloud.emulator.world.faults.clear()
        assert here.states() == {"evalfleet-1": "stopped", "evalfleet-2": "stopped"}


async def test_the_key_in_cloud_init_is_in_one_request_and_nowhere_else(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=2)
        await here.settle()
        exchanges, secret = here.cloud.emulator.world.journal.exchanges(), ""
        for host in here.hosts():
            [put] = [each for each in exchanges if each["method"] == "PUT" and each["path"].endswith(f"/{host.name}")]
            sent = put["request"]["properties"]["osProfile"].pop("customData")
            secret = _private_half(sent)
            assert here.facts(host.name).keys  # of which the public half is kept
            everything = json.dumps(exchanges, default=str)
            for piece in (secret, secret.replace("\n", "\\n"), sent, *secret.splitlines()[2:-1]):
                assert piece not in everything
                assert _files_with(tmp_path, piece) == []
            assert secret not in "".join(str(event) for event in here.store.events.of_run(f"pool:{NAME}"))
        key = Home(here.settings.home).login_key
        login = _text(key).splitlines()[2]
        assert _files_with(tmp_path, login) == [str(key)]  # where it belongs
        assert login not in json.dumps(exchanges, default=str)
        # The machine has another key by now, that nobody has ever seen outside.
        folder = here.cloud.emulator.world.folder
        assert _files_with(folder, secret.splitlines()[2]) == []


def _private_half(custom_data: str) -> str:
    text = base64.b64decode(custom_data).decode()
    return json.loads(text.removeprefix("#cloud-config\n"))["ssh_keys"]["ed25519_private"]


def _text(path: Path) -> str:
    return path.read_text("utf-8")


def _files_with(folder: Path, text: str) -> list[str]:
    found = [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]
    return [str(path) for path in found]
