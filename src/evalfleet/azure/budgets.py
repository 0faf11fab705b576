"""Azure Budgets: Azure itself writes an e-mail when a pool's machines have cost so much. A budget only notifies: it stops nothing,
and Azure knows costs some hours late. What stops machines is their deadline."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from evalfleet.azure.arm import judged
from evalfleet.pools.cloud.records import LABEL_POOL

if TYPE_CHECKING:
    from evalfleet.azure.clients import Clients

API = "2023-05-01"
THRESHOLDS = (50, 80, 100)  # percent of the amount
_COMPARED = ("amount", "filter", "notifications")


class Budgets:
    """Microsoft.Consumption/budgets of one resource group, one for each pool that has a budget."""

    def __init__(self, clients: Clients) -> None:
        self._arm = clients.arm
        self._settings = clients.settings

    async def ensure(self, pool: str, usd: float) -> None:
        """Create or change the pool's budget; one that is as it should be is left alone."""
        wanted = body(pool, usd, self._settings.budget_emails, datetime.now(UTC))
        async with judged():
            known = await self._arm.get(self._path(pool), API)
            if known is not None:
                if all(_plain(known["properties"].get(name)) == wanted["properties"][name] for name in _COMPARED):
                    return
                # A budget keeps its period, and Azure takes a change only with the mark of what it changes.
                wanted["properties"]["timePeriod"] = known["properties"]["timePeriod"]
                wanted["eTag"] = known["eTag"]
            await self._arm.put(self._path(pool), API, wanted)

    async def drop(self, pool: str) -> None:
        """Delete the pool's budget; one that is not there is no error."""
        async with judged():
            await self._arm.delete(self._path(pool), API)

    def _path(self, pool: str) -> str:
        return f"{self._settings.group_path()}/providers/Microsoft.Consumption/budgets/evalfleet-{pool}"


def body(pool: str, usd: float, emails: Sequence[str], now: datetime) -> dict[str, Any]:
    """The budget of a pool. By the year: one by the month would begin anew while the pool's own goes on."""
    begin = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return {
        "properties": {
            "category": "Cost",
            "amount": usd,
            "timeGrain": "Annually",
            "timePeriod": {"startDate": begin.strftime("%Y-%m-%dT%H:%M:%SZ")},
            "filter": {"tags": {"name": LABEL_POOL, "operator": "In", "values": [pool]}},
            "notifications": {
                f"evalfleet-{percent}": {
                    "enabled": True,
                    "operator": "GreaterThanOrEqualTo",
                    "threshold": percent,
                    "thresholdType": "Actual",
                    "contactEmails": list(emails),
                }
                for percent in THRESHOLDS
            },
        }
    }


def _plain(shown: Any) -> Any:
    """What Azure shows, without the members that it adds empty."""
    if isinstance(shown, dict):
        members = cast("dict[str, Any]", shown)
        return {name: _plain(value) for name, value in members.items() if value not in (None, [], {})}
    return shown
