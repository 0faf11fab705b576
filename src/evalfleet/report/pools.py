"""What is known of a pool without asking its machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evalfleet.azure.facts import facts_of
from evalfleet.backends import registry
from evalfleet.core.hosts import cost_usd, total_usd
from evalfleet.model import Pool, PoolHost
from evalfleet.store.base import StoreReader

_DAY_H = 24


def told(reader: StoreReader, pool: Pool, speed: float = 1.0) -> dict[str, Any]:
    """The pool as `pool status --json` shows it. Prices are those of the cloud's own hours.

    Args:
        speed: cloud seconds per second, of an emulator.
    """
    kind = registry.kind_of(pool)
    rows = reader.hosts(pool.name)
    loads = reader.host_loads()
    hosts: list[dict[str, Any]] = [
        {
            "host": host.name,
            "workers": host.slots,
            "busy": loads.get(host.name, 0),
            "price_usd_per_hour": host.price_usd_per_hour / speed,
        }
        for host in kind.hosts(pool, rows)
    ]
    answer: dict[str, Any] = {
        "name": pool.name,
        "backend": pool.backend,
        "workers": sum(row["workers"] for row in hosts),
        "created_at": pool.created_at,
        "hosts": hosts,
    }
    return answer if pool.backend == "ssh" else _rented(answer, reader, pool, rows, speed)


def _rented(
    answer: dict[str, Any], reader: StoreReader, pool: Pool, rows: Sequence[PoolHost], speed: float
) -> dict[str, Any]:
    """What is to be told besides of machines that cost money."""
    now = reader.now()
    for told_host, row in zip(answer["hosts"], rows, strict=True):
        facts = facts_of(row)
        told_host |= {
            "state": row.state,
            "wish": row.wish,
            "rung": row.rung,
            "reason": row.reason,
            "size": facts.size or None,
            "region": facts.region or None,
            "spot": facts.spot,
            "address": facts.address,
            "age_s": now - row.created_at,
            "cost_usd": cost_usd(row, now),
            "deadline_at": facts.deadline_at if row.allocated_since is not None else None,
            "vnc": f"evalfleet pool vnc {row.name}",
        }
    every = reader.hosts(pool.name, gone=True)
    kept = sum(row.kept_usd_per_hour for row in rows if row.made_at is not None) / speed
    return answer | {
        "reason": pool.reason,
        "owner": reader.pool_owner(pool.name),
        "budget_usd": pool.settings.get("budget_usd"),
        "cost_usd": total_usd(every, now),
        "usd_per_hour": kept + sum(row.usd_per_hour for row in rows if row.allocated_since is not None) / speed,
        "kept_usd_per_day": kept * _DAY_H,
    }
