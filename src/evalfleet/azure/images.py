"""The life of golden images on Azure: make one of a worker's disk, watch, list, delete.

As with VMs, every call takes our own names and may be made again after a crash, and the long part is polled by a
continuation that outlives this process. All raise `Refusal`, which carries the judged problem.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

import anyio
from azure.core.exceptions import HttpResponseError
from msgspec import Struct

from evalfleet.azure import sizes
from evalfleet.azure.arm import judged, progress_of
from evalfleet.azure.clients import Clients
from evalfleet.azure.prices import HOURS_PER_MONTH, snapshot_usd_per_hour
from evalfleet.azure.requests import image
from evalfleet.azure.requests.image import GALLERY, ImageSpec
from evalfleet.azure.responses import VmView, inside
from evalfleet.errors import WrongState
from evalfleet.pools.cloud.problems import Refusal
from evalfleet.pools.cloud.records import LABEL_IMAGE, LABEL_OWNER, Image, ImageRequest, KeptImage, Progress

GALLERY_API = "2024-03-03"
UNDER_WAY = ("Creating", "Updating")
SNAPSHOT_API = "2024-03-02"


class ImageView(Struct, frozen=True, kw_only=True):
    """One version of an image, as the cloud sees it."""

    name: str
    version: str
    id: str  # what a VM's specification names
    regions: tuple[str, ...]  # where VMs can be made from it
    provisioning: str  # Creating, Updating, Failed, Succeeded, Deleting
    disk_gb: int | None
    tags: Mapping[str, str]


class Images:
    """Images of one resource group."""

    def __init__(self, clients: Clients) -> None:
        self._settings = clients.settings
        self._group = clients.settings.resource_group
        self._clients = clients
        self._arm = clients.arm

    @property
    def _versions(self) -> Any:
        return self._clients.compute.gallery_image_versions

    async def bake(
        self,
        request: ImageRequest,
        machine: VmView | None,
        sync: Callable[[], Awaitable[None]],
        tell: Callable[[str], None],
    ) -> Image:
        """As `MakesImages.bake`, of the machine as it is now."""
        image.check_name(request.name)
        if machine is None or machine.disk_id is None:
            raise WrongState(
                f"the cloud has no machine {request.machine}, or it has no disk; `evalfleet pool status` shows more"
            )
        known = await self.list(request.name)
        under_way = [one.version for one in known if one.provisioning in UNDER_WAY]
        version = under_way[0] if under_way else image.next_version([one.version for one in known])
        if not under_way:
            await sync()
        spec = ImageSpec(
            name=request.name,
            version=version,
            owner=request.owner,
            source_disk=machine.disk_id,
            source_region=machine.region,
            regions=tuple(dict.fromkeys((machine.region, *request.regions))),
            generation=sizes.find(machine.size).generation,
            disk_gb=request.disk_gb,
        )
        tell(f"{request.machine}: its disk is copied into image {request.name} {version}")
        return await self._made(spec, await self.create(spec))

    async def _made(self, spec: ImageSpec, continuation: str | None) -> Image:
        """Wait until the version can be used."""
        while continuation is not None:
            progress = await self.poll(spec.name, spec.version, continuation)
            if progress.problem is not None:
                raise Refusal(progress.problem)
            if progress.done:
                break
            await anyio.sleep(progress.look_again_s)
        while True:
            view = await self.view(spec.name, spec.version)
            if view is None or view.provisioning == "Failed":
                raise WrongState(f"image {spec.name} {spec.version} was not made; bake it again")
            if view.provisioning not in UNDER_WAY:
                return Image(name=view.name, version=view.version, id=view.id, regions=view.regions)
            await anyio.sleep(self._settings.poll_s)

    async def create(self, spec: ImageSpec) -> str | None:
        """Copy the disk, and ask for the image. Returns the continuation; None: that version is there already.

        Waits for what takes seconds (gallery, definition, snapshot). What is on the disk of a worker that runs is what
        a power failure would leave: let it `sync` first.
        """
        image.check_name(spec.name)
        async with judged(spec.source_region):
            known = await self._view(spec.name, spec.version)
            if known is not None and known.provisioning in ("Creating", "Updating", "Succeeded"):
                return None
            if await self._arm.get(self._gallery(), GALLERY_API) is None:
                await self._arm.put(self._gallery(), GALLERY_API, image.gallery_body(spec.source_region, spec.owner))
            if await self._arm.get(self._definition(spec.name), GALLERY_API) is None:  # it stays where it was made
                await self._arm.put(self._definition(spec.name), GALLERY_API, image.definition_body(spec))
            snapshot = self._snapshot(spec.name, spec.version)
            try:
                if await self._arm.get(snapshot, SNAPSHOT_API) is None:
                    await self._arm.put(snapshot, SNAPSHOT_API, image.snapshot_body(spec))
                body = image.version_body(spec, snapshot)
                poller = await self._versions.begin_create_or_update(
                    self._group, GALLERY, spec.name, spec.version, body
                )
            except HttpResponseError:
                await self._arm.delete(snapshot, SNAPSHOT_API)  # nobody needs it now, and it costs
                raise
            return cast("str", poller.continuation_token())

    async def poll(self, name: str, version: str, continuation: str) -> Progress:
        """Look once how far it is. When it is done, the copy of the disk is deleted, and so is a version that failed."""
        place = (self._group, GALLERY, name, version)
        ask = partial(self._versions.begin_create_or_update, *place, {}, continuation_token=continuation)
        progress = await progress_of(ask, self._settings.poll_s)
        if not progress.done or progress.forgotten:
            return progress
        await self.tidy(name, version)
        if progress.problem is not None:
            async with judged():
                await self._arm.delete(f"{self._definition(name)}/versions/{version}", GALLERY_API)
        return progress

    async def tidy(self, name: str, version: str) -> None:
        """Delete the copy of the disk, which nobody needs once the version is there; one that is gone is no error."""
        async with judged():
            await self._arm.delete(self._snapshot(name, version), SNAPSHOT_API)

    async def view(self, name: str, version: str) -> ImageView | None:
        """Return how a version stands, or None where there is none."""
        async with judged():
            return await self._view(name, version)

    async def find(self, name: str) -> ImageView | None:
        """Return the newest version of that name that VMs can be made from."""
        usable = [each for each in await self.list(name) if each.provisioning == "Succeeded"]
        return max(usable, key=lambda each: tuple(map(int, each.version.split("."))), default=None)

    async def list(self, name: str | None = None) -> list[ImageView]:
        """Return all versions of our images, or of one."""
        term = f"tagName eq '{LABEL_IMAGE}'" + (f" and tagValue eq '{name}'" if name else "")
        async with judged():
            path = f"{self._settings.group_path()}/resources"
            owned = await self._arm.list(path, "2021-04-01", {"$filter": term})
            ids = [body["id"] for body in owned if body["type"].lower().endswith("/galleries/images/versions")]
            bodies = [await self._arm.get(each, GALLERY_API) for each in ids]
        return [_view(body) for body in bodies if body is not None]

    async def kept(self) -> list[KeptImage]:
        """All versions, and all copies of disks, with what they cost."""
        versions = await self.list()
        under_way = {(each.name, each.version) for each in versions if each.provisioning in UNDER_WAY}
        found = [
            KeptImage(
                name=each.name,
                version=each.version,
                kind="image",
                state=each.provisioning,
                owner=each.tags.get(LABEL_OWNER, ""),
                regions=each.regions,
                disk_gb=each.disk_gb,
                usd_per_month=_usd_per_month(each.disk_gb) * max(1, len(each.regions)),
                is_leftover=each.provisioning == "Failed",
            )
            for each in versions
        ]
        async with judged():
            path = f"{self._settings.group_path()}/providers/Microsoft.Compute/snapshots"
            listed = await self._arm.list(path, SNAPSHOT_API)
        for body in listed:
            tags: Mapping[str, str] = body.get("tags") or {}
            if LABEL_IMAGE in tags:
                name, _, version = str(body["name"]).rpartition("-")
                size = body["properties"].get("diskSizeGB")
                found.append(
                    KeptImage(
                        name=name,
                        version=version,
                        kind="snapshot",
                        state=str(body["properties"].get("provisioningState", "")),
                        owner=tags.get(LABEL_OWNER, ""),
                        regions=(body["location"],),
                        disk_gb=size,
                        usd_per_month=_usd_per_month(size),
                        is_leftover=(name, version) not in under_way,
                    )
                )
        return found

    async def delete(self, name: str, only: str | None = None) -> None:
        """Delete an image with all its versions and copies, and the gallery with the last one; none is no error.

        VMs that were made from it do not need it any more.

        Args:
            only: this version, and the image with its last one.
        """
        versions = await self.list(name)
        for version in versions:
            if only in (None, version.version):
                async with judged():
                    await self._arm.delete(version.id, GALLERY_API)
                await self.tidy(name, version.version)
        if only is not None and any(version.version != only for version in versions):
            return
        async with judged():
            await self._arm.delete(self._definition(name), GALLERY_API)
            if not await self._arm.list(f"{self._gallery()}/images", GALLERY_API):
                await self._arm.delete(self._gallery(), GALLERY_API)

    async def _view(self, name: str, version: str) -> ImageView | None:
        body = await self._arm.get(f"{self._definition(name)}/versions/{version}", GALLERY_API)
        return None if body is None else _view(body)

    def _gallery(self) -> str:
        return f"{self._settings.group_path()}/providers/Microsoft.Compute/galleries/{GALLERY}"

    def _definition(self, name: str) -> str:
        return f"{self._gallery()}/images/{name}"

    def _snapshot(self, name: str, version: str) -> str:
        return f"{self._settings.group_path()}/providers/Microsoft.Compute/snapshots/{name}-{version}"


def _usd_per_month(disk_gb: int | None) -> float:
    return snapshot_usd_per_hour(disk_gb or 0) * HOURS_PER_MONTH


def _view(body: Mapping[str, Any]) -> ImageView:
    parts = str(body["id"]).split("/")
    properties: Any = body.get("properties")
    targets = inside(properties, "publishingProfile", "targetRegions") or ()
    return ImageView(
        name=parts[-3],
        version=parts[-1],
        id=body["id"],
        regions=tuple(str(target["name"]).lower().replace(" ", "") for target in targets),
        provisioning=inside(properties, "provisioningState") or "",
        disk_gb=inside(properties, "storageProfile", "osDiskImage", "sizeInGB"),
        tags=dict(body.get("tags") or {}),
    )
