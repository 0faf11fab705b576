"""One account of Azure as pools see it. Imports Azure's libraries."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial

import anyio
import anyio.to_thread
from azure.core.exceptions import AzureError
from msgspec.structs import replace

from evalfleet.azure import clients, prices, quota, sizes, skus
from evalfleet.azure.budgets import Budgets
from evalfleet.azure.clients import Clients
from evalfleet.azure.images import Images, ImageView
from evalfleet.azure.requests import image, vm
from evalfleet.azure.requests.image import ImageSpec
from evalfleet.azure.responses import machine_view
from evalfleet.azure.settings import AzureSettings
from evalfleet.azure.vms import Network, Vms
from evalfleet.errors import CloudError, StoreUnwritable, WrongState
from evalfleet.layout import Home
from evalfleet.pools.cloud.problems import Refusal
from evalfleet.pools.cloud.records import (
    Creation,
    Endpoint,
    Image,
    ImageRequest,
    KeptImage,
    MachineSpec,
    MachineView,
    Offering,
    Price,
    Progress,
    Quota,
    Resource,
    Verb,
)

_UNDER_WAY = ("Creating", "Updating")


@asynccontextmanager
async def opened(settings: AzureSettings, home: Home) -> AsyncGenerator[AzureCloud]:
    async with clients.opened(settings) as found:
        yield AzureCloud(found, home)


class AzureCloud:
    """Implements `Cloud`, `MakesImages`, `KeepsImages`, `LearnsOfferings` and `NotifiesOfBudgets`."""

    def __init__(self, found: Clients, home: Home) -> None:
        self._settings = found.settings
        self._arm = found.arm
        self._vms = Vms(found)
        self._images = Images(found)
        self._budgets = Budgets(found)
        self._home = home
        self._prices = prices.load(home.prices)
        self._asked: set[Offering] = set()  # whose size and price were looked up
        skus.load(home.sizes)
        self._networks: dict[tuple[str, str], Network] = {}  # by pool and region
        self._network_lock = anyio.Lock()
        self._learn_lock = anyio.Lock()

    @property
    def poll_s(self) -> float:
        return self._settings.poll_s

    @property
    def skew_s(self) -> float:
        return self._arm.skew_s

    # Machines

    async def list(self, pool: str | None = None) -> list[MachineView]:
        return [machine_view(view) for view in await self._vms.list(pool)]

    async def view(self, name: str) -> MachineView | None:
        view = await self._vms.view(name)
        return None if view is None else machine_view(view)

    async def create(self, spec: MachineSpec, stops_at: float) -> Creation:
        """The deadline is a resource of its own: it is asked for in the moment that the VM is accepted."""
        network = await self._network(spec.pool, spec.region, spec.owner)
        continuation = await self._vms.create(spec, network)
        if continuation is None:
            return Creation(continuation=None)
        try:
            await self._vms.set_deadline(spec.name, spec.region, spec.labels(), stops_at)
        except Refusal as error:
            return Creation(continuation=continuation, deadline_problem=error.problem)
        return Creation(continuation=continuation)

    async def start(self, name: str) -> str:
        return await self._vms.start(name)

    async def stop(self, name: str) -> str:
        return await self._vms.stop(name)

    async def delete(self, name: str) -> str | None:
        return await self._vms.delete(name)

    async def poll(self, verb: Verb, name: str, continuation: str, offering: Offering | None = None) -> Progress:
        return await self._vms.poll(verb, name, continuation, offering)

    async def endpoint(self, name: str) -> Endpoint | None:
        view = await self._vms.view(name)
        address = None if view is None else await self._vms.address(view)
        if view is None or address is None:
            return None
        here, port = self._settings, self._settings.ssh_port
        proxy = here.proxy_command and here.proxy_command.format(host=address, port=port, resource_id=view.id)
        return Endpoint(address=address, port=port, jump=here.jump, proxy=proxy)

    async def log(self, name: str) -> str:
        return await self._vms.console_log(name)

    # Deadlines

    async def set_deadline(self, name: str, region: str, labels: Mapping[str, str], at: float) -> None:
        await self._vms.set_deadline(name, region, labels, at)

    async def has_deadline(self, name: str, at: float) -> bool:
        return await self._vms.has_deadline(name, at)

    async def drop_deadline(self, name: str) -> None:
        await self._vms.drop_deadline(name)

    async def extend(self, view: MachineView, expires_at: float) -> None:
        await self._vms.renew(view.name, view.region, view.labels, expires_at)

    # What is around machines

    async def resources(self, pool: str | None = None) -> list[Resource]:
        return await self._vms.owned(pool)

    async def delete_resource(self, resource: Resource) -> None:
        await self._vms.delete_owned(resource)

    async def prepare_region(self, pool: str, region: str, owner: str) -> None:
        await self._network(pool, region, owner)

    async def clean_region(self, pool: str, region: str) -> None:
        await self._vms.drop_network(pool, region)
        self._networks.pop((pool, region), None)

    async def _network(self, pool: str, region: str, owner: str) -> Network:
        async with self._network_lock:
            if (pool, region) not in self._networks:
                await self._vms.ensure_group(region, owner)
                self._networks[pool, region] = await self._vms.ensure_network(pool, region, owner)
            return self._networks[pool, region]

    # Images

    async def image(self, name: str) -> str | None:
        found = await self._images.find(name)
        return None if found is None else found.id

    async def images(self) -> list[KeptImage]:
        return await self._images.kept()

    async def delete_image(self, name: str, version: str | None = None) -> None:
        await self._images.delete(name, version)

    async def delete_leftover(self, image: KeptImage) -> None:
        if image.kind == "image":
            await self._images.delete(image.name, image.version)
        else:
            await self._images.tidy(image.name, image.version)

    async def bake(
        self, request: ImageRequest, sync: Callable[[], Awaitable[None]], tell: Callable[[str], None]
    ) -> Image:
        image.check_name(request.name)
        view = await self._vms.view(request.machine)
        if view is None or view.disk_id is None:
            raise WrongState(
                f"the cloud has no machine {request.machine}, or it has no disk; `evalfleet pool status` shows more"
            )
        known = await self._images.list(request.name)
        under_way = [one.version for one in known if one.provisioning in _UNDER_WAY]
        version = under_way[0] if under_way else image.next_version([one.version for one in known])
        if not under_way:
            await sync()
        spec = ImageSpec(
            name=request.name,
            version=version,
            owner=request.owner,
            source_disk=view.disk_id,
            source_region=view.region,
            regions=tuple(dict.fromkeys((view.region, *request.regions))),
            generation=sizes.find(view.size).generation,
            disk_gb=request.disk_gb,
        )
        tell(f"{request.machine}: its disk is copied into image {request.name} {version}")
        await self._copied(spec)
        made = await self._made(request.name, version)
        return Image(name=made.name, version=made.version, id=made.id, regions=made.regions)

    async def _copied(self, spec: ImageSpec) -> None:
        continuation = await self._images.create(spec)
        while continuation is not None:
            progress = await self._images.poll(spec.name, spec.version, continuation)
            if progress.problem is not None:
                raise Refusal(progress.problem)
            if progress.done:
                return
            await anyio.sleep(progress.look_again_s)

    async def _made(self, name: str, version: str) -> ImageView:
        while True:
            view = await self._images.view(name, version)
            if view is None or view.provisioning == "Failed":
                raise WrongState(f"image {name} {version} was not made; bake it again")
            if view.provisioning not in _UNDER_WAY:
                return view
            await anyio.sleep(self.poll_s)

    # Sizes and money

    async def learn(self, offering: Offering) -> None:
        """Look up what the package does not know of the offering: its size in the SKU API, its price in the price list. Where
        they do not tell, Azure itself will say what is wrong with it."""
        async with self._learn_lock:  # machines that are asked for side by side all wait for the answer
            if offering not in self._asked:
                await self._look_up(offering)
                self._asked.add(offering)

    async def _look_up(self, offering: Offering) -> None:
        if sizes.known(offering.size) is None:
            with suppress(AzureError):
                listed = await skus.listed(self._arm, self._settings.subscription, offering.region)
                row = listed.get(offering.size.lower())
                if row is not None:
                    sizes.learn(skus.size_of(row))
                    skus.store(self._home.sizes, skus.size_of(row))
        offering = _spelled(offering)
        if self._prices.find(replace(offering, spot=False)) is None:
            await self._look_up_price(offering)

    async def _look_up_price(self, offering: Offering) -> None:
        today = datetime.now(UTC).strftime("%Y-%m-%d")
        ask = partial(prices.refresh, self._settings.prices_url, [offering.region], today, sizes=[offering.size])
        try:
            found = await anyio.to_thread.run_sync(ask, abandon_on_cancel=True)
            prices.store(self._home.prices, found)
        except (CloudError, StoreUnwritable):
            return  # unknown, as the status says
        self._prices = prices.load(self._home.prices)

    async def set_budget(self, pool: str, usd: float | None) -> None:
        if not self._settings.budget_emails:
            return
        if usd is None:
            await self._budgets.drop(pool)
        else:
            await self._budgets.ensure(pool, usd)

    def price(self, offering: Offering, disk_gb: int) -> Price:
        offering = _spelled(offering)
        found, at_most = self._prices.find(offering), False
        if found is None and offering.spot:
            found, at_most = self._prices.find(replace(offering, spot=False)), True
        disk = prices.disk_usd_per_hour(vm.disk_kind(sizes.find(offering.size)), disk_gb)
        return Price(
            usd_per_hour=found.usd_per_hour if found else None,
            kept_usd_per_hour=disk + prices.IP_USD_PER_HOUR,
            at_most=at_most,
        )

    async def quota(self, offering: Offering) -> Quota | None:
        await self.learn(offering)
        usages = await self._vms.usages(offering.region)
        least = quota.tightest(usages, sizes.find(offering.size), spot=offering.spot)
        if least is None:
            return None
        return Quota(family=least.name, used=least.used, limit=least.limit, region=offering.region)


def _spelled(offering: Offering) -> Offering:
    """The offering with its size as Azure spells it: price lists tell capital letters from small ones."""
    return replace(offering, size=sizes.find(offering.size).name)
