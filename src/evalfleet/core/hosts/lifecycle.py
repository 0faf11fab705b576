"""The next step for a machine of a cloud, from its desired state, its state and what the cloud reports. Pure.

The cloud is always asked first, so that it does not matter in which moment an earlier owner of the pool died: whatever is
there is adopted, finished or deleted. Every step may be taken again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from evalfleet.duration import HOUR_S
from evalfleet.model import DesiredState, HostState, PoolHost

_UNBORN = (HostState.REQUESTED, HostState.CREATING)


class Stage(StrEnum):
    """How far a machine has come into being, as its cloud says."""

    CREATING = "creating"
    MADE = "made"
    FAILED = "failed"
    DELETING = "deleting"


class Power(StrEnum):
    """Whether a machine is on, as its cloud says."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    OFF = "off"  # and still paid for
    RELEASED = "released"  # off, and not paid for


_OFF = (Power.RELEASED, Power.OFF)
_MOVING = (Power.STARTING, Power.STOPPING)


class Step(StrEnum):
    REST = "rest"  # it is what it should be
    WAIT = "wait"  # the cloud is at it
    DRAIN = "drain"  # it has work to finish first
    CREATE = "create"
    CLEAR = "clear"  # delete what a creation that failed has left, then create again
    PREPARE = "prepare"  # it runs: prove that it is ready
    START = "start"
    STOP = "stop"
    DELETE = "delete"
    MARK_LOST = "mark_lost"  # it was taken away, or went before its results were collected from its box
    KEEP_BOX = "keep_box"  # it is gone; results in its box are not collected yet
    STOPPED = "stopped"  # reached: write it down
    GONE = "gone"  # reached: write it down


class Seen(Struct, frozen=True, kw_only=True):
    """What the cloud reports about an existing machine."""

    stage: Stage
    power: Power | None = None  # None: not known (yet)
    spot: bool = False


def next_step(
    host: PoolHost, seen: Seen | None, *, busy: bool = False, keeps_stopped: bool = True, keeps_box: bool = False
) -> Step:
    """The next step towards the host's desired state.

    Args:
        seen: None where the cloud has no such machine.
        keeps_stopped: whether its cloud keeps machines that are stopped. If not, one that is to be stopped goes, and one that
            is found off is over.
        busy: whether any run has work on it: it ends, and is collected, first. A desired state that a person forces does not wait.
        keeps_box: whether its box may hold results that are not collected yet. The machine does not wait for that, but its box is kept
            until they are, unless a person forces its deletion.
    """
    busy = busy and not host.forced
    if host.state is HostState.GONE:
        return Step.REST
    goes = host.desired is DesiredState.GONE or (host.desired is DesiredState.STOPPED and not keeps_stopped)
    if goes or host.state is HostState.LOST:
        keeps_box = keeps_box and not (host.forced and host.desired is DesiredState.GONE)
        return _towards_gone(host, seen, busy=busy, keeps_box=keeps_box)
    if seen is None:
        if host.state not in _UNBORN:
            return Step.MARK_LOST
        return Step.CREATE if host.desired is DesiredState.RUNNING else Step.GONE  # there is nothing that could be kept
    if seen.stage is Stage.DELETING:
        return Step.WAIT
    if seen.stage is Stage.FAILED and host.state in _UNBORN:
        return Step.CLEAR
    if seen.stage is Stage.CREATING or seen.power in _MOVING:
        return Step.WAIT
    return (
        _towards_stopped(host, seen, busy=busy)
        if host.desired is DesiredState.STOPPED
        else _towards_running(host, seen, keeps_stopped=keeps_stopped)
    )


def _towards_gone(host: PoolHost, seen: Seen | None, *, busy: bool, keeps_box: bool) -> Step:
    if seen is None:
        if keeps_box and host.state not in _UNBORN:
            return Step.KEEP_BOX if host.state is HostState.LOST else Step.MARK_LOST
        return Step.GONE
    if seen.stage is Stage.DELETING:
        return Step.WAIT
    # Also of one that is off: what has ended there lies on its disk.
    return Step.DRAIN if busy and host.state is not HostState.LOST else Step.DELETE


def _towards_stopped(host: PoolHost, seen: Seen, *, busy: bool) -> Step:
    if seen.power is Power.RELEASED:
        return Step.REST if host.state is HostState.STOPPED else Step.STOPPED
    return Step.DRAIN if busy else Step.STOP


def _towards_running(host: PoolHost, seen: Seen, *, keeps_stopped: bool) -> Step:
    if seen.power in _OFF and not keeps_stopped:
        return Step.CLEAR if host.state in (*_UNBORN, HostState.PREPARING) else Step.MARK_LOST
    if seen.power in _OFF:
        # A machine of the spot market that is off, and not by our order, was taken; it would be started in vain.
        by_order = host.state in (HostState.STOPPED, HostState.DRAINING)
        return Step.MARK_LOST if seen.spot and not by_order else Step.START
    if host.state in (HostState.READY, HostState.QUARANTINED):
        return Step.REST
    return Step.PREPARE


def drains_work(host: PoolHost, step: Step) -> bool:
    """Whether a machine that is to go, or the box that it left, waits for work to end or to be collected."""
    return step is Step.DRAIN or (step is Step.KEEP_BOX and host.desired is DesiredState.GONE)


def is_due(host: PoolHost, step: Step, waits: str | None) -> bool:
    """Whether there is something to do. What waits for work has nothing to do but to say for what."""
    if step is Step.DRAIN:
        return host.state is not HostState.DRAINING or host.reason != waits
    if step is Step.KEEP_BOX:
        return drains_work(host, step) and host.reason != waits
    return step is not Step.REST


def cost_usd(host: PoolHost, now: float) -> float:
    """What the machine has cost until now: its time while allocated, and its disk and address as long as it exists."""
    running = 0.0 if host.allocated_since is None else max(0.0, now - host.allocated_since)
    exists = 0.0 if host.made_at is None else max(0.0, (host.gone_at or now) - host.made_at)
    hours = (host.allocated_s + running) / HOUR_S
    return hours * host.usd_per_hour + exists / HOUR_S * host.kept_usd_per_hour


def metered(host: PoolHost, now: float, *, running: bool) -> PoolHost:
    """The host with its meter running or stopped; said again, nothing changes."""
    if running == (host.allocated_since is not None):
        return host
    if running:
        return replace(host, allocated_since=now)
    assert host.allocated_since is not None
    return replace(host, allocated_since=None, allocated_s=host.allocated_s + max(0.0, now - host.allocated_since))


def total_usd(hosts: Iterable[PoolHost], now: float) -> float:
    return sum(cost_usd(host, now) for host in hosts)


def counts_as_worker(host: PoolHost) -> bool:
    """Whether the host is one of those that the pool should have running. One in quarantine is: it waits for a person,
    and what made it unwell would make the next one so, too."""
    return host.desired is DesiredState.RUNNING and host.state not in (HostState.LOST, HostState.GONE)


class Demand(Struct, frozen=True, kw_only=True):
    """What a pool must balance."""

    wanted: int  # workers that the runs could use now
    least: int
    most: int


class Change(Struct, frozen=True, kw_only=True):
    """How a pool follows its demand."""

    start: tuple[str, ...] = ()  # stopped machines
    request: int = 0  # new ones
    shed: tuple[str, ...] = ()  # idle ones, to be stopped or deleted


def follow(
    hosts: Iterable[PoolHost],
    demand: Demand,
    idle_s: float,
    now: float,
    idle_since: dict[str, float],
    busy: Collection[str],
) -> Change:
    """How many machines to start, request or let go.

    A machine that is stopped, or about to be, is started before a new one is requested. Only machines that were idle for
    `idle_s` are let go, the youngest first, and never below what is wanted or the least.

    Args:
        idle_since: since when each idle host has had nothing to do.
        busy: hosts with work.
    """
    all_hosts = [host for host in hosts if host.state not in (HostState.GONE, HostState.LOST)]
    have = [host for host in all_hosts if counts_as_worker(host)]
    target = max(demand.least, min(demand.most, demand.wanted))
    if len(have) < target:
        asleep = [host.name for host in all_hosts if host.desired is DesiredState.STOPPED]
        started = tuple(asleep[: target - len(have)])
        return Change(start=started, request=target - len(have) - len(started))
    tired = [
        host
        for host in have
        if host.state is HostState.READY and host.name not in busy and now - idle_since.get(host.name, now) >= idle_s
    ]
    shed = sorted(tired, key=lambda host: host.number, reverse=True)[: len(have) - target]
    return Change(shed=tuple(host.name for host in shed))
