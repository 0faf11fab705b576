"""Azure Monitor: metrics of VMs in batches, by region. What a machine shows is in its condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from evalfleet.azure.responses import inside
from evalfleet.azure.settings import EMULATOR_SUBSCRIPTION
from evalfleet.emulator.arm.access.identity import require_token
from evalfleet.emulator.arm.protocol import ArmError, Body
from evalfleet.emulator.arm.resources import VM
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.machines.machines import Machine, Machines

AT_A_TIME = 50
GRAIN_S = 60
_SPACE = "microsoft.compute/virtualmachines"
_UNITS = {
    "Percentage CPU": "Percent",
    "Available Memory Bytes": "Bytes",
    "Network In Total": "Bytes",
    "Network Out Total": "Bytes",
    "Disk Read Bytes": "Bytes",
    "Disk Write Bytes": "Bytes",
}


class Monitor:
    """`/monitor/REGION/subscriptions/SUBSCRIPTION/metrics:getBatch`."""

    def __init__(self, world: EmulatorContext, machines: Machines) -> None:
        self._world = world
        self._machines = machines

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/monitor/{region}/subscriptions/{subscription}/metrics:getBatch", self._batch)]

    async def _batch(self, request: web.Request) -> web.Response:
        require_token(self._world, request.headers.get("Authorization"))
        await self._world.meet("monitor.metrics", {"region": request.match_info["region"]})
        body: Any = await request.json()
        ids: list[Any] = body.get("resourceids") or []
        if request.match_info["subscription"].lower() != EMULATOR_SUBSCRIPTION or not 1 <= len(ids) <= AT_A_TIME:
            raise ArmError(400, "BadRequest", f"1 to {AT_A_TIME} resources of one subscription can be asked for.")
        query = request.query
        names = query.get("metricnames", "").split(",")
        unknown = [name for name in names if name not in _UNITS]
        if unknown or query.get("metricnamespace", "").lower() != _SPACE or query.get("interval") != "PT1M":
            raise ArmError(400, "BadRequest", f"Failed to find metric configuration for: {unknown or dict(query)}")
        found = [self._of_vm(str(one), request.match_info["region"], names, query) for one in ids]
        return web.json_response({"values": found})

    def _of_vm(self, resource: str, region: str, names: list[str], query: Mapping[str, str]) -> Body:
        body = self._world.resources.find(resource)
        if body is None or body["type"].lower() != VM.lower():
            raise ArmError(404, "ResourceNotFound", f"The resource {resource} was not found.")
        if body["location"] != region:
            raise ArmError(400, "BadRequest", f"The resource {resource} is not in the region {region}.")
        machine = self._machines.of(body)
        return {
            "starttime": query["starttime"],
            "endtime": query["endtime"],
            "interval": "PT1M",
            "namespace": _SPACE,
            "resourceregion": region,
            "resourceid": body["id"],
            "value": [self._metric(machine, name, query) for name in names],
        }

    def _metric(self, machine: Machine, name: str, query: Mapping[str, str]) -> Body:
        return {
            "id": f"{machine.body['id']}/providers/Microsoft.Insights/metrics/{name}",
            "type": "Microsoft.Insights/metrics",
            "name": {"value": name, "localizedValue": name},
            "displayDescription": name,
            "unit": _UNITS[name],
            "timeseries": [{"metadatavalues": [], "data": list(self._data(machine, name, query))}],
            "errorCode": "Success",
        }

    def _data(self, machine: Machine, name: str, query: Mapping[str, str]) -> Iterator[Body]:
        """A value for each whole minute; one in which the machine did not run has none."""
        made_at = _moment(inside(machine.body, "properties", "timeCreated") or "9999-01-01T00:00:00Z")
        begin, last = _moment(query["starttime"]), min(_moment(query["endtime"]), self._world.clock.now())
        wanted = query.get("aggregation", "average").lower().split(",")
        for minute in range(int(begin // GRAIN_S) * GRAIN_S, int(last // GRAIN_S) * GRAIN_S, GRAIN_S):
            row: Body = {"timeStamp": datetime.fromtimestamp(minute, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
            if minute + GRAIN_S > made_at and machine.power == "running":
                row |= dict.fromkeys({"average", "total"}.intersection(wanted), _value(machine, name))
            yield row


def _value(machine: Machine, name: str) -> float:
    condition = machine.condition
    if name == "Percentage CPU":
        return condition.cpu_percent
    if name == "Available Memory Bytes":
        return condition.free_memory_gb * 1024**3
    return condition.traffic_mb * 1e6  # of a minute, the same for all that moves


def _moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00").replace(" ", "+")).timestamp()
