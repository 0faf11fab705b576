"""Golden images through the real library: made of a worker that runs on, replicated, begun with, deleted."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.support.cloud import cloud

from evalfleet.azure import clients
from evalfleet.azure.images import Images, ImageView
from evalfleet.azure.provider import AzureProvider
from evalfleet.azure.requests import image
from evalfleet.azure.requests.image import ImageSpec
from evalfleet.azure.responses import VmView
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import Scenario
from evalfleet.pools.cloud.problems import Action, Cause, Refusal
from evalfleet.pools.cloud.purchases import Closed
from evalfleet.pools.cloud.records import LABEL_IMAGE, Offering, Progress, Verb

pytestmark = pytest.mark.anyio


def wanted(view: VmView, **changes: Any) -> ImageSpec:
    assert view.disk_id is not None
    known: dict[str, Any] = {"name": "golden", "owner": "me", "source_disk": view.disk_id, "source_region": view.region}
    return ImageSpec(**{**known, "regions": ("eastus", "westus2"), **changes})


async def ended(images: Images, spec: ImageSpec, continuation: str | None) -> Progress:
    """Poll until the operation ends."""
    assert continuation is not None
    with anyio.fail_after(60):
        while True:
            progress = await images.poll(spec.name, spec.version, continuation)
            if progress.done:
                return progress
            await anyio.sleep(progress.look_again_s)


async def baked(images: Images, spec: ImageSpec) -> ImageView:
    progress = await ended(images, spec, await images.create(spec))
    assert progress.problem is None
    found = await images.find(spec.name)
    assert found is not None
    return found


async def test_a_machine_begins_with_what_another_had():
    async with cloud() as here, clients.opened(here.settings) as opened:
        images = Images(opened)
        source = here.spec()
        view = await here.made(source)
        prepare = (
            "echo kept >state; echo gone >$EVALFLEET_TEMPORARY_DISK/f; docker run -d --name w windowsarena/winarena"
        )
        assert (await here.ssh(source, view, f"{prepare}; echo 'echo mine' >../bin/mine; chmod +x ../bin/mine"))[0] == 0
        golden = await baked(images, wanted(view))
        assert (golden.name, golden.version, golden.regions) == ("golden", "1.0.0", ("eastus", "westus2"))
        assert golden.tags[LABEL_IMAGE] == "golden"
        # The worker was left alone.
        assert (await here.ssh(source, view, "cat state"))[1] == "kept\n"

        await here.done(Verb.DELETE, source.name, await here.vms.delete(source.name))
        again = here.spec("again", image=golden.id)
        made = await here.made(again)
        look = (
            "cat state; mine; ls $EVALFLEET_TEMPORARY_DISK; docker image inspect --format '{{.RepoTags}}' windowsarena/winarena; "
            "docker inspect --format '{{.State.Status}}' w"
        )
        status, told = await here.ssh(again, made, look)  # by its own host key and login key
        assert (status, told) == (0, "kept\nmine\n['windowsarena/winarena:latest']\nexited\n")
        assert again.host_key.public != source.host_key.public

        report = await here.control("GET", "leaks")
        assert (report["leaks"], report["kept"]) == ([], [golden.id])
        assert [event["type"] for event in here.events() if event["type"].startswith(("snapshot", "image"))] == [
            "snapshot.made",
            "image.creating",
            "image.made",
            "snapshot.deleted",
        ]
        await here.control("POST", "clock", {"seconds": 730 * 3600})
        by_kind = (await here.control("GET", "bill"))["by_kind"]
        assert by_kind["image"] == pytest.approx(0.05 * 128 * 2, rel=0.02)
        assert by_kind["snapshot"] < 0.01
        await images.delete("golden")
        assert await images.list() == []
        assert "Microsoft.Compute/galleries" not in (await here.control("GET", "leaks"))["resources"]
        await images.delete("golden")


async def test_what_was_asked_for_twice_is_made_once_and_a_continuation_outlives_its_client():
    async with cloud() as here:
        view = await here.made(here.spec())
        here.emulator.world.times.image = 60.0
        here.emulator.world.clock.speed = 100.0
        async with clients.opened(here.settings) as opened:
            continuation = await Images(opened).create(wanted(view))
            assert continuation is not None
            assert await Images(opened).create(wanted(view)) is None
        async with clients.opened(here.settings) as opened:
            images = Images(opened)
            assert (await ended(images, wanted(view), continuation)).problem is None
            assert await images.create(wanted(view)) is None
            assert len(here.events("image.made")) == 1
            second = image.next_version([each.version for each in await images.list("golden")])
            assert second == "1.0.1"
            assert (await baked(images, wanted(view, version=second))).version == "1.0.1"
            assert len(await images.list()) == 2
            # An image without a version is its newest one.
            latest = (await images.list())[0].id.rpartition("/versions/")[0]
            assert (await here.made(here.spec("newest", image=latest))).power == "running"


async def test_a_region_without_a_replica_is_refused_and_leaves_nothing():
    async with cloud() as here, clients.opened(here.settings) as opened:
        view = await here.made(here.spec())
        golden = await baked(Images(opened), wanted(view, regions=()))
        network = await here.networks.ensure("p1", "westus2", "me")
        with pytest.raises(Refusal, match="the image is not to be had in westus2; bake it") as caught:
            await here.vms.order(here.spec("far", region="westus2", image=golden.id), network)
        problem = caught.value.problem
        assert (problem.cause, problem.action) == (Cause.IMAGE, Action.NEXT_REGION)
        far, larger = (Offering(size=size, region="westus2") for size in ("Standard_D8ds_v5", "Standard_D16ds_v5"))
        near = Offering(size=far.size, region="eastus")
        closed = Closed().after(problem, far, [far, larger, near], 0.0, AzureProvider().family)
        assert [closed.at(offer, 1.0) for offer in (far, larger, near)] == [True, True, False]
        assert (await here.control("GET", "leaks"))["leaks"] == []
        assert await here.vms.view("far") is None


async def test_an_image_that_fails_leaves_no_copy_and_can_be_made_again():
    failing = Fault(op="image.create", preset="internal_operation_error", times=1)
    async with cloud(Scenario(fault=[failing])) as here, clients.opened(here.settings) as opened:
        images = Images(opened)
        view = await here.made(here.spec())
        progress = await ended(images, wanted(view), await images.create(wanted(view)))
        assert progress.problem is not None
        assert (await here.control("GET", "leaks"))["leaks"] == []
        assert await images.find("golden") is None
        await baked(images, wanted(view))
        assert (await here.control("GET", "leaks"))["leaks"] == []


async def test_a_bake_that_is_refused_leaves_no_copy():
    refused = Fault(op="image.create", preset="authorization_failed", times=1)
    async with cloud(Scenario(fault=[refused])) as here, clients.opened(here.settings) as opened:
        images = Images(opened)
        view = await here.made(here.spec())
        with pytest.raises(Refusal):
            await images.create(wanted(view))
        assert here.events("snapshot.made")
        assert await images.kept() == []


async def test_an_image_is_baked_again_from_another_region():
    async with cloud() as here, clients.opened(here.settings) as opened:
        images = Images(opened)
        await baked(images, wanted(await here.made(here.spec())))
        network = await here.networks.ensure("p1", "westus2", "me")
        spec = here.spec("evalfleet-2", region="westus2")
        await here.done(Verb.CREATE, spec.name, await here.vms.order(spec, network), spec)
        view = await here.vms.view(spec.name)
        assert view is not None
        assert (await baked(images, wanted(view, version="1.0.1"))).version == "1.0.1"


async def test_a_size_with_nvme_disks_begins_with_an_image():
    async with cloud() as here, clients.opened(here.settings) as opened:
        golden = await baked(Images(opened), wanted(await here.made(here.spec())))
        await here.made(here.spec("evalfleet-2", size="Standard_D8ds_v6", image=golden.id))
        definition = golden.id.rpartition("/versions/")[0]
        body = here.emulator.world.resources.find(definition)
        assert body is not None
        body["properties"].pop("features")  # as an older version made it
        with pytest.raises(Refusal, match="NVMe only"):
            await here.vms.order(here.spec("evalfleet-3", size="Standard_D8ds_v6", image=golden.id), here.network)


async def test_images_and_copies_are_listed_with_what_they_cost_and_deleted_by_version():
    async with cloud() as here, clients.opened(here.settings) as opened:
        images = Images(opened)
        view = await here.made(here.spec())
        await baked(images, wanted(view))
        await baked(images, wanted(view, version="1.0.1"))
        first, second = await images.kept()
        assert (first.version, first.kind, first.regions) == ("1.0.0", "image", ("eastus", "westus2"))
        assert first.usd_per_month == pytest.approx(2 * 128 * 0.05, rel=0.3)
        await images.delete("golden", second.version)
        assert [each.version for each in await images.kept()] == ["1.0.0"]
        await images.delete("golden")
        assert await images.kept() == []


async def test_what_is_half_done_is_seen():
    async with cloud() as here, clients.opened(here.settings) as opened:
        images = Images(opened)
        view = await here.made(here.spec())
        await images.create(wanted(view))
        await here.until("image.made")
        # Whoever began it is dead, and nobody polled.
        assert [leak["why"] for leak in (await here.control("GET", "leaks"))["leaks"]] == [
            "belongs to no image that is being created"
        ]
        await images.tidy("golden", "1.0.0")
        assert (await here.control("GET", "leaks"))["leaks"] == []
        with pytest.raises(Refusal, match="was not found"):
            await images.create(wanted(view, name="other", source_disk="/nowhere"))
