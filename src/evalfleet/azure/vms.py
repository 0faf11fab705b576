"""The life of VMs on Azure: make, watch, start, deallocate, delete, list. The seam that a pool's life cycle uses.

Every call takes our own names and may be made again after a crash: making what is there, starting what runs, deleting
what is gone all change nothing. None waits for a long operation: it returns a continuation, to be stored with the
worker, and `poll` looks once how far the operation is, in this process or in the next.

All raise `Refusal`, which carries the judged problem.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, cast

import anyio
import anyio.to_thread
from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from azure.core.polling.base_polling import BadStatus
from azure.mgmt.core.exceptions import ARMErrorFormat
from msgspec import Struct
from msgspec.structs import replace

from evalfleet.azure import responses
from evalfleet.azure.clients import Clients
from evalfleet.azure.error_causes import classify, facts_of, retry_after
from evalfleet.azure.quota import Usage, by_name
from evalfleet.azure.requests import vm
from evalfleet.azure.responses import VmView
from evalfleet.pools.cloud.problems import Action, Cause, Problem, Refusal
from evalfleet.pools.cloud.records import (
    LABEL_EXPIRES,
    LABEL_OWNER,
    LABEL_POOL,
    MachineSpec,
    Offering,
    Progress,
    Resource,
    Verb,
    expires_text,
)

NETWORK_API = "2024-05-01"
NOT_FOUND = 404
FORBIDDEN = 403
ONE_BY_ONE = 10  # VMs; the states of more are listed
AT_A_TIME = 10
PRECONDITION_FAILED = 412
GROUP_API = "2024-03-01"
SCHEDULE_API = "2018-09-15"
SCHEDULE_TYPE = "microsoft.devtestlab/schedules"
_LOG_CHARS = 64_000
_VMS = "Microsoft.Compute/virtualMachines"
_APIS = {
    "microsoft.network": NETWORK_API,
    "microsoft.compute/disks": "2024-03-02",
    "microsoft.compute": "2024-07-01",
    "microsoft.devtestlab": SCHEDULE_API,
}


class Network(Struct, frozen=True, kw_only=True):
    """What the VMs of a pool in one region share."""

    subnet_id: str
    nsg_id: str


class Vms:
    """VMs of one resource group."""

    def __init__(self, clients: Clients) -> None:
        self._settings = clients.settings
        self._clients = clients
        self._arm = clients.arm
        self._group = clients.settings.resource_group

    @property
    def _vms(self) -> Any:
        return self._clients.compute.virtual_machines

    # What VMs need around them

    async def ensure_group(self, region: str, owner: str) -> None:
        """Make the resource group where it is missing; one that exists keeps its region."""
        path = self._settings.group_path()
        async with judged(region):
            if await self._arm.get(path, GROUP_API) is None:
                tags = {**self._settings.tags, LABEL_OWNER: owner}
                await self._arm.put(path, GROUP_API, {"location": region, "tags": tags})

    async def ensure_network(self, pool: str, region: str, owner: str) -> Network:
        """Make the pool's network of that region, and let in the address that we have now."""
        labels = {**self._settings.tags, **vm.network_tags(pool, owner)}
        name = f"{pool}-{region}"
        nsg = self._network_path("networkSecurityGroups", name)
        vnet = self._network_path("virtualNetworks", name)
        async with judged(region):
            admitted = self._settings.admitted()
            known = await self._arm.get(nsg, NETWORK_API)
            if known is None:
                await self._arm.put(nsg, NETWORK_API, vm.nsg_body(region, admitted, owner, labels))
            elif (rule := vm.missing_rule(known, admitted, owner)) is not None:
                await self._arm.put(f"{nsg}/securityRules/{vm.rule_name(owner)}", NETWORK_API, rule)
            theirs = self._settings.subnets.get(region)
            if theirs is not None:
                return Network(subnet_id=theirs, nsg_id=nsg)
            if await self._arm.get(vnet, NETWORK_API) is None:
                await self._arm.put(vnet, NETWORK_API, vm.vnet_body(region, labels))
        return Network(subnet_id=f"{vnet}/subnets/{vm.SUBNET}", nsg_id=nsg)

    async def drop_network(self, pool: str, region: str) -> None:
        """Delete the pool's network of that region, once no VM is in it any more."""
        name = f"{pool}-{region}"
        async with judged(region):
            await self._arm.delete(self._network_path("virtualNetworks", name), NETWORK_API)
            await self._arm.delete(self._network_path("networkSecurityGroups", name), NETWORK_API)

    # One VM

    async def create(self, spec: MachineSpec, network: Network) -> str | None:
        """Ask for the VM; its intent must be stored already. Returns the continuation.

        None: the VM is there already, made by an earlier call that nobody remembers the end of; `view` tells how it
        stands, and its host key is the one stored with that intent.
        """
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
        """Stop paying for the machine. Its disk and address stay, and so does its place in the quota."""
        async with judged():
            return cast("str", (await self._vms.begin_deallocate(self._group, name)).continuation_token())

    async def delete(self, name: str) -> str | None:
        """Delete the VM with its disk, interface and address. None: it is gone already. Its deadline stays until it is gone:
        a deletion that was accepted may fail."""
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

    async def drop_deadline(self, name: str) -> None:
        """Delete the deadline of a VM that is gone."""
        async with judged():
            await self._arm.delete(self._deadline_path(name), SCHEDULE_API)

    async def poll(
        self, verb: Verb, name: str, continuation: str, spec: MachineSpec | Offering | None = None
    ) -> Progress:
        """Look once how far an operation is. `spec` makes the message of a failed creation say what was asked for."""
        region, size, spot = (spec.region, spec.size, spec.spot) if spec else ("", "", False)
        resumed: dict[str, Any] = {"continuation_token": continuation}
        async with judged(region, size, spot=spot):
            match verb:
                case Verb.CREATE:
                    poller = await self._vms.begin_create_or_update(self._group, name, {}, **resumed)
                case Verb.START:
                    poller = await self._vms.begin_start(self._group, name, **resumed)
                case Verb.STOP:
                    poller = await self._vms.begin_deallocate(self._group, name, **resumed)
                case Verb.DELETE:
                    poller = await self._vms.begin_delete(self._group, name, **resumed)
            method = poller.polling_method()
            if not method.finished() and not await looked(method):
                return Progress(done=True, forgotten=True)
            if not method.finished():
                return Progress(done=False, look_again_s=asked_s(method) or self._settings.poll_s)
        try:
            await poller.result()
        except HttpResponseError as error:
            if error.status_code == NOT_FOUND:
                # Deleted meanwhile, by an eviction or by another hand; or too new to be seen. `view` will say which.
                return Progress(done=True)
            return Progress(done=True, problem=classify(facts_of(error), region=region, size=size, spot=spot))
        return Progress(done=True)

    async def view(self, name: str) -> VmView | None:
        """Return how the VM stands, or None where there is none."""
        async with judged():
            try:
                found = await self._vms.get(self._group, name, expand="instanceView")
            except ResourceNotFoundError as error:
                if not await self._arm.is_absent(error):
                    raise
                return None
            return responses.vm_view(found.as_dict())

    async def address(self, view: VmView) -> str | None:
        """Return the address by which we reach the VM: its public one, or in a network without such the private one. None while
        it has none."""
        async with judged(view.region):
            nic = await self._arm.get(view.nic_id, NETWORK_API) if view.nic_id else None
            if nic and not self._settings.public_ip:
                return _private_ip(nic)
            ip_id = _public_ip_id(nic) if nic else None
            address = await self._arm.get(ip_id, NETWORK_API) if ip_id else None
        return address["properties"].get("ipAddress") if address else None

    async def set_deadline(self, name: str, region: str, tags: Mapping[str, str], at: float) -> None:
        """Have Azure deallocate the VM at that minute, whether we live or not, and see that Azure knows it. Said again, it
        moves the deadline. The VM need not run yet.

        The schedule knows minutes of the day only: `at` must be within 24 hours, and is best half an hour away.
        """
        labels = {key: value for key, value in tags.items() if key.startswith("evalfleet-")}
        at += self._arm.skew_s  # Azure goes by its own clock
        body = vm.shutdown_body(region, self._vm_id(name), at, {**self._settings.tags, **labels})
        async with judged(region):
            await self._arm.put(self._deadline_path(name), SCHEDULE_API, body)
        if not await self._has_deadline(name, at):
            said = f"Azure accepted a deadline for {name}, and does not show it"
            raise Refusal(Problem(cause=Cause.CONFLICT, action=Action.WAIT, message=said))

    async def has_deadline(self, name: str, at: float) -> bool:
        """Whether Azure will deallocate the VM at that minute."""
        return await self._has_deadline(name, at + self._arm.skew_s)

    async def _has_deadline(self, name: str, at: float) -> bool:
        async with judged():
            schedule = await self._arm.get(self._deadline_path(name), SCHEDULE_API)
        return schedule is not None and vm.is_deadline(schedule, self._vm_id(name), at)

    async def renew(self, name: str, region: str, tags: Mapping[str, str], expires_at: float) -> None:
        """Move the moment after which anybody may reap the VM."""
        moved = {**tags, LABEL_EXPIRES: expires_text(expires_at + self._arm.skew_s)}
        async with judged(region):
            await (await self._vms.begin_update(self._group, name, {"tags": moved})).result()

    async def console_log(self, name: str) -> str:
        """What the VM wrote to its serial console; empty where Azure keeps none (yet)."""
        async with judged():
            try:
                found = await self._vms.retrieve_boot_diagnostics_data(self._group, name)
            except ResourceNotFoundError:
                return ""
        return await _text_at(found.serial_console_log_blob_uri) if found.serial_console_log_blob_uri else ""

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

    # All of ours

    async def list(self, pool: str | None = None) -> list[VmView]:
        """Return our VMs, or those of one pool, with their power states."""
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

        with first_error():
            async with anyio.create_task_group() as group:
                for each in ids:
                    if each.lower() not in states:
                        group.start_soon(ask, each)
        return states

    async def owned(self, pool: str | None = None) -> list[Resource]:
        """Return everything of any type that carries our tag: what a reaper must account for."""
        term = f"tagName eq '{LABEL_POOL}'" + (f" and tagValue eq '{pool}'" if pool else "")
        async with judged():
            path = f"{self._settings.group_path()}/resources"
            return [responses.resource(body) for body in await self._arm.list(path, "2021-04-01", {"$filter": term})]

    async def delete_owned(self, resource: Resource) -> None:
        """Delete any resource of ours by its id, and wait for it; one that is gone is no error."""
        kind = resource.type.lower()
        api = _APIS.get(kind) or _APIS[kind.split("/")[0]]
        async with judged(resource.region):
            await self._arm.delete(resource.id, api)

    async def usages(self, region: str) -> Mapping[str, Usage]:
        """Return the quotas of a region and what is used of them."""
        async with judged(region):
            return by_name(
                [
                    Usage(
                        name=row.name.value or "",
                        label=row.name.localized_value or "",
                        used=row.current_value,
                        limit=row.limit,
                    )
                    async for row in self._clients.compute.usage.list(region)
                ]
            )

    def _vm_id(self, name: str) -> str:
        return f"{self._settings.group_path()}/providers/{_VMS}/{name}"

    def _deadline_path(self, name: str) -> str:
        return f"{self._settings.group_path()}/providers/microsoft.devtestlab/schedules/shutdown-computevm-{name}"

    def _network_path(self, kind: str, name: str) -> str:
        return f"{self._settings.group_path()}/providers/Microsoft.Network/{kind}/{name}"


async def looked(method: Any) -> bool:
    """Ask once how an operation is; False where Azure does not know it any more."""
    try:
        await method.update_status()
    except BadStatus as error:
        response = method._pipeline_response.http_response  # the library keeps it to itself, and tells nothing else
        if response.status_code == NOT_FOUND:
            return False
        raise HttpResponseError(response=response, error_format=ARMErrorFormat) from error
    return True


@contextmanager
def first_error() -> Generator[None]:
    """Let one error of Azure out of a task group's bundle."""
    try:
        yield
    except BaseExceptionGroup as bundle:
        meant, _ = bundle.split(AzureError)
        first: BaseException | None = meant
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        if first is None:
            raise
        raise first from None


def asked_s(method: Any) -> float | None:
    """When Azure wants to be asked again about an operation."""
    return retry_after(method._pipeline_response.http_response.headers)


@asynccontextmanager
async def judged(region: str = "", size: str = "", *, spot: bool = False) -> AsyncGenerator[None]:
    """Turn an error of Azure's libraries into a refusal that says what to do."""
    try:
        yield
    except AzureError as error:
        raise Refusal(classify(facts_of(error), region=region, size=size, spot=spot)) from error


async def _text_at(url: str) -> str:
    """The end of a text that the cloud keeps under an address of its own, which is signed already."""
    from urllib.error import URLError
    from urllib.request import urlopen

    def read() -> str:
        with urlopen(url, timeout=30) as answer:
            return answer.read().decode("utf-8", "replace")[-_LOG_CHARS:]

    try:
        return await anyio.to_thread.run_sync(read)
    except (URLError, TimeoutError, OSError) as error:
        said = f"the console log does not come: {error}"
        raise Refusal(Problem(cause=Cause.SERVER, action=Action.WAIT, message=said, wait_s=5.0)) from error


def _is_of(body: Mapping[str, Any], pool: str | None) -> bool:
    """Whether it is a resource of that pool, or of any of ours."""
    tags: Mapping[str, str] = body.get("tags") or {}
    return LABEL_POOL in tags and pool in (None, tags[LABEL_POOL])


def _private_ip(nic: Mapping[str, Any]) -> str | None:
    for each in nic["properties"].get("ipConfigurations") or ():
        if each["properties"].get("privateIPAddress"):
            return cast("str", each["properties"]["privateIPAddress"])
    return None


def _public_ip_id(nic: Mapping[str, Any]) -> str | None:
    for each in nic["properties"].get("ipConfigurations") or ():
        public = each["properties"].get("publicIPAddress")
        if public:
            return cast("str", public["id"])
    return None
