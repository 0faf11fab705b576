"""A pool as `pool status` and the commands that change one show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalfleet.answers.pools import HostRow, PoolFacts


def page(answer: PoolFacts) -> str:
    from evalfleet.report.terminal.lines import columns, wrapped
    from evalfleet.report.text import count

    hosts = answer.hosts
    workers, on = count(answer.workers, "worker"), count(len(hosts), "host")
    head = f"pool {answer.name} ({answer.backend}): {workers} on {on}"
    width = max((len(row.host) for row in hosts), default=0)
    lines = [head, *_money(answer), ""]
    for row in hosts:
        line = f"  {row.host:<{width}}  {_state(row)}{_price(row)}"
        lines.append(f"{line}  {_probed(row.probe)}" if row.probe is not None else line)
    if any(row.state == "ready" for row in hosts):
        lines += ["", f"`evalfleet pool vnc {hosts[0].host}` shows a machine's screen, `pool vnc --all` all screens"]
    room = columns()
    return "\n".join(wrapped(one.rstrip(), room, indent=4) for one in lines).rstrip()


def _money(answer: PoolFacts) -> list[str]:
    if answer.cost_usd is None:
        return []
    budget = f" of ${answer.budget_usd:.2f}" if answer.budget_usd is not None else ""
    kept = f"disks and addresses ${answer.kept_usd_per_day:.2f} a day, also while stopped"
    hosts = answer.hosts
    most = "at most " if any(row.price == "at_most" for row in hosts) else ""
    cost, now = f"{most}${answer.cost_usd:.4f}", f"{most}${answer.usd_per_hour:.3f}"
    lines = [f"cost so far {cost}{budget}; now {now} an hour, including {kept}"]
    if any(row.price == "unknown" for row in hosts):
        lines.append("the price of some machines is unknown and not counted; `evalfleet prices --refresh` fetches it")
    if answer.reason:
        lines.append(f"creates no more machines: {answer.reason.message}")
    return lines


def _state(row: HostRow) -> str:
    busy = f"{row.busy}/{row.workers} busy  "
    if row.state is None:
        return busy
    from evalfleet.report.text import printable

    state = f"{row.state}: {row.readiness_check}" if row.state == "preparing" else str(row.state)
    reason = f"({printable(row.reason)})  " if row.reason else ""
    place = f"{row.region or '-':<10} {row.size or '-':<17}{' spot' if row.spot else ''}"
    return f"{state:<12} {busy}{place}  {row.address or '-':<15} ${row.cost_usd:.4f}  {reason}"


def _price(row: HostRow) -> str:
    usd = f"{row.price_usd_per_hour:.3f} $/h"
    return {"at_most": f"at most {usd} (on-demand price)", "unknown": "price unknown"}.get(row.price or "", usd)


def _probed(probe: dict[str, Any]) -> str:
    if not probe["reachable"]:
        return f"not reached: {probe['error']}"
    has = probe["host"]
    runner = "its runner answers" if probe["answers"] else "no runner"
    disk = f"{has['disk_free_mb'] / 1024:.0f} GB free"
    return f"reached: {has['cpus']} CPUs, {has['memory_mb'] / 1024:.0f} GB, {disk}, Python {has['python']}, {runner}"
