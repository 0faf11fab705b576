"""A pool as `pool status` and the commands that change one show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evalfleet.model import Pool, PoolHost
    from evalfleet.store.base import StoreReader

_DAY_H = 24


def told(reader: StoreReader, pool: Pool, speed: float = 1.0) -> dict[str, Any]:
    """Everything that is known of a pool without asking its machines. Prices are those of the cloud's own hours.

    Args:
        speed: cloud seconds per second, of an emulator.
    """
    from evalfleet.backends import registry

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
    from evalfleet.azure.facts import facts_of
    from evalfleet.core.hosts import cost_usd, total_usd

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


def page(answer: dict[str, Any]) -> str:
    from evalfleet.report.text import count

    hosts = answer["hosts"]
    workers, on = count(answer["workers"], "worker"), count(len(hosts), "host")
    head = f"pool {answer['name']} ({answer['backend']}): {workers} on {on}"
    width = max((len(row["host"]) for row in hosts), default=0)
    lines = [head, *_money(answer), ""]
    for row in hosts:
        line = f"  {row['host']:<{width}}  {_state(row)}{row['price_usd_per_hour']:.3f} $/h"
        lines.append(f"{line}  {_probed(row['probe'])}" if "probe" in row else line)
    return "\n".join(lines).rstrip()


def _money(answer: dict[str, Any]) -> list[str]:
    if "cost_usd" not in answer:
        return []
    budget = f" of ${answer['budget_usd']:.2f}" if answer["budget_usd"] is not None else ""
    kept = f"disks and addresses ${answer['kept_usd_per_day']:.2f} a day, also while stopped"
    lines = [f"cost so far ${answer['cost_usd']:.4f}{budget}; now ${answer['usd_per_hour']:.3f} an hour, of it {kept}"]
    if answer["reason"]:
        lines.append(f"makes no more machines: {answer['reason']['message']}")
    return lines


def _state(row: dict[str, Any]) -> str:
    busy = f"{row['busy']}/{row['workers']} busy  "
    if "state" not in row:
        return busy
    from evalfleet.report.text import printable

    state = f"{row['state']}: {row['rung']}" if row["state"] == "preparing" else str(row["state"])
    reason = f"({printable(row['reason'])})  " if row["reason"] else ""
    place = f"{row['region'] or '-':<10} {row['size'] or '-':<17}{' spot' if row['spot'] else ''}"
    return f"{state:<12} {busy}{place}  {row['address'] or '-':<15} ${row['cost_usd']:.4f}  {reason}"


def _probed(probe: dict[str, Any]) -> str:
    if not probe["reachable"]:
        return f"not reached: {probe['error']}"
    has = probe["host"]
    runner = "its runner answers" if probe["answers"] else "no runner"
    disk = f"{has['disk_free_mb'] / 1024:.0f} GB free"
    return f"reached: {has['cpus']} CPUs, {has['memory_mb'] / 1024:.0f} GB, {disk}, Python {has['python']}, {runner}"
