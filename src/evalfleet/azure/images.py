"""The life of golden images on Azure: make one of a worker's disk, watch, list, delete.

As with VMs, every call takes our own names and may be made again after a crash, and the long part is polled by a
continuation that outlives this process. All raise `Refusal`, which carries the judged problem.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from azure.core.exceptions import HttpResponseError
from msgspec import Struct

from evalfleet.azure.clients import Clients
from evalfleet.azure.error_causes import classify, facts_of
from evalfleet.azure.prices import HOURS_PER_MONTH, snapshot_usd_per_hour
from evalfleet.azure.requests import image
from evalfleet.azure.requests.image import GALLERY, ImageSpec
from evalfleet.azure.responses import inside
from evalfleet.azure.vms import NOT_FOUND, asked_s, judged, looked
from evalfleet.pools.cloud.records import LABEL_IMAGE, LABEL_OWNER, KeptImage, Progress

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
        async with judged():
            poller = await self._versions.begin_create_or_update(
                self._group, GALLERY, name, version, {}, continuation_token=continuation
            )
            method = poller.polling_method()
            if not method.finished() and not await looked(method):
                return Progress(done=True, forgotten=True)
            if not method.finished():
                return Progress(done=False, look_again_s=asked_s(method) or self._settings.poll_s)
        problem = None
        try:
            await poller.result()
        except HttpResponseError as error:
            if error.status_code != NOT_FOUND:  # else it was deleted meanwhile; `view` will say so
                problem = classify(facts_of(error))
        await self.tidy(name, version)
        if problem is not None:
            async with judged():
                await self._arm.delete(f"{self._definition(name)}/versions/{version}", GALLERY_API)
        return Progress(done=True, problem=problem)

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
