"""Azure Monitor: what Azure itself measures of VMs, without a login. Its values come a minute or two late.

One request asks for up to 50 VMs of a region.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from evalfleet.azure import sizes
from evalfleet.azure.arm import judged
from evalfleet.core.hosts.load import Load, Sample
from evalfleet.errors import NotFound

if TYPE_CHECKING:
    from azure.monitor.querymetrics import MetricsQueryResult
    from azure.monitor.querymetrics.aio import MetricsClient

    from evalfleet.azure.clients import Clients
    from evalfleet.azure.responses import VmView

AT_A_TIME = 50  # VMs; the service takes no more
GRAIN_S = 60
SPACE = "Microsoft.Compute/virtualMachines"
CPU, MEMORY = "Percentage CPU", "Available Memory Bytes"
NET_IN, NET_OUT = "Network In Total", "Network Out Total"
DISK_READ, DISK_WRITE = "Disk Read Bytes", "Disk Write Bytes"
NAMES = (CPU, MEMORY, NET_IN, NET_OUT, DISK_READ, DISK_WRITE)


class Monitor:
    """Has a client for each region, made at its first use."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._regions: dict[str, MetricsClient] = {}

    async def loads(self, vms: Iterable[VmView], since: float, until: float) -> dict[str, list[Sample]]:
        """A sample a minute of each VM by name, oldest first. Raises Refusal."""
        found: dict[str, list[Sample]] = {}
        by_region: dict[str, list[VmView]] = {}
        for vm in vms:
            by_region.setdefault(vm.region, []).append(vm)
        for region, some in by_region.items():
            rest = iter(some)
            while few := list(islice(rest, AT_A_TIME)):
                async with judged(region):
                    told = await self._ask(region, few, since, until)
                by_id = {vm.id.lower(): vm for vm in few}
                for one in told:
                    vm = by_id.get(_resource_id(one))
                    if vm is not None:
                        found[vm.name] = samples_of(one, _memory_bytes(vm.size))
        return found

    async def _ask(self, region: str, vms: Sequence[VmView], since: float, until: float) -> list[MetricsQueryResult]:
        times = datetime.fromtimestamp(since, UTC), datetime.fromtimestamp(until, UTC)
        return await self._client(region).query_resources(
            resource_ids=[vm.id for vm in vms],
            metric_namespace=SPACE,
            metric_names=list(NAMES),
            timespan=times,
            granularity=timedelta(seconds=GRAIN_S),
            aggregations=["average", "total"],
        )

    def _client(self, region: str) -> MetricsClient:
        if region not in self._regions:
            self._regions[region] = self._clients.metrics(region)
        return self._regions[region]


def samples_of(told: MetricsQueryResult, memory_bytes: float | None) -> list[Sample]:
    """What was measured, by minute; minutes of which nothing is known are left out."""
    values: dict[float, dict[str, Any]] = {}
    for metric in told.metrics:
        for series in metric.timeseries:
            for value in series.data:
                values.setdefault(value.timestamp.timestamp(), {})[metric.name] = value
    found = [Sample(at=at, load=_load(row, memory_bytes), from_cloud=True) for at, row in sorted(values.items())]
    return [sample for sample in found if sample.load != Load()]


def _load(row: Mapping[str, Any], memory_bytes: float | None) -> Load:
    def mean(name: str) -> float | None:
        return row[name].average if name in row else None

    def per_second(name: str) -> float | None:
        total = row[name].total if name in row else None
        return None if total is None else total / GRAIN_S

    cpu, free = mean(CPU), mean(MEMORY)
    return Load(
        cpu=None if cpu is None else min(1.0, max(0.0, cpu / 100)),
        memory=None if free is None or not memory_bytes else min(1.0, max(0.0, 1 - free / memory_bytes)),
        net_in_bps=per_second(NET_IN),
        net_out_bps=per_second(NET_OUT),
        disk_read_bps=per_second(DISK_READ),
        disk_write_bps=per_second(DISK_WRITE),
    )


def _resource_id(told: MetricsQueryResult) -> str:
    """The VM that an answer is about, in small letters: the library tells it in the ids of metrics alone."""
    first = next(iter(told.metrics), None)
    return "" if first is None else first.id.lower().partition("/providers/microsoft.insights/")[0]


def _memory_bytes(size: str) -> float | None:
    try:
        return sizes.find(size).memory_gb * 1024**3
    except NotFound:
        return None
