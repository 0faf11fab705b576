"""How busy machines are, as their cloud measures it: asked of those alone that tell nothing themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from evalfleet.core.hosts.lifecycle import Power
from evalfleet.core.hosts.load import FRESH_S
from evalfleet.errors import InputError
from evalfleet.pools.cloud.problems import Refusal
from evalfleet.pools.cloud.protocol import MeasuresMachines
from evalfleet.pools.cloud.records import MachineView
from evalfleet.pools.cloud.waits import waiting_for
from evalfleet.pools.context import PoolContext

LOOK_S = 60.0  # between two looks: a cloud measures by the minute
REFUSED_S = 600.0  # after a refusal, such as a role that may not read metrics
BEFORE_S = 300.0  # how far back a look goes: what is measured is known minutes later
MOST = 200  # machines in one look, which bounds the requests


class CloudLoads:
    """Of one pool. Used in the loop's thread."""

    def __init__(self, context: PoolContext) -> None:
        self._context = context
        self._due_at: float | None = None  # None: not looked yet; the first look comes after a while
        self._told = ""

    async def look(self, views: Mapping[str, MachineView]) -> None:
        """Store what is new, if it is time. Raises nothing: metrics are good to have, and no more."""
        cloud, record = self._context.cloud, self._context.record
        if not isinstance(cloud, MeasuresMachines):
            return
        now = await record.now()
        due_at, self._due_at = self._due_at, now + LOOK_S if self._due_at is None else self._due_at
        if due_at is None or now < due_at:
            return
        self._due_at = now + LOOK_S
        try:
            heard = await record.call(record.store.loads.recent, now - FRESH_S)
            own = {host for host, samples in heard.items() if not all(one.from_cloud for one in samples)}
            asked = _silent(views, own)
            if asked:
                found = await cloud.loads(asked, now - BEFORE_S, now)
                await record.call(record.store.loads.add, {name: list(some) for name, some in found.items()})
        except (Refusal, InputError) as error:
            self._due_at = now + REFUSED_S
            if str(error) != self._told:
                self._told = str(error)
                waiting_for(f"the metrics of pool {record.name} cannot be read: {error}")


def _silent(views: Mapping[str, MachineView], own: Collection[str]) -> list[MachineView]:
    """Machines that run and told nothing lately."""
    return [view for name, view in views.items() if view.power is Power.RUNNING and name not in own][:MOST]
