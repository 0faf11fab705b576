"""A pool as `pool status` and the commands that change one show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evalfleet.answers.pools import GuestRow, HostRow, PoolFacts, TierRow


def page(answer: PoolFacts) -> str:
    from evalfleet.report.terminal.lines import columns, wrapped
    from evalfleet.report.text import count

    if answer.tiers is not None:
        return _tiered(answer, answer.tiers)
    hosts = answer.hosts
    workers, on = count(answer.workers, "worker"), count(len(hosts), "host")
    head = f"pool {answer.name} ({answer.backend}): {workers} on {on}"
    width = max((len(row.host) for row in hosts), default=0)
    lines = [head, *_money(answer), ""]
    for row in hosts:
        line = f"  {row.host:<{width}}  {_state(row)}{_price(row)}"
        lines.append(f"{line}  {_probed(row)}" if row.probe is not None else line)
        lines += [f"      {_guest(guest)}" for guest in row.guests or ()]
    lines += _readiness(hosts)
    if any(row.state == "ready" and row.address is not None for row in hosts):
        lines += ["", f"`evalfleet pool vnc {hosts[0].host}` shows a machine's screen, `pool vnc --all` all screens"]
    room = columns()
    return "\n".join(wrapped(one.rstrip(), room, indent=4) for one in lines).rstrip()


def _tiered(answer: PoolFacts, tiers: Sequence[TierRow]) -> str:
    import time

    from evalfleet.report.terminal.lines import columns, wrapped
    from evalfleet.report.text import count, printable

    budget = "" if answer.budget_usd is None else f" of ${answer.budget_usd:.2f}"
    lines = [
        f"pool {answer.name} ({answer.backend}): {count(len(tiers), 'tier')}, {count(answer.workers, 'worker')} at most",
        f"cost so far ${answer.cost_usd or 0.0:.4f}{budget}",
        "",
    ]
    width = max(len(row.tier) for row in tiers)
    for row in tiers:
        again = (
            ""
            if row.retry_at is None
            else f"; tried again at {time.strftime('%H:%M:%S', time.localtime(row.retry_at))}"
        )
        price = "price unknown" if row.usd_per_hour is None else f"{row.usd_per_hour:.3f} $/h"
        ready = "" if row.ready_s is None else f", ready after {row.ready_s:.0f} s"
        starts = "" if row.start_rate is None else f"  {row.start_rate:.0%} of {row.starts} starts worked{ready}"
        lines += [
            f"  {row.tier:<{width}}  {printable(row.why)}{again}",
            f"  {'':<{width}}  {row.busy} busy, {row.ready} ready, {row.capacity} at most  {price} a worker{starts}",
        ]
    room = columns()
    return "\n".join(wrapped(one.rstrip(), room, indent=4) for one in lines).rstrip()


def unanswered(answer: PoolFacts) -> dict[str, list[str]]:
    """The hosts and guests that were asked in vain."""
    hosts = [row.host for row in answer.hosts if row.probe is not None and not row.probe["reachable"]]
    guests = [
        f"{guest.container} on {row.host}"
        for row in answer.hosts
        for guest in row.guests or ()
        if guest.state != "answers"
    ]
    return {what: names for what, names in (("not reached", hosts), ("guests that do not answer", guests)) if names}


def _readiness(hosts: Sequence[HostRow]) -> list[str]:
    """How long each check took on the slowest machine: what a person can make quicker."""
    took = {row.host: row.checks_s for row in hosts if row.checks_s}
    if not took:
        return []
    host = max(took, key=lambda name: sum(took[name].values()))
    checks = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in took[host].items() if seconds >= 0.5)
    return ["", f"readiness checks took longest on {host}: {checks or 'less than a second'}"]


def _money(answer: PoolFacts) -> list[str]:
    from evalfleet.pools.kinds import registry

    if answer.cost_usd is None:
        return []
    budget = f" of ${answer.budget_usd:.2f}" if answer.budget_usd is not None else ""
    kept = ""
    if answer.kept_usd_per_day:
        stopped = ", also while stopped" if getattr(registry.find(answer.backend), "keeps_stopped", False) else ""
        kept = f", including disks and addresses ${answer.kept_usd_per_day:.2f} a day{stopped}"
    hosts = answer.hosts
    most = "at most " if any(row.price == "at_most" for row in hosts) else ""
    cost, now = f"{most}${answer.cost_usd:.4f}", f"{most}${answer.usd_per_hour:.3f}"
    lines = [f"cost so far {cost}{budget}; now {now} an hour{kept}"]
    if any(row.price == "unknown" for row in hosts):
        lines.append("the price of some machines is unknown and not counted; `evalfleet prices --refresh` fetches it")
    asked = [row for row in hosts if row.box_requests_per_hour is not None]
    if asked:
        requests = sum(row.box_requests_per_hour or 0.0 for row in asked)
        usd = sum(row.box_usd_per_hour or 0.0 for row in asked)
        lines.append(f"not in it: {requests:,.0f} requests an hour to the machines' boxes, ${usd:.3f} an hour")
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


def _guest(row: GuestRow) -> str:
    from evalfleet.report.text import count, printable

    state = row.state if row.state == "answers" else f"{row.state} ({printable(row.seen)})"
    screen = f"screen: {row.screen}" if row.screen else "no screen: the container publishes no port for it"
    return f"{row.container}  {state}, {count(row.tasks_done, 'task')} done, {screen}"


def _probed(row: HostRow) -> str:
    from evalfleet.report.text import count

    probe: dict[str, Any] = row.probe or {}
    if not probe["reachable"]:
        return f"not reached: {probe['error']}"
    has = probe["host"]
    runner = "its runner answers" if probe["answers"] else "no runner"
    size = f"{has['cpus']} CPUs, {has['memory_mb'] / 1024:.0f} GB, {has['disk_free_mb'] / 1024:.0f} GB free"
    return f"reached: {size}, Python {has['python']}, {runner}; {count(row.tasks_done or 0, 'task')} done"
