"""Makes a golden image of a prepared machine, so that the next ones are ready in minutes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import anyio
import asyncssh
from msgspec import Struct

from evalfleet import config
from evalfleet.azure import clients
from evalfleet.azure import settings as azure_settings
from evalfleet.azure.images import Images, ImageView
from evalfleet.azure.requests import image
from evalfleet.azure.requests.image import ImageSpec
from evalfleet.azure.sizes import find
from evalfleet.azure.vm_facts import facts_of
from evalfleet.azure.vms import Refusal, Vms
from evalfleet.errors import HostUnreachable, WrongState
from evalfleet.hosts.azure_pool import settings_of, spec_of
from evalfleet.hosts.ssh.connection import Keepalive, connected
from evalfleet.hosts.ssh.login.host_keys import HostKeys
from evalfleet.layout import Home
from evalfleet.model import Pool, PoolHost
from evalfleet.pools.commands import require_place
from evalfleet.store.database.sqlite import open_store

_UNDER_WAY = ("Creating", "Updating")


class Baked(Struct, frozen=True, kw_only=True):
    image: ImageView
    source: str


def _label(settings: config.Settings) -> str:
    with closing(open_store(settings.home)) as store:
        return store.identity().label


async def bake(settings: config.Settings, pool: Pool, host: PoolHost, name: str, tell: Callable[[str], None]) -> Baked:
    """Copy the machine's disk into a new version of the image; the machine goes on. Done again after a crash, it goes on
    with the version that is under way.

    Raises:
        WrongState: the cloud has no such machine.
        Refusal: the cloud refused.
        BackendError: the machine is not reached.
    """
    azure = azure_settings.of(settings)
    require_place(pool, azure)
    image.check_name(name)
    async with clients.opened(azure) as opened:
        images, vms = Images(opened), Vms(opened)
        view = await vms.view(host.name)
        if view is None or view.disk_id is None:
            raise WrongState(
                f"the cloud has no machine {host.name}, or it has no disk; `evalfleet pool status` shows more"
            )
        known = await images.list(name)
        under_way = [one.version for one in known if one.provisioning in _UNDER_WAY]
        version = under_way[0] if under_way else image.next_version([one.version for one in known])
        if not under_way:
            await _sync(settings, pool, host)
        wanted = settings_of(pool)
        spec = ImageSpec(
            name=name,
            version=version,
            owner=_label(settings),
            source_disk=view.disk_id,
            source_region=view.region,
            regions=tuple(dict.fromkeys((view.region, *wanted.regions))),
            generation=find(facts_of(host).size).generation,
            disk_gb=wanted.disk_gb,
        )
        tell(f"{host.name}: its disk is copied into image {name} {version}")
        continuation = await images.create(spec)
        while continuation is not None:
            progress = await images.poll(name, version, continuation)
            if progress.problem is not None:
                raise Refusal(progress.problem)
            if progress.done:
                break
            await anyio.sleep(progress.look_again_s)
        return Baked(image=await _made(images, name, version, azure.poll_s), source=host.name)


async def _made(images: Images, name: str, version: str, poll_s: float) -> ImageView:
    while True:
        view = await images.view(name, version)
        if view is None or view.provisioning == "Failed":
            raise WrongState(f"image {name} {version} was not made; bake it again")
        if view.provisioning not in _UNDER_WAY:
            return view
        await anyio.sleep(poll_s)


async def _sync(settings: config.Settings, pool: Pool, host: PoolHost) -> None:
    """Let the machine write what it still has in memory: the copy holds what a power failure would leave."""
    keys = HostKeys(Home(settings.home).known_hosts, (), trust_first_use=False, notice=lambda _: None)
    async with connected(spec_of(host, settings_of(pool)), keys, Keepalive()) as connection:
        try:
            await connection.run("sync", check=True)
        except (asyncssh.Error, OSError) as error:
            raise HostUnreachable(f"host {host.name} does not write its disk: {error}") from error
