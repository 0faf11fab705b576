"""One account of Azure as pools see it: its VMs, their deadlines and networks, images, prices. Imports Azure's libraries.

What `Cloud` promises holds here, too: every call may be made again after a crash, and none waits for a long operation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import anyio
import anyio.to_thread
from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from msgspec.structs import replace

from evalfleet.azure import prices, quota, responses, sizes, skus
from evalfleet.azure.arm import judged, progress_of
from evalfleet.azure.budgets import Budgets
from evalfleet.azure.clients import Clients
from evalfleet.azure.images import Images
from evalfleet.azure.monitor import Monitor
from evalfleet.azure.network import NETWORK_API, Network, Networks
from evalfleet.azure.requests import vm
from evalfleet.azure.responses import VmView
from evalfleet.core.hosts.load import Sample
from evalfleet.errors import CloudError, StoreUnwritable
from evalfleet.hosts.base import first_error
from evalfleet.layout import Home
from evalfleet.pools.cloud import records
from evalfleet.pools.cloud.problems import Action, Cause, Problem, Refusal
from evalfleet.pools.cloud.records import (
    LABEL_EXPIRES,
    LABEL_POOL,
    Creation,
    MachineSpec,
    MachineView,
    Offering,
    Progress,
    Resource,
    Verb,
)

FORBIDDEN = 403
PRECONDITION_FAILED = 412
ONE_BY_ONE = 10  # VMs; the states of more are listed
AT_A_TIME = 10
SCHEDULE_API = "2018-09-15"
_LOG_CHARS = 64_000
_VMS = "Microsoft.Compute/virtualMachines"
_APIS = {
    "microsoft.network": NETWORK_API,
    "microsoft.compute/disks": "2024-03-02",
    "microsoft.compute": "2024-07-01",
    "microsoft.devtestlab": SCHEDULE_API,
}


class AzureCloud:
    """Implements `Cloud`, `MakesImages`, `KeepsImages`, `LearnsOfferings`, `NotifiesOfBudgets` and `MeasuresMachines`."""

    def __init__(self, clients: Clients, home: Home) -> None:
        self._clients = clients
        self._settings = clients.settings
        self._arm = clients.arm
        self._group = clients.settings.resource_group
        self._networks = Networks(clients)
        self._images = Images(clients)
        self._budgets = Budgets(clients)
        self._monitor = Monitor(clients)
        self._home = home
        self._prices = prices.load(home.prices)
        self._asked: set[Offering] = set()  # whose size and price were looked up
        self._learn_lock = anyio.Lock()
        skus.load(home.sizes)

    @property
    def _vms(self) -> Any:
        return self._clients.compute.virtual_machines

    @property
    def poll_s(self) -> float:
        return self._settings.poll_s

    @property
    def skew_s(self) -> float:
        return self._arm.skew_s

    # Machines

    async def list(self, pool: str | None = None) -> list[VmView]:
        async with judged():
            # As plain objects: the library's own lists make a dozen models of each VM, and we look several times a second.
            path = f"{self._settings.group_path()}/providers/{_VMS}"
            bodies = [body for body in await self._arm.list(path, _APIS["microsoft.compute"]) if _is_of(body, pool)]
            states = await self._states([str(body["id"]) for body in bodies])
        for body in bodies:
            body["properties"]["instanceView"] = states.get(str(body["id"]).lower())
        return [responses.vm_view(body) for body in bodies]

    async def _states(self, ids: Sequence[str]) -> dict[str, Any]:
        """The states of VMs, by id in lower case. Azure has a list of states for the whole subscription only, which may be
        large, and which not everybody may see: few VMs are asked one by one, and so are those that the list leaves out."""
        states: dict[str, Any] = {}
        if len(ids) > ONE_BY_ONE:
            everywhere = f"/subscriptions/{self._settings.subscription}/providers/{_VMS}"
            try:
                api = _APIS["microsoft.compute"]
                found = await self._arm.list(everywhere, api, {"statusOnly": "true"}, exists=True)
                states = {str(body["id"]).lower(): body.get("properties", {}).get("instanceView") for body in found}
            except HttpResponseError as error:
                if error.status_code != FORBIDDEN:
                    raise
        limit = anyio.Semaphore(AT_A_TIME)

        async def ask(vm_id: str) -> None:
            async with limit:
                states[vm_id.lower()] = await self._arm.get(f"{vm_id}/instanceView", _APIS["microsoft.compute"])

        with first_error(AzureError):
            async with anyio.create_task_group() as group:
                for each in ids:
                    if each.lower() not in states:
                        group.start_soon(ask, each)
        return states

    async def view(self, name: str) -> VmView | None:
        async with judged():
            try:
                found = await self._vms.get(self._group, name, expand="instanceView")
            except ResourceNotFoundError as error:
                if not await self._arm.is_absent(error):
                    raise
                return None
            return responses.vm_view(found.as_dict())

    async def create(self, spec: MachineSpec, stops_at: float) -> Creation:
        """The deadline is a resource of its own: it is asked for in the moment that the VM is accepted."""
        network = await self._networks.ensure(spec.pool, spec.region, spec.owner)
        continuation = await self.order(spec, network)
        if continuation is None:
            return Creation(continuation=None)
        try:
            await self.set_deadline(spec.name, spec.region, spec.labels(), stops_at)
        except Refusal as error:
            return Creation(continuation=continuation, deadline_problem=error.problem)
        return Creation(continuation=continuation)

    async def order(self, spec: MachineSpec, network: Network) -> str | None:
        """Ask for the VM. Returns the continuation; None: there is one of that name, which is left as it is."""
        spec = replace(spec, expires_at=spec.expires_at + self._arm.skew_s)
        body = vm.vm_body(spec, subnet_id=network.subnet_id, nsg_id=network.nsg_id, reach=self._settings)
        async with judged(spec.region, spec.size, spot=spec.spot):
            try:
                # Only if there is none: a second PUT with another host key would be refused in a worse way.
                ask = partial(
                    self._vms.begin_create_or_update,
                    *(self._group, spec.name, body),
                    etag="*",
                    match_condition=MatchConditions.IfMissing,
                )
                poller = await self._arm.patient(ask)
            except HttpResponseError as error:
                if error.status_code != PRECONDITION_FAILED:
                    raise
                return None
            return cast("str", poller.continuation_token())

    async def start(self, name: str) -> str:
        async with judged():
            return cast("str", (await self._vms.begin_start(self._group, name)).continuation_token())

    async def stop(self, name: str) -> str:
        """Its disk and address stay, and so does its place in the quota."""
        async with judged():
            return cast("str", (await self._vms.begin_deallocate(self._group, name)).continuation_token())

    async def delete(self, name: str) -> str | None:
        """With its disk, interface and address."""
        async with judged():
            try:
                poller = await self._vms.begin_delete(self._group, name, force_deletion=True)
            except ResourceNotFoundError as error:
                if not await self._arm.is_absent(error):
                    raise
                return None  # with its whole group
            if poller.polling_method().finished():
                return None
            return cast("str", poller.continuation_token())

    async def poll(
        self, verb: Verb, name: str, continuation: str, offering: MachineSpec | Offering | None = None
    ) -> Progress:
        ask: dict[Verb, Callable[..., Awaitable[Any]]] = {
            Verb.CREATE: partial(self._vms.begin_create_or_update, self._group, name, {}),
            Verb.START: partial(self._vms.begin_start, self._group, name),
            Verb.STOP: partial(self._vms.begin_deallocate, self._group, name),
            Verb.DELETE: partial(self._vms.begin_delete, self._group, name),
        }
        return await progress_of(partial(ask[verb], continuation_token=continuation), self.poll_s, offering)

    async def endpoint(self, name: str) -> records.Endpoint | None:
        view = await self.view(name)
        address = None if view is None else await self.address(view)
        if view is None or address is None:
            return None
        here, port = self._settings, self._settings.ssh_port
        proxy = here.proxy_command and here.proxy_command.format(host=address, port=port, resource_id=view.id)
        return records.Endpoint(address=address, port=port, jump=here.jump, proxy=proxy)

    async def address(self, view: VmView) -> str | None:
        """The public one, or in a network without such the private one; None while it has none."""
        async with judged(view.region):
            nic = await self._arm.get(view.nic_id, NETWORK_API) if view.nic_id else None
            if nic and not self._settings.public_ip:
                return responses.private_ip(nic)
            ip_id = responses.public_ip_id(nic) if nic else None
            address = await self._arm.get(ip_id, NETWORK_API) if ip_id else None
        return address["properties"].get("ipAddress") if address else None

    async def log(self, name: str) -> str:
        async with judged():
            try:
                found = await self._vms.retrieve_boot_diagnostics_data(self._group, name)
            except ResourceNotFoundError:
                return ""
        return await text_at(found.serial_console_log_blob_uri) if found.serial_console_log_blob_uri else ""

    async def loads(self, machines: Sequence[MachineView], since: float, until: float) -> dict[str, Sequence[Sample]]:
        ahead_s = self._arm.skew_s  # Azure goes by its own clock
        vms = [view for view in machines if isinstance(view, VmView)]
        found = await self._monitor.loads(vms, since + ahead_s, until + ahead_s)
        return {name: [replace(one, at=one.at - ahead_s) for one in samples] for name, samples in found.items()}

    async def run_command(self, name: str, script: str) -> str:
        """Run a script as root through the VM's agent, and return what it wrote (4 KB at most): a way in without SSH."""
        command = {"commandId": "RunShellScript", "script": script.splitlines()}
        async with judged():
            done = await (await self._vms.begin_run_command(self._group, name, command)).result()
            return "\n".join(part.message or "" for part in done.value or ())

    async def simulate_eviction(self, name: str) -> None:
        """Have Azure evict a spot VM, as it does when it needs the machine: for tests, on the real cloud too."""
        async with judged():
            await self._vms.simulate_eviction(self._group, name)

    # Deadlines

    async def set_deadline(self, name: str, region: str, labels: Mapping[str, str], at: float) -> None:
        """The schedule knows minutes of the day only: `at` must be within 24 hours, and is best half an hour away. The VM need not
        run yet."""
        ours = {key: value for key, value in labels.items() if key.startswith("evalfleet-")}
        at += self._arm.skew_s  # Azure goes by its own clock
        body = vm.shutdown_body(region, self._vm_id(name), at, {**self._settings.tags, **ours})
        async with judged(region):
            await self._arm.put(self._deadline_path(name), SCHEDULE_API, body)
        if not await self._has_deadline(name, at):
            said = f"Azure accepted a deadline for {name}, and does not show it"
            raise Refusal(Problem(cause=Cause.CONFLICT, action=Action.WAIT, message=said))

    async def has_deadline(self, name: str, at: float) -> bool:
        return await self._has_deadline(name, at + self._arm.skew_s)

    async def _has_deadline(self, name: str, at: float) -> bool:
        async with judged():
            schedule = await self._arm.get(self._deadline_path(name), SCHEDULE_API)
        return schedule is not None and vm.is_deadline(schedule, self._vm_id(name), at)

    async def drop_deadline(self, name: str) -> None:
        async with judged():
            await self._arm.delete(self._deadline_path(name), SCHEDULE_API)

    async def extend(self, view: MachineView, expires_at: float) -> None:
        moved = {**view.labels, LABEL_EXPIRES: records.expires_text(expires_at + self.skew_s)}
        async with judged(view.region):
            await (await self._vms.begin_update(self._group, view.name, {"tags": moved})).result()

    # What is around machines

    async def resources(self, pool: str | None = None) -> list[Resource]:
        term = f"tagName eq '{LABEL_POOL}'" + (f" and tagValue eq '{pool}'" if pool else "")
        async with judged():
            path = f"{self._settings.group_path()}/resources"
            return [responses.resource(body) for body in await self._arm.list(path, "2021-04-01", {"$filter": term})]

    async def delete_resource(self, resource: Resource) -> None:
        kind = resource.type.lower()
        api = _APIS.get(kind) or _APIS[kind.split("/")[0]]
        async with judged(resource.region):
            await self._arm.delete(resource.id, api)

    async def prepare_region(self, pool: str, region: str, owner: str) -> None:
        await self._networks.ensure(pool, region, owner)

    async def clean_region(self, pool: str, region: str) -> None:
        await self._networks.drop(pool, region)

    # Images

    async def image(self, name: str) -> str | None:
        found = await self._images.find(name)
        return None if found is None else found.id

    async def images(self) -> Sequence[records.KeptImage]:
        return await self._images.kept()

    async def delete_image(self, name: str, version: str | None = None) -> None:
        await self._images.delete(name, version)

    async def delete_leftover(self, image: records.KeptImage) -> None:
        await (self._images.delete if image.kind == "image" else self._images.tidy)(image.name, image.version)

    async def bake(
        self, request: records.ImageRequest, sync: Callable[[], Awaitable[None]], tell: Callable[[str], None]
    ) -> records.Image:
        return await self._images.bake(request, await self.view(request.machine), sync, tell)

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

    def price(self, offering: Offering, disk_gb: int) -> records.Price:
        offering = _spelled(offering)
        found, at_most = self._prices.find(offering), False
        if found is None and offering.spot:
            found, at_most = self._prices.find(replace(offering, spot=False)), True
        disk = prices.disk_usd_per_hour(vm.disk_kind(sizes.find(offering.size)), disk_gb)
        return records.Price(
            usd_per_hour=found.usd_per_hour if found else None,
            kept_usd_per_hour=disk + prices.IP_USD_PER_HOUR,
            at_most=at_most,
        )

    async def quota(self, offering: Offering) -> records.Quota | None:
        await self.learn(offering)
        usages = await quota.usages(self._clients, offering.region)
        least = quota.tightest(usages, sizes.find(offering.size), spot=offering.spot)
        if least is None:
            return None
        return records.Quota(family=least.name, used=least.used, limit=least.limit, region=offering.region)

    def _vm_id(self, name: str) -> str:
        return f"{self._settings.group_path()}/providers/{_VMS}/{name}"

    def _deadline_path(self, name: str) -> str:
        return f"{self._settings.group_path()}/providers/microsoft.devtestlab/schedules/shutdown-computevm-{name}"


async def text_at(url: str) -> str:
    """The end of a text that the cloud keeps under an address of its own, which is signed already."""
    from urllib.error import URLError
    from urllib.request import urlopen

    def read() -> str:
        with urlopen(url, timeout=30) as answer:
            return answer.read().decode("utf-8", "replace")[-_LOG_CHARS:]

    try:
        return await anyio.to_thread.run_sync(read)
    except (URLError, TimeoutError, OSError) as error:
        said = f"the log does not come: {error}"
        raise Refusal(Problem(cause=Cause.SERVER, action=Action.WAIT, message=said, wait_s=5.0)) from error


def _is_of(body: Mapping[str, Any], pool: str | None) -> bool:
    """Whether it is a resource of that pool, or of any of ours."""
    tags: Mapping[str, str] = body.get("tags") or {}
    return LABEL_POOL in tags and pool in (None, tags[LABEL_POOL])


def _spelled(offering: Offering) -> Offering:
    """The offering with its size as Azure spells it: price lists tell capital letters from small ones."""
    return replace(offering, size=sizes.find(offering.size).name)
