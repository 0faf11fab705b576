"""Makes a golden image of a prepared machine, so that the next ones are ready in minutes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial

import asyncssh

from evalfleet import config
from evalfleet.errors import HostUnreachable, InputError
from evalfleet.hosts.ssh.connection import Keepalive, connected
from evalfleet.hosts.ssh.login.host_keys import HostKeys
from evalfleet.layout import Home
from evalfleet.model import Pool, PoolHost
from evalfleet.pools.cloud.protocol import CloudProvider, MakesImages
from evalfleet.pools.cloud.records import Image, ImageRequest
from evalfleet.pools.kinds.registry import cloud_of
from evalfleet.pools.machine.reach import ssh_spec
from evalfleet.pools.settings import settings_of
from evalfleet.store.open import open_store


async def bake(settings: config.Settings, pool: Pool, host: PoolHost, name: str, tell: Callable[[str], None]) -> Image:
    """Copy the machine's disk into a new version of the image; the machine goes on. Done again after a crash, it goes on
    with the version that is under way.

    Raises InputError where the pool's cloud makes no images; WrongState where the cloud has no such machine; Refusal where the
    cloud refused; BackendError where the machine is not reached.
    """
    kind = cloud_of(pool)
    kind.require_account(pool, settings)
    wanted = settings_of(pool)
    with closing(open_store(settings.home)) as store:
        owner = store.home.identity().label
    request = ImageRequest(name=name, owner=owner, machine=host.name, regions=wanted.regions, disk_gb=wanted.disk_gb)
    async with kind.provider.open(settings, Home(settings.home)) as cloud:
        if not isinstance(cloud, MakesImages):
            raise InputError(f"the backend {kind.name} makes no images")
        return await cloud.bake(request, partial(_sync, kind.provider, settings, host), tell)


async def _sync(provider: CloudProvider, settings: config.Settings, host: PoolHost) -> None:
    """Let the machine write what it still has in memory: the copy holds what a power failure would leave."""
    keys = HostKeys(Home(settings.home).known_hosts, (), trust_first_use=False, notice=lambda _: None)
    async with connected(ssh_spec(provider, host, 1), keys, Keepalive()) as connection:
        try:
            await connection.run("sync", check=True)
        except (asyncssh.Error, OSError) as error:
            raise HostUnreachable(f"host {host.name} does not write its disk: {error}") from error
